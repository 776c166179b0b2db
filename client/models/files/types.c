/* SPDX-License-Identifier: MIT
 *
 * Counts the tensors of each type. The text is made when a model is loaded, so that a program can
 * show what a buffer has without opening it: that may start a GPU's driver.
 */
#include "client/models/files/types.h"

#include "client/models/fail.h"
#include "proto/base/grow.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Where a tensor lies: tied tensors lie at one offset. */
struct extent {
	uint64_t offset, bytes;
	struct gpushm_dtype dtype;
};

struct type_count {
	struct gpushm_dtype dtype;
	uint64_t tensors, bytes;
};

struct counts {
	struct type_count *v; /* owned */
	size_t n;
};

static int by_offset(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static int by_bytes(const void *a, const void *b)
{
	const struct type_count *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* The model's own layout has checked the product. */
static uint64_t bytes_of(const struct gpushm_array_spec *s)
{
	uint64_t bits = gpushm_dtype_bits(s->dtype);

	for (int i = 0; i < s->ndim; i++)
		bits *= (uint64_t)s->shape[i];
	return (bits + 7) / 8;
}

static bool same_dtype(struct gpushm_dtype a, struct gpushm_dtype b)
{
	return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

static int add(struct counts *c, const struct extent *e, bool tied)
{
	struct type_count *t = c->v;

	while (t < c->v + c->n && !same_dtype(t->dtype, e->dtype))
		t++;
	if (t == c->v + c->n) {
		t = grow(c->v, c->n, sizeof(*t));
		if (!t)
			return load_no_memory();
		c->v = t;
		t += c->n++;
		*t = (struct type_count){ .dtype = e->dtype };
	}
	t->tensors++;
	t->bytes += tied ? 0 : e->bytes;
	return 0;
}

static int count(const struct model *m, struct counts *ret)
{
	_cleanup_(free_ptr) struct extent *extents = calloc(m->n + 1, sizeof(*extents));
	size_t n = 0;
	int r = extents ? 0 : load_no_memory();

	for (size_t i = 0; i < m->n && r == 0; i++)
		if (m->specs[i].shape != &m->metadata_shape)
			extents[n++] = (struct extent){ m->specs[i].offset, bytes_of(&m->specs[i]),
							m->specs[i].dtype };
	if (r == 0)
		qsort(extents, n, sizeof(*extents), by_offset);
	for (size_t i = 0; i < n && r == 0; i++)
		r = add(ret, &extents[i], i > 0 && extents[i].offset == extents[i - 1].offset);
	return r;
}

static void write_text(const struct counts *c, char *ret, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < c->n && used < size; i++) {
		char name[32] = "?";

		gpushm_dtype_format(c->v[i].dtype, name, sizeof(name));
		used += (size_t)snprintf(ret + used, size - used, "%s%s %" PRIu64 " %" PRIu64,
					 i ? ", " : "", name, c->v[i].tensors, c->v[i].bytes);
	}
	if (used >= size)
		*ret = '\0';
}

int types_format(const struct model *m, char *ret, size_t size)
{
	struct counts c = { 0 };
	int r = count(m, &c);

	*ret = '\0';
	if (r == 0 && c.n > 0) {
		qsort(c.v, c.n, sizeof(*c.v), by_bytes);
		write_text(&c, ret, size);
	}
	free(c.v);
	return r;
}
