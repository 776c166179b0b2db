/* SPDX-License-Identifier: MIT
 *
 * A slot has the arrays of a frame one after the other, as gpushm_layout() lays them out, and is a
 * multiple of SLOT_ALIGN bytes, so that each slot's arrays are aligned as the first one's.
 */
#include "client/lib/stream/stream.h"

#include "client/lib/base/error.h"
#include "client/lib/base/spec.h"
#include "client/lib/buffer/image.h"
#include "proto/base/own.h"
#include "proto/table.h"

#include <string.h>

#define SLOT_ALIGN 256u

struct layout_numbers {
	int64_t shape[DIMENSIONS_MAX], strides[DIMENSIONS_MAX];
};

void layout_done(struct layout *l)
{
	free_ptr(&l->specs);
	free_ptr(&l->numbers);
}

static int refuse(const struct gpushm_array_spec *spec, int number, const char *why)
{
	return error_set(number, "array \"%s\": %s", spec->name ? spec->name : "", why);
}

static int add_slots(struct gpushm_array_spec *spec, struct layout_numbers *numbers, uint32_t slots,
		     uint64_t slot_bytes)
{
	struct table_array t;
	int r = spec_to_table(spec, &t);

	if (r < 0)
		return r;
	if (spec->ndim >= (int)DIMENSIONS_MAX)
		return refuse(spec, EINVAL, "a stream's slots need one of the 32 dimensions");
	if (dtype_packed(t.dtype))
		return refuse(spec, ENOTSUP,
			      "elements narrower than a byte have no slots: use uint8");
	if (!t.has_strides && table_c_strides(t.dtype, t.ndim, t.shape, t.strides) < 0)
		return refuse(spec, EOVERFLOW, "its shape has more than 2^63-1 bytes");
	numbers->shape[0] = slots;
	numbers->strides[0] = (int64_t)slot_bytes;
	for (int i = 0; i < spec->ndim; i++) {
		numbers->shape[i + 1] = spec->shape[i];
		numbers->strides[i + 1] = t.strides[i];
	}
	spec->ndim++;
	spec->shape = numbers->shape;
	spec->strides = numbers->strides;
	return 0;
}

static int measure(struct layout *l, uint32_t slots)
{
	int r = gpushm_layout(l->specs, l->n, &l->slot_bytes);

	if (r < 0)
		return r;
	if (__builtin_add_overflow(l->slot_bytes, SLOT_ALIGN - 1, &l->slot_bytes) ||
	    __builtin_mul_overflow(l->slot_bytes & ~(uint64_t)(SLOT_ALIGN - 1), slots, &l->bytes) ||
	    l->bytes > INT64_MAX)
		return error_set(EOVERFLOW, "%u slots have more than 2^63-1 bytes", slots);
	l->slot_bytes = l->bytes / slots;
	return 0;
}

static int fill(struct layout *l, const struct gpushm_array_spec *arrays, uint32_t slots)
{
	int r;

	for (size_t i = 0; i < l->n; i++) {
		l->specs[i] = spec_at(arrays, i);
		l->specs[i].struct_size = sizeof(*l->specs);
	}
	r = measure(l, slots);
	for (size_t i = 0; i < l->n && r == 0; i++)
		r = add_slots(&l->specs[i], &l->numbers[i], slots, l->slot_bytes);
	return r;
}

int layout_init(struct layout *l, const struct gpushm_array_spec *arrays, size_t n, uint32_t slots)
{
	int r = specs_check(arrays, n);

	*l = (struct layout){ .n = n };
	if (r < 0)
		return r;
	if (n == 0)
		return error_set(EINVAL, "a stream's frames need an array at least");
	l->specs = calloc(n, sizeof(*l->specs));
	l->numbers = calloc(n, sizeof(*l->numbers));
	r = l->specs && l->numbers ? fill(l, arrays, slots)
				   : error_set(ENOMEM, "out of memory for a stream");
	if (r < 0)
		layout_done(l);
	return r;
}

static void free_builder(struct table_builder **b)
{
	*b = table_builder_free(*b);
}

int layout_digest(const struct layout *l, uint64_t *ret)
{
	_cleanup_(free_builder) struct table_builder *b = NULL;
	_cleanup_(image_done) struct image image = IMAGE_NONE;

	if (table_builder_new(l->bytes, &b) < 0)
		return error_set(ENOMEM, "out of memory for a stream");
	for (size_t i = 0; i < l->n; i++) {
		struct fault err;
		struct table_array a;
		int r = spec_to_table(&l->specs[i], &a);

		if (r < 0)
			return r;
		r = table_builder_add(b, &a, &err);
		if (r < 0)
			return error_set(-r, "array %zu: %s", i, err.text);
	}
	return image_finish(b, l->bytes, &image, ret);
}
