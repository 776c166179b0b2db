/* SPDX-License-Identifier: MIT
 *
 * A buffer's arrays, in the order of the bytes that they cover.
 */
#pragma once

#include "client/gpushm.h"
#include "client/models/files/plan.h"

/* An array, and the bytes of the buffer that it covers. */
struct covered {
	struct gpushm_array *array; /* owned */
	size_t index;		    /* in the buffer's table */
	uint64_t begin, end; /* in the buffer; those of an array with strides may have gaps */
};

struct arrays {
	struct covered *items; /* owned; by begin, then by index */
	size_t n;
};

/* 0, or -ENOMEM with gpushm_error() set. Free *ret with arrays_clear() also after an error. */
int arrays_list(struct gpushm_buffer *b, struct arrays *ret);
void arrays_clear(struct arrays *a);

/* The bytes that the arrays cover, each once, as a plan whose file is those bytes without gaps. 0
 * or -ENOMEM with gpushm_error() set. Free ret->runs. */
int arrays_plan(const struct arrays *a, struct plan *ret);

/* The CUDA ordinal of the GPU that this process uses the buffer from; -1: the processor does. */
int arrays_device(const struct arrays *a, const struct gpushm_buffer *b);

/* Copies n of the bytes that an array with strides has in C order, behind the first `skip`. Errors
 * of gpushm_copy_to_host(). */
int arrays_gather(const struct gpushm_array *a, uint64_t skip, char *to, size_t n);
