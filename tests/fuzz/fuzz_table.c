/* SPDX-License-Identifier: MIT
 *
 * Tables from both sides. An input whose first byte is even is an image, in which everything is
 * looked up; one whose first byte is odd is a script of a creator's descriptions. The arrays that a
 * reader then finds must be those that the builder accepted, and lie within the buffer.
 */
#include "proto/base/own.h"
#include "proto/table_image.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BUFFER_BYTES 65536u
#define ARRAYS 64u

#define require(x) ((x) ? (void)0 : abort())

/* ---- an image ---- */

/* name: the address where it must be; NULL: anywhere in the image. */
static void array_holds(const struct table_view *v, const struct table_array *a, const char *name)
{
	const unsigned char *told = (const unsigned char *)a->name;
	const unsigned char *descr = (const unsigned char *)a->descr;
	uint64_t before, bytes;

	require(name ? a->name == name
		     : told >= v->image && told + a->name_len <= v->image + v->bytes);
	require(a->descr_len == 0 ||
		(descr >= v->image && descr + a->descr_len <= v->image + v->bytes));
	require(a->ndim <= DIMENSIONS_MAX && a->has_strides && dtype_valid(a->dtype));
	require(table_span(a, &before, &bytes) == 0);
	require(before <= a->offset && bytes <= v->buffer_bytes);
	require(a->offset - before <= v->buffer_bytes - bytes);
}

static void look(const struct table_view *v)
{
	struct table_array a, found;
	struct table_attr attr;
	uint32_t n = v->arrays;
	const char *name = "w";

	for (uint32_t i = 0; i < n && i < 4096; i++) {
		if (table_view_at(v, i, &a) < 0)
			continue;
		array_holds(v, &a, NULL);
		if (table_view_find(v, a.name, a.name_len, &found) == 0)
			array_holds(v, &found, a.name);
	}
	require(table_view_at(v, n, &a) == -ENOENT);
	for (uint32_t i = 0; i < v->attrs; i++)
		if (table_view_attr_at(v, i, &attr) == 0)
			require((const unsigned char *)attr.value + attr.value_len <=
				v->image + v->bytes);
	if (table_view_find(v, name, 1, &a) == 0)
		array_holds(v, &a, name);
}

static void try_image(const uint8_t *data, size_t size)
{
	/* Memory of exactly this size, so that the sanitizer sees its end. */
	_cleanup_(free_ptr) unsigned char *image = malloc(size > 0 ? size : 1);
	struct table_view v;
	struct table_header h = { .buffer_bytes = BUFFER_BYTES };

	memcpy(image, data, size);
	if (size >= sizeof(h)) {
		/* Images with wrong sizes are refused at once: few inputs should test only that. */
		memcpy(&h, image, sizeof(h));
		h.image_bytes = size;
		memcpy(image, &h, sizeof(h));
	}
	if (table_view_init(&v, image, size, h.buffer_bytes) == 0)
		look(&v);
}

/* ---- a script ---- */

struct script {
	const uint8_t *at, *end;
	struct table_array added[ARRAYS]; /* what the builder must have */
	uint32_t n;
};

/* The next n bytes, or zeros at the end. */
static void take(struct script *s, void *ret, size_t n)
{
	size_t left = s->end - s->at;

	memset(ret, 0, n);
	memcpy(ret, s->at, n < left ? n : left);
	s->at += n < left ? n : left;
}

static uint8_t take_byte(struct script *s)
{
	uint8_t b;

	take(s, &b, 1);
	return b;
}

/* Mostly small, sometimes any. */
static uint64_t take_number(struct script *s)
{
	uint8_t b = take_byte(s);
	uint64_t n;

	if (b < 250)
		return b;
	take(s, &n, sizeof(n));
	return n;
}

/* Bytes of the input itself, which outlives the script. */
static const char *take_text(struct script *s, size_t *ret_len)
{
	size_t len = take_byte(s) % 8;
	const char *text = (const char *)s->at;
	size_t left = s->end - s->at;

	*ret_len = len < left ? len : left;
	s->at += *ret_len;
	return text;
}

static struct table_array take_array(struct script *s)
{
	static const struct dtype types[] = {
		{ DTYPE_FLOAT, 32, 1, 0 },    { DTYPE_UINT, 8, 1, 0 },
		{ DTYPE_COMPLEX, 128, 1, 0 }, { DTYPE_FLOAT4_E2M1FN, 4, 1, 0 },
		{ DTYPE_RECORD, 0, 1, 12 },   { DTYPE_FLOAT6_E2M3FN, 6, 1, 0 },
	};
	struct table_array a = { 0 };
	uint8_t type = take_byte(s);

	a.name = take_text(s, &a.name_len);
	if (type < 240)
		a.dtype = types[type % array_size(types)];
	else
		take(s, &a.dtype, sizeof(a.dtype));
	if (a.dtype.code == DTYPE_RECORD)
		a.descr = take_text(s, &a.descr_len);
	a.ndim = take_byte(s) % 5;
	a.has_strides = take_byte(s) % 2;
	for (uint32_t i = 0; i < a.ndim; i++) {
		a.shape[i] = take_number(s);
		a.strides[i] = (int64_t)(take_number(s) - 100);
	}
	a.offset = take_number(s);
	return a;
}

static void same_array(const struct table_array *told, const struct table_array *added)
{
	int64_t strides[DIMENSIONS_MAX];

	require(table_c_strides(added->dtype, added->ndim, added->shape, strides) == 0 ||
		added->has_strides);
	require(told->name_len == added->name_len && told->descr_len == added->descr_len);
	require(told->name_len == 0 || memcmp(told->name, added->name, told->name_len) == 0);
	require(told->descr_len == 0 || memcmp(told->descr, added->descr, told->descr_len) == 0);
	require(memcmp(&told->dtype, &added->dtype, sizeof(told->dtype)) == 0);
	require(told->ndim == added->ndim && told->offset == added->offset);
	require(memcmp(told->shape, added->shape, told->ndim * sizeof(uint64_t)) == 0);
	require(memcmp(told->strides, added->has_strides ? added->strides : strides,
		       told->ndim * sizeof(int64_t)) == 0);
}

static void play(struct script *s, struct table_builder *b)
{
	struct fault err;

	while (s->at < s->end) {
		uint8_t op = take_byte(s);

		if (op < 16) {
			s->n = s->n < op ? s->n : op;
			table_builder_truncate(b, op);
		} else if (op < 32) {
			struct table_attr attr;

			attr.key = take_text(s, &attr.key_len);
			attr.value = take_text(s, &attr.value_len);
			table_builder_set_attr(b, &attr, &err);
		} else if (s->n < ARRAYS) {
			struct table_array a = take_array(s);

			if (table_builder_add(b, &a, &err) == 0)
				s->added[s->n++] = a;
			else
				require(err.text[0] && strlen(err.text) < sizeof(err.text));
		}
		require(table_builder_arrays(b) == s->n);
	}
}

static void read_back(const struct script *s, struct table_builder *b)
{
	_cleanup_(free_ptr) unsigned char *image = NULL;
	_cleanup_(close_fd) int fd = -1;
	uint64_t bytes, digest;
	struct table_array a;
	struct table_view v;

	require(table_builder_finish(b, &fd, &bytes, &digest) == 0);
	image = malloc(bytes);
	require(pread(fd, image, bytes, 0) == (ssize_t)bytes);
	require(table_view_init(&v, image, bytes, BUFFER_BYTES) == 0);
	require(v.arrays == s->n && v.digest == digest);
	for (uint32_t i = 0; i < s->n; i++) {
		require(table_view_at(&v, i, &a) == 0);
		same_array(&a, &s->added[i]);
		array_holds(&v, &a, NULL);
		require(table_view_find(&v, s->added[i].name, s->added[i].name_len, &a) == 0);
		same_array(&a, &s->added[i]);
	}
}

static void try_script(const uint8_t *data, size_t size)
{
	struct script s = { .at = data, .end = data + size };
	struct table_builder *b;

	require(table_builder_new(BUFFER_BYTES, &b) == 0);
	play(&s, b);
	read_back(&s, b);
	table_builder_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] % 2 == 0)
		try_image(data + 1, size - 1);
	else
		try_script(data + 1, size - 1);
	return 0;
}
