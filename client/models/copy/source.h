/* SPDX-License-Identifier: MIT
 *
 * A file as the engine reads it: through the page cache, or past it. Any number of threads read one
 * source. Another way to read (a GPU that reads a disk by itself, an object store) would be another
 * implementation of these functions.
 */
#pragma once

#include "client/models/files/plan.h"

#include <stdatomic.h>

struct source {
	struct load_file *file;
	int direct;   /* owned: the file, opened with O_DIRECT; -1: it is read through the cache */
	size_t align; /* of direct reads: offsets, lengths and memory; a power of two */
	bool ask;     /* what is in the page cache is read from there all the same */
	char *mapped; /* owned: the file, without access, to ask what is in the page cache; or NULL
		       */
	bool cold;    /* most of the file was not in the page cache when it was opened */
	atomic_bool refused;	/* the file system refuses direct reads after all */
	atomic_bool was_direct; /* something was read past the cache */
};

/* Bytes that the memory for source_read() has beyond those that are read, for a block of them. */
#define SOURCE_SLACK (128u << 10)

/* flags: GPUSHM_LOAD_CACHED, GPUSHM_LOAD_DIRECT, or neither: what is in the page cache is read from
 * there. Never fails: a file that can't be opened for direct reading is read through the cache. */
void source_open(struct source *s, struct load_file *file, uint32_t flags);
void source_close(struct source *s);

/* Whether most of the file will be read past the page cache. Such reads wait for a disk, and need
 * more threads. */
bool source_is_cold(const struct source *s);

/* Whether source_read_direct() should read these bytes. */
bool source_wants_direct(struct source *s, uint64_t offset, size_t n);

/* Reads bytes past the page cache into `room`, which has n + 3 * s->align bytes; *ret is where in
 * it they begin. Errors as for load_file_read(). */
int source_read_direct(struct source *s, char *room, size_t n, uint64_t offset, char **ret);
