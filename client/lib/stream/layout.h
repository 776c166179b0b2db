/* SPDX-License-Identifier: MIT
 *
 * The arrays of a stream's buffer: each array of a frame, with the slots as one more dimension
 * before the others.
 */
#pragma once

#include "client/gpushm_array.h"
#include "proto/limits.h"

struct layout {
	struct gpushm_array_spec *specs; /* owned; n of them, with offsets */
	struct layout_numbers *numbers;	 /* owned; the specs' shapes and strides */
	size_t n;
	uint64_t slot_bytes, bytes; /* of a slot, and of all */
};

/* 0 or -errno with gpushm_error() set: as gpushm_layout(), and -ENOTSUP for elements narrower than
 * a byte. */
int layout_init(struct layout *l, const struct gpushm_array_spec *arrays, size_t n, uint32_t slots);
void layout_done(struct layout *l);

/* gpushm_buffer_digest() of a buffer with this layout. 0 or -errno. */
int layout_digest(const struct layout *l, uint64_t *ret);
