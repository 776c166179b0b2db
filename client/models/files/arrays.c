/* SPDX-License-Identifier: MIT
 *
 * Arrays may overlap: tied weights do, and nothing forbids views of one another.
 */
#include "client/models/files/arrays.h"

#include "client/gpushm_load_private.h"
#include "client/gpushm_private.h"
#include "client/models/fail.h"
#include "proto/base/own.h"
#include "proto/kind.h"

#include <stdlib.h>
#include <string.h>

static void find_bytes(struct covered *c)
{
	const struct gpushm_array *a = c->array;
	const int64_t *strides = gpushm_array_strides(a);
	uint64_t itemsize = gpushm_dtype_bits(gpushm_array_dtype(a)) / 8;

	c->begin = gpushm_array_offset(a);
	c->end = c->begin + gpushm_array_nbytes(a);
	if (gpushm_array_is_c_contiguous(a) || gpushm_array_size(a) == 0)
		return;
	c->end = c->begin + itemsize;
	for (int i = 0; i < gpushm_array_ndim(a); i++) {
		int64_t reach = (gpushm_array_dim(a, i) - 1) * strides[i];

		if (reach > 0)
			c->end += (uint64_t)reach;
		else
			c->begin -= (uint64_t)-reach;
	}
}

static int compare(const void *x, const void *y)
{
	const struct covered *a = x, *b = y;

	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	return a->index < b->index ? -1 : 1;
}

int arrays_list(struct gpushm_buffer *b, struct arrays *ret)
{
	size_t n = gpushm_buffer_arrays(b);

	*ret = (struct arrays){ .items = calloc(n + 1, sizeof(*ret->items)) };
	if (!ret->items)
		return load_no_memory();
	for (; ret->n < n; ret->n++) {
		int r = gpushm_array_at(b, ret->n, &ret->items[ret->n].array);

		if (r < 0)
			return r;
		ret->items[ret->n].index = ret->n;
		find_bytes(&ret->items[ret->n]);
	}
	qsort(ret->items, n, sizeof(*ret->items), compare);
	return 0;
}

void arrays_clear(struct arrays *a)
{
	for (size_t i = 0; i < a->n; i++)
		gpushm_array_free(a->items[i].array);
	free(a->items);
	*a = (struct arrays){ 0 };
}

int arrays_plan(const struct arrays *a, struct plan *ret)
{
	struct run *run = NULL;

	*ret = (struct plan){ .runs = calloc(a->n + 1, sizeof(*ret->runs)) };
	if (!ret->runs)
		return load_no_memory();
	for (size_t i = 0; i < a->n; i++) {
		const struct covered *c = &a->items[i];
		uint64_t begin = c->begin, covered = run ? run->buffer_offset + run->bytes : 0;

		if (run && begin < covered)
			begin = covered;
		if (begin >= c->end)
			continue;
		if (!run || begin > covered) {
			run = &ret->runs[ret->n++];
			*run = (struct run){ .file_offset = ret->bytes, .buffer_offset = begin };
		}
		run->bytes += c->end - begin;
		ret->bytes += c->end - begin;
	}
	return 0;
}

int arrays_device(const struct arrays *a, const struct gpushm_buffer *b)
{
	int type, id;

	if (!kind_of(gpushm_buffer_kind(b))->on_gpu)
		return -1;
	if (a->n == 0)
		return gpushm_buffer_device(b);
	/* The GPU that it is mapped for, which may be another one than the memory's. */
	gpushm_array_dlpack_device(a->items[0].array, &type, &id);
	return id;
}

/* Of one row, which is an array without the first axis. */
static int gather_row(const struct gpushm_array *a, uint64_t row, uint64_t skip, char *to, size_t n)
{
	_cleanup_(free_array) struct gpushm_array *part = NULL;
	int r = gpushm_array_index(a, 0, (int64_t)row, &part);

	return r < 0 ? r : arrays_gather(part, skip, to, n);
}

static int gather_rows(const struct gpushm_array *a, uint64_t row, uint64_t skip, char *to,
		       size_t n)
{
	uint64_t first = skip / row, last = (skip + n - 1) / row;
	_cleanup_(free_ptr) char *rows = malloc((last - first + 1) * row);
	_cleanup_(free_array) struct gpushm_array *part = NULL;
	int r;

	if (!rows)
		return load_no_memory();
	r = gpushm_array_slice(a, 0, (int64_t)first, (int64_t)last + 1, 1, &part);
	if (r == 0)
		r = gpushm_copy_to_host(part, rows, NULL);
	if (r == 0)
		memcpy(to, rows + (skip - first * row), n);
	return r;
}

/* Whole rows of the first axis are copied at once; a row that is longer than what is asked for is
 * taken apart along the next axis. */
int arrays_gather(const struct gpushm_array *a, uint64_t skip, char *to, size_t n)
{
	uint64_t row = gpushm_array_nbytes(a) / (uint64_t)gpushm_array_dim(a, 0);
	int r = 0;

	if (row <= n || gpushm_array_ndim(a) == 1)
		return gather_rows(a, row, skip, to, n);
	for (size_t some; r == 0 && n > 0; to += some, skip += some, n -= some) {
		uint64_t left = row - skip % row;

		some = left < n ? (size_t)left : n;
		r = gather_row(a, skip / row, skip % row, to, some);
	}
	return r;
}
