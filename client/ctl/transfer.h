/* SPDX-License-Identifier: MIT
 *
 * A transfer of bytes between files and buffers, a chunk at a time. While it runs, SIGINT, SIGTERM
 * and SIGHUP stop it, so that the command can clean up, and after one second a progress bar shows
 * on stderr if that is a terminal.
 */
#pragma once

#include "client/ctl/model/progress.h"
#include "client/gpushm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct transfer {
	struct progress progress;
	uint64_t started; /* ns, CLOCK_MONOTONIC */
};

/* Catches signals, too. quiet: no bar. */
void transfer_begin(struct transfer *t, const char *label, uint64_t total, bool quiet);

/* Removes the bar, and releases signals. */
void transfer_end(struct transfer *t);

/* Opens a file for reading; "-" is standard input, and *file then becomes its name for messages.
 * *ret is -1 after an error. An exit code. */
int transfer_open(const char **file, int *ret);

/* Whether the input is a regular file; then *ret is the number of bytes from here to its end. */
bool transfer_rest(int fd, uint64_t *ret);

/* Reads until size bytes are there or the file ends. The number, or -errno (-EINTR: a signal). */
ssize_t transfer_read(int fd, void *buf, size_t size);

/* Writes all bytes. `file` is the file's name for errors. An exit code. */
int transfer_write(int fd, const char *file, const void *buf, size_t size);

/* Fills the buffer's bytes from offset on from a file; fd -1: with zeros. The file must end there,
 * unless it is a device, which may have no end: so nothing is cut off in silence. `file` is the
 * file's name for errors. An exit code. */
int transfer_fill(struct transfer *t, int fd, const char *file, struct gpushm_buffer *b,
		  uint64_t offset, uint64_t bytes);

/* Writes an array's elements to a file in C order. An exit code. */
int transfer_dump_c(struct transfer *t, const struct gpushm_array *a, int fd, const char *file);

/* Writes an array's elements to a file: as they lie if the array is contiguous in C or Fortran
 * order, else in C order. An exit code. */
int transfer_dump(struct transfer *t, const struct gpushm_array *a, int fd, const char *file);
