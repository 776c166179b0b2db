/* SPDX-License-Identifier: MIT
 *
 * Bytes between files and buffers, a chunk at a time. All functions return an exit code.
 */
#ifndef GPUSHM_CLIENT_CTL_TRANSFER_H
#define GPUSHM_CLIENT_CTL_TRANSFER_H

#include "client/ctl/progress.h"
#include "client/gpushm.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads until size bytes are there or the file ends. The number, or -errno (-EINTR: a signal). */
ssize_t transfer_read(int fd, void *buf, size_t size);

/* Writes all of it. 0 or -errno. */
int transfer_write(int fd, const void *buf, size_t size);

/* Fills the buffer's bytes from offset from a file that must have so many; `file` names it in
 * errors. */
int transfer_fill(int fd, const char *file, struct gpushm_buffer *b, uint64_t offset,
		  uint64_t bytes, struct progress *p);

/* Fills them with zeros. */
int transfer_zero(struct gpushm_buffer *b, uint64_t offset, uint64_t bytes, struct progress *p);

/* Writes an array's elements to a file: as they lie where it is contiguous (either way), else in
 * C order. */
int transfer_dump(const struct gpushm_array *a, int fd, const char *file, struct progress *p);

#endif
