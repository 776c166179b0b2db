/* SPDX-License-Identifier: MIT
 *
 * The fields that a record of the journal and the daemon's struct have by the same name: one list
 * for serialize.c, which writes them, and deserialize.c, which reads them. A new one is a word here
 * and a line in journal.proto; what has another name or form stands in both files.
 */
#pragma once

/* Buffer and struct buffer. */
#define BUFFER_RIGHTS(X) X(state) X(uid) X(gid) X(mode) X(transient) X(foreign) X(dirty)
#define BUFFER_SIZES(X) X(bytes) X(table_bytes) X(digest) X(arrays)
#define BUFFER_FIELDS(X) \
	X(id) X(memory) X(created_ns) X(published_ns) BUFFER_RIGHTS(X) BUFFER_SIZES(X)

/* Stream and struct stream_shape, struct stream. */
#define SHAPE_FIELDS(X) X(slots) X(slot_bytes) X(readers) X(delivery) X(keep_queue) X(limit_ms)
#define STREAM_FIELDS(X) X(producers) X(drops) X(joins)

/* Reader and struct stream_reader. */
#define READER_FIELDS(X) X(generation) X(follow) X(max_held) X(dropped) X(joined_ns)

/* Lease and struct process. */
#define PROCESS_FIELDS(X) X(session) X(pid) X(start_time) X(uid) X(gid)
