/* SPDX-License-Identifier: MIT
 *
 * The plan of a strided copy: the axes that both sides have in common, with contiguous ones merged.
 * Numbers only; it knows neither arrays nor where memory is.
 */
#pragma once

#include "proto/base/huge_pages.h"
#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct copy_plan_axis {
	int64_t n;	  /* steps; more than 1 */
	int64_t dst, src; /* bytes from one step to the next */
};

struct copy_plan {
	size_t run;	/* bytes that are contiguous on both sides: one step moves them */
	int64_t dst_at; /* bytes from the caller's start to the first step */
	int64_t src_at; /* likewise */
	bool ordered;	/* steps may write to the same bytes: keep their order */
	int n_axes;	/* 0: one run */
	struct copy_plan_axis axes[DIMENSIONS_MAX]; /* the outermost first */
};

/* The plan that copies an array of that shape, which has elements, between two layouts of strides
 * in bytes. Where elements share memory in dst, the last one in C order wins. Unless the plan is
 * ordered, its dst strides are positive. 0; -EOVERFLOW where strides reach further than the address
 * space. */
int copy_plan_init(struct copy_plan *plan, int ndim, const int64_t *shape,
		   const int64_t *dst_strides, const int64_t *src_strides, size_t itemsize);

/* The plan in two: `pack` from the source to memory without gaps, `place` from there to the
 * destination. */
void copy_plan_split(const struct copy_plan *plan, struct copy_plan *pack, struct copy_plan *place);

/* The plan of one step of the outermost axis, which must exist. */
void copy_plan_inner(const struct copy_plan *plan, struct copy_plan *ret);

/* All bytes that the copy moves. */
uint64_t copy_plan_bytes(const struct copy_plan *plan);

/* Whether the bytes from the lowest to the highest one of both sides overlap. */
bool copy_plan_overlaps(const struct copy_plan *plan, const void *dst, const void *src);

/* Copies from host memory to host memory. The sides do not overlap. fresh: the mapping that dst
 * lies in, if it is written for the first time; NULL: it is not. */
void copy_plan_copy(const struct copy_plan *plan, void *dst, const void *src,
		    struct huge_pages *fresh);
