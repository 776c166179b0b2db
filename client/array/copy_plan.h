/* SPDX-License-Identifier: MIT
 *
 * A walk: how a strided copy goes over its two sides, once what lies together in both has been put
 * together. Numbers only; it knows neither arrays nor where memory is.
 */
#ifndef GPUSHM_CLIENT_ARRAY_COPY_PLAN_H
#define GPUSHM_CLIENT_ARRAY_COPY_PLAN_H

#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct copy_plan_axis {
	int64_t n;	  /* steps; more than 1 */
	int64_t dst, src; /* bytes from one step to the next */
};

struct copy_plan {
	size_t run;	/* bytes that are contiguous in both: what one step moves */
	int64_t dst_at; /* bytes from the given start to where the walk starts */
	int64_t src_at; /* likewise */
	bool ordered;	/* steps may write to the same bytes: their order counts */
	int n_axes;	/* 0: one run */
	struct copy_plan_axis axes[DIMENSIONS_MAX]; /* the outermost first */
};

/* The walk that copies an array of that shape, which has elements, between two layouts of strides
 * in bytes. Where elements share memory in dst, the last in C order wins. Unless it is ordered, no
 * dst stride of it is negative and none is 0. 0; -EOVERFLOW where strides reach further than memory
 * does. */
int copy_plan_init(struct copy_plan *w, int ndim, const int64_t *shape, const int64_t *dst_strides,
		   const int64_t *src_strides, size_t itemsize);

/* Puts axes together again, after strides were changed. */
void copy_plan_merge(struct copy_plan *w);

/* What one step of the outermost axis contains. Only if there is one. */
void copy_plan_inner(const struct copy_plan *w, struct copy_plan *ret);

/* Bytes that are moved in all. */
uint64_t copy_plan_bytes(const struct copy_plan *w);

/* Copies from host memory to host memory. The sides do not overlap. */
void copy_plan_copy(const struct copy_plan *w, void *dst, const void *src);

#endif
