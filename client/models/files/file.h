/* SPDX-License-Identifier: MIT
 *
 * A source file from the moment it is opened until all of it is in the buffer. What the engine sees
 * of it is in plan.h.
 */
#pragma once

#include "client/models/files/plan.h"

/* Opens a file, or standard input for "-", and adds it. A pipe, a terminal and the like are
 * streams. Errors are those of open(2), with gpushm_error() set; -EISDIR. */
int load_files_add(struct load_files *files, const char *path);

/* Adds files of web servers: asks for them several at a time, with files->options, and reads their
 * headers' text. A server without ranges makes a stream. Errors are those of remote_open(). */
int load_files_add_urls(struct load_files *files, char *const *urls, size_t n);

/* Adds a file in memory; `name` is for errors. Copies the bytes. */
int load_files_add_memory(struct load_files *files, const char *name, const void *bytes, size_t n);

/* How a wait for streams ends, until the next call. */
void load_files_set_stop(struct load_files *files, struct load_stop stop);

/* Closes all. May be called on a zeroed struct and twice. */
void load_files_done(struct load_files *files);

/* Reads the header's text, which free() releases, and notes where the data begin and the hash of
 * the header. *ret_data_bytes: what follows it; of a stream HEADER_NO_SIZE. -EBADMSG if there can
 * be no header of that length. */
int load_file_header(struct load_file *f, char **ret_text, size_t *ret_length,
		     uint64_t *ret_data_bytes);

/* After the last tensor was read: whether the file is still as it was before its header was read.
 * A stream is read to its end, which must be there, and its checksum compared. -ESTALE, -EBADMSG.
 */
int load_file_finish(struct load_file *f);
