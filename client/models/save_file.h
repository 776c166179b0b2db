/* SPDX-License-Identifier: MIT
 *
 * The file that a save writes: it appears under its name when it is whole, and never before.
 */
#pragma once

#include "client/models/web/stop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct save_file {
	const char *path; /* as the caller gave it; lent, for errors */
	char *target;	  /* owned: where the file will be; NULL: a stream */
	char *temporary;  /* owned: the name that it has until then; NULL: none */
	int fd;		  /* owned, unless it is standard output */
	bool stream;	  /* bytes must come in order: "-", a pipe, a device */
	bool standard;	  /* standard output */
	char *map;	  /* a file on a tmpfs: all of it, mapped; else NULL */
	uint64_t bytes;	  /* that are mapped */
	/* Of waits for the reader of a pipe. */
	struct load_stop stop;
};

/* Opens a temporary file in the folder of `path`, without a name if the file system can do that;
 * for "-", and for a path that exists and is no regular file, that itself. A pipe without a reader
 * is waited for until `stop` says so: -ECANCELED. An error of open(2), with gpushm_error() set. */
int save_file_open(struct save_file *f, const char *path, struct load_stop stop);

/* Says how large the file will be. Without this call it is written, too; but a tmpfs lets one
 * thread at a time write to a file, and many of them copy to a mapping. An error of ftruncate(2),
 * with gpushm_error() set. */
int save_file_reserve(struct save_file *f, uint64_t bytes);

/* Writes all bytes: at that offset; to a stream, where it stands. Any number of threads may write
 * to a file at the same time. An error of write(2), or for a pipe -ECANCELED, with gpushm_error()
 * set. */
int save_file_write(struct save_file *f, const void *bytes, size_t n, uint64_t offset);

/* Waits until all is on disk. */
int save_file_sync(struct save_file *f);

/* Gives a file that was synced its name, which another file may have had. */
int save_file_commit(struct save_file *f);

/* Removes what was not committed. May be called on a zeroed struct whose fd is -1. */
void save_file_close(struct save_file *f);
