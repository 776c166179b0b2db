/* SPDX-License-Identifier: MIT
 *
 * Reads a range of a buffer that the CPU does not have mapped, block by block, on a thread of its
 * own: while one block is written to a file, the GPU's driver fills the other one.
 */
#pragma once

#include "client/gpushm.h"

#include <stdint.h>
#include <sys/types.h>

struct read_ahead;

/* 0, -ENOMEM or -EAGAIN (no thread). The buffer must not be closed before read_ahead_free(). */
int read_ahead_new(struct gpushm_buffer *b, uint64_t offset, uint64_t bytes,
		   struct read_ahead **ret);

/* The next block. It is valid until the next call. Returns its size, 0 at the end, or a -errno of
 * gpushm_read(); nothing follows an error. */
ssize_t read_ahead_next(struct read_ahead *a, const void **ret);

/* The text of the error that read_ahead_next() has returned. */
const char *read_ahead_error(const struct read_ahead *a);

/* Waits for the read that is under way. NULL is allowed. Returns NULL. */
struct read_ahead *read_ahead_free(struct read_ahead *a);
