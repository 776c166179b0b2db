/* SPDX-License-Identifier: MIT
 *
 * Where arrays come from: found in a buffer's table by name or by position, or laid over its bytes
 * by a caller's spec. Either way proto/table.c has the say in what an array of this buffer may be:
 * it checks each entry that it tells, and a spec is checked by adding it to a table that is thrown
 * away.
 *
 * While a table is looked at, its buffer's lock is held: a buffer that is being filled may grow it.
 */
#include "client/array/array.h"

#include "client/base/error.h"
#include "client/base/spec.h"
#include "client/buffer/buffer.h"

#include <errno.h>
#include <string.h>

/* From what the table tells, or from a spec that went through the table's check. */
static int array_from_table(struct gpushm_buffer *b, const struct table_array *t,
			    struct gpushm_array **ret)
{
	struct array_layout l = { .dtype = t->dtype, .ndim = (int)t->ndim, .offset = t->offset };
	struct array_words w = { t->name, t->descr, t->name_len, t->descr_len };

	for (uint32_t i = 0; i < t->ndim; i++) {
		l.shape[i] = (int64_t)t->shape[i];
		l.strides[i] = t->strides[i];
	}
	return array_make(b, &l, &w, ret);
}

static int malformed(const struct gpushm_buffer *b)
{
	return error_set(EPROTO,
			 "buffer \"%s\": what the daemon's table says of an array is malformed",
			 b->name);
}

static int get(struct gpushm_buffer *b, bool whole, const char *name, struct gpushm_array **ret)
{
	const struct table_view *v;
	struct table_array t;
	int r = buffer_table(b, whole, &v);

	if (r < 0)
		return r;
	r = table_view_find(v, name, strlen(name), &t);
	if (r == -ENOENT)
		error_set(ENOENT, "buffer \"%s\" has no array called \"%s\"", b->name, name);
	else if (r != -EAGAIN)
		r = r < 0 ? malformed(b) : array_from_table(b, &t, ret);
	buffer_table_done(b);
	return r;
}

int gpushm_array_get(struct gpushm_buffer *b, const char *name, struct gpushm_array **ret)
{
	int r = buffer_check(b);

	if (r == 0)
		r = get(b, false, name, ret);
	/* A record's fields are told in memory alone. */
	return r == -EAGAIN ? get(b, true, name, ret) : r;
}

int gpushm_array_at(struct gpushm_buffer *b, size_t index, struct gpushm_array **ret)
{
	const struct table_view *v;
	struct table_array t;
	int r = buffer_check(b);

	if (r == 0)
		r = buffer_table(b, true, &v);
	if (r < 0)
		return r;

	if (index >= table_view_arrays(v))
		r = error_set(ENOENT, "buffer \"%s\" has %u arrays, and none at %zu", b->name,
			      table_view_arrays(v), index);
	else if (table_view_at(v, (uint32_t)index, &t) < 0)
		r = malformed(b);
	else
		r = array_from_table(b, &t, ret);
	buffer_table_done(b);
	return r;
}

/* Judges a spec as DESCRIBE would, and fills in strides that were left out. */
static int check_spec(const struct gpushm_buffer *b, struct table_array *t)
{
	struct table_builder *judge;
	struct table_error err;
	int r = table_builder_new(b->bytes, &judge);

	if (r < 0)
		return error_set(-r, "no memory for an array");
	r = table_builder_add(judge, t, &err);
	table_builder_free(judge);
	if (r < 0)
		return spec_error(&err, 0);
	if (!t->has_strides)
		r = table_c_strides(t->dtype, t->ndim, t->shape, t->strides);
	return r < 0 ? error_set(ERANGE, "the array's strides overflow") : 0;
}

int gpushm_array_over(struct gpushm_buffer *b, const struct gpushm_array_spec *spec,
		      struct gpushm_array **ret)
{
	struct gpushm_array_spec nameless = *spec;
	struct table_array t;
	int r = buffer_check(b);

	if (r < 0)
		return r;
	nameless.name = NULL;
	r = spec_to_table(&nameless, &t);
	if (r < 0)
		return r;
	r = check_spec(b, &t);
	return r < 0 ? r : array_from_table(b, &t, ret);
}
