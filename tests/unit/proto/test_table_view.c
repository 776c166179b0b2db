/* SPDX-License-Identifier: MIT
 *
 * Reading an image: a valid one gives back the arrays that were added, and a hostile one gives
 * -EBADMSG and no access outside of it. Each image lies in memory of exactly its size, so that the
 * address sanitizer and valgrind see a read of one byte too many.
 */
#include "proto/base/own.h"
#include "proto/table_image.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUFFER_BYTES 300000u

static unsigned char *image;
static size_t image_bytes;
static struct table_view view;
static int file; /* a file as long as the image, which tests write */

static const struct table_array samples[] = {
	{ .name = "", .dtype = { DTYPE_FLOAT, 32, 1, 0 } },
	{ .name = "w1",
	  .name_len = 2,
	  .dtype = { DTYPE_FLOAT, 32, 1, 0 },
	  .ndim = 2,
	  .shape = { 3, 5 },
	  .offset = 256 },
	{ .name = "layer/0/w",
	  .name_len = 9,
	  .dtype = { DTYPE_INT, 64, 1, 0 },
	  .ndim = 2,
	  .shape = { 3, 5 },
	  .has_strides = true,
	  .strides = { -40, 8 },
	  .offset = 800 },
	{ .name = "rec",
	  .name_len = 3,
	  .dtype = { DTYPE_RECORD, 0, 1, 12 },
	  .descr = "abc",
	  .descr_len = 3,
	  .ndim = 1,
	  .shape = { 7 },
	  .offset = 13 },
	{ .name = "packed",
	  .name_len = 6,
	  .dtype = { DTYPE_FLOAT4_E2M1FN, 4, 1, 0 },
	  .ndim = 2,
	  .shape = { 3, 3 },
	  .offset = 99995 },
	{ .name = "none",
	  .name_len = 4,
	  .dtype = { DTYPE_INT, 8, 1, 0 },
	  .ndim = 2,
	  .shape = { 0, 9 },
	  .offset = BUFFER_BYTES },
};

static void image_take(struct table_builder *b)
{
	_cleanup_(close_fd) int fd = -1;
	uint64_t bytes, digest;

	ck_assert_int_eq(table_builder_finish(b, &fd, &bytes, &digest), 0);
	image_bytes = bytes;
	image = malloc(bytes);
	ck_assert_int_eq(pread(fd, image, bytes, 0), (int)bytes);
	ck_assert_int_eq(table_view_init(&view, image, bytes, BUFFER_BYTES), 0);
	ck_assert_uint_eq(view.digest, digest);
}

static void setup(void)
{
	const struct table_attr attr = { "key", 3, "value", 5 };
	struct table_builder *b;
	struct fault err;

	fds_mark();
	ck_assert_int_eq(table_builder_new(BUFFER_BYTES, &b), 0);
	for (size_t i = 0; i < array_size(samples); i++)
		ck_assert_msg(table_builder_add(b, &samples[i], &err) == 0, "%s", err.text);
	ck_assert_int_eq(table_builder_set_attr(b, &attr, &err), 0);
	image_take(b);
	table_builder_free(b);
	file = memfd_create("table", MFD_CLOEXEC);
	ck_assert_int_ge(file, 0);
}

static void teardown(void)
{
	free_ptr(&image);
	close_fd(&file);
	fds_check();
}

static void same_array(const struct table_array *found, const struct table_array *added)
{
	int64_t strides[DIMENSIONS_MAX];

	ck_assert_uint_eq(found->name_len, added->name_len);
	ck_assert(memcmp(found->name, added->name, added->name_len) == 0);
	ck_assert_mem_eq(&found->dtype, &added->dtype, sizeof(found->dtype));
	ck_assert_uint_eq(found->descr_len, added->descr_len);
	ck_assert(found->descr_len > 0 ? memcmp(found->descr, added->descr, found->descr_len) == 0
				       : found->descr == NULL);
	ck_assert_uint_eq(found->ndim, added->ndim);
	ck_assert(memcmp(found->shape, added->shape, found->ndim * sizeof(uint64_t)) == 0);
	ck_assert(found->has_strides);
	table_c_strides(added->dtype, added->ndim, added->shape, strides);
	ck_assert(memcmp(found->strides, added->has_strides ? added->strides : strides,
			 found->ndim * sizeof(int64_t)) == 0);
	ck_assert_uint_eq(found->offset, added->offset);
}

START_TEST(each_array_is_read_as_it_was_added)
{
	struct table_array a;

	ck_assert_uint_eq(view.arrays, array_size(samples));
	for (size_t i = 0; i < array_size(samples); i++) {
		const struct table_array *s = &samples[i];

		ck_assert_int_eq(table_view_at(&view, i, &a), 0);
		same_array(&a, s);
		ck_assert_int_eq(table_view_find(&view, s->name, s->name_len, &a), 0);
		same_array(&a, s);
	}
	ck_assert_int_eq(table_view_at(&view, array_size(samples), &a), -ENOENT);
	ck_assert_int_eq(table_view_find(&view, "w", 1, &a), -ENOENT);
	ck_assert_int_eq(table_view_find(&view, "w1\0", 3, &a), -ENOENT);
}
END_TEST

START_TEST(each_of_many_arrays_is_found)
{
	struct table_array a = { .dtype = { DTYPE_UINT, 8, 1, 0 } };
	struct table_builder *b;
	struct fault err;
	char name[32];

	free_ptr(&image);
	ck_assert_int_eq(table_builder_new(BUFFER_BYTES, &b), 0);
	for (unsigned i = 0; i < ARRAYS_MAX; i++) {
		a.name = name;
		a.name_len = snprintf(name, sizeof(name), "layers/%u/weight", i);
		a.offset = i;
		ck_assert_msg(table_builder_add(b, &a, &err) == 0, "%s", err.text);
	}
	image_take(b);
	table_builder_free(b);
	for (unsigned i = 0; i < ARRAYS_MAX; i++) {
		int len = snprintf(name, sizeof(name), "layers/%u/weight", i);

		ck_assert_int_eq(table_view_find(&view, name, len, &a), 0);
		ck_assert_uint_eq(a.offset, i);
	}
	ck_assert_int_eq(table_view_find(&view, "layers/262144/weight", 20, &a), -ENOENT);
}
END_TEST

START_TEST(an_image_that_was_cut_or_grew_is_refused)
{
	for (size_t n = 0; n < image_bytes; n++) {
		struct table_view v;
		unsigned char *cut = malloc(n > 0 ? n : 1);

		memcpy(cut, image, n);
		ck_assert_int_eq(table_view_init(&v, cut, n, BUFFER_BYTES), -EBADMSG);
		free(cut);
	}
	image = realloc(image, image_bytes + 8);
	memset(image + image_bytes, 0, 8);
	ck_assert_int_eq(table_view_init(&view, image, image_bytes + 8, BUFFER_BYTES), -EBADMSG);
	ck_assert_int_eq(table_view_init(&view, image, image_bytes, BUFFER_BYTES + 1), -EBADMSG);
	ck_assert_int_eq(table_view_init(&view, image, image_bytes, BUFFER_BYTES - 1), -EBADMSG);
}
END_TEST

static bool inside(const void *p, size_t len)
{
	const unsigned char *c = p;

	return c >= image && len <= image_bytes && c <= image + image_bytes - len;
}

static void array_holds(const struct table_array *a)
{
	uint64_t before, bytes;

	ck_assert(a->descr_len == 0 || inside(a->descr, a->descr_len));
	ck_assert_uint_le(a->ndim, DIMENSIONS_MAX);
	ck_assert_int_eq(table_span(a, &before, &bytes), 0);
	ck_assert(before <= a->offset && bytes <= BUFFER_BYTES);
	ck_assert(a->offset - before <= BUFFER_BYTES - bytes);
}

/* Memory and file must give the same result. Returns 1 if both refuse the image. */
static int find(const struct table_view *v, const struct table_view *in_file,
		const struct table_array *sample)
{
	struct table_array a, b;
	int r = table_view_find(v, sample->name, sample->name_len, &a);
	int q = table_view_find(in_file, sample->name, sample->name_len, &b);

	ck_assert(q == r || q == -EAGAIN);
	if (r < 0)
		return 1;
	array_holds(&a);
	ck_assert_ptr_eq(a.name, sample->name);
	ck_assert((q == -EAGAIN) == (a.descr_len > 0));
	if (q == 0)
		same_array(&b, &a);
	return 0;
}

/* Reads everything in an image that may be hostile. Returns how many parts were refused. */
static int look(void)
{
	struct table_array a;
	struct table_attr attr;
	struct table_view v, in_file;
	int refused = 0;

	if (table_view_init(&v, image, image_bytes, BUFFER_BYTES) < 0)
		return 1;
	for (uint32_t i = 0; i < v.arrays && i < 100; i++) {
		int r = table_view_at(&v, i, &a);

		ck_assert(r == 0 || r == -EBADMSG);
		if (r == 0)
			array_holds(&a);
		ck_assert(r < 0 || inside(a.name, a.name_len));
		refused += r < 0;
	}
	ck_assert_int_eq(pwrite(file, image, image_bytes, 0), (int)image_bytes);
	ck_assert_int_eq(table_view_init_fd(&in_file, file, image_bytes, BUFFER_BYTES), 0);
	for (size_t i = 0; i < array_size(samples); i++)
		refused += find(&v, &in_file, &samples[i]);
	for (uint32_t i = 0; i < v.attrs; i++)
		if (table_view_attr_at(&v, i, &attr) == 0)
			ck_assert(inside(attr.key, attr.key_len) &&
				  inside(attr.value, attr.value_len));
		else
			refused++;
	return refused;
}

START_TEST(a_changed_byte_never_leads_outside)
{
	static const unsigned char values[] = { 0, 1, 0x7f, 0x80, 0xfe, 0xff };
	int refused = 0;

	ck_assert_int_eq(look(), 0);
	for (size_t i = 0; i < image_bytes; i++) {
		unsigned char was = image[i];

		for (size_t j = 0; j < array_size(values); j++) {
			image[i] = values[j];
			refused += look() > 0;
			image[i] = was ^ 1u << j;
			refused += look() > 0;
		}
		image[i] = was;
	}
	ck_assert_int_gt(refused, 1000);
}
END_TEST

/* Each u64 and u32 of the image in turn becomes one that arithmetic is likely to wrap at. */
START_TEST(a_changed_number_never_leads_outside)
{
	static const uint64_t values[] = { UINT64_MAX, UINT64_MAX - 7, 1ull << 63, UINT32_MAX,
					   1ull << 32, INT64_MAX,      33,	   ARRAYS_MAX };
	uint64_t was;

	for (size_t width = 4; width <= 8; width += 4)
		for (size_t i = 0; i + width <= image_bytes; i += width)
			for (size_t j = 0; j < array_size(values); j++) {
				memcpy(&was, image + i, width);
				memcpy(image + i, &values[j], width);
				look();
				memcpy(image + i, &was, width);
			}
	ck_assert_int_eq(look(), 0);
}
END_TEST

static struct table_header header(void)
{
	struct table_header h;

	memcpy(&h, image, sizeof(h));
	return h;
}

START_TEST(a_search_without_an_empty_bucket_ends)
{
	struct table_header h = header();
	struct table_array a;
	const uint32_t first = 1;

	for (uint32_t i = 0; i < h.slots; i++)
		memcpy(image + h.slots_at + i * sizeof(first), &first, sizeof(first));
	ck_assert_int_eq(table_view_find(&view, "nothing", 7, &a), -EBADMSG);
}
END_TEST

START_TEST(a_bucket_past_the_entries_is_refused)
{
	struct table_header h = header();
	struct table_array a;

	for (uint32_t i = 0; i < h.slots; i++) {
		uint32_t past = i % 2 ? h.arrays + 1 : UINT32_MAX;

		memcpy(image + h.slots_at + i * sizeof(past), &past, sizeof(past));
	}
	ck_assert_int_eq(table_view_find(&view, "w1", 2, &a), -EBADMSG);
	ck_assert_int_eq(table_view_find(&view, "x", 1, &a), -EBADMSG);
}
END_TEST

START_TEST(an_array_outside_the_buffer_is_refused)
{
	struct table_header h = header();
	struct table_array a;
	struct table_entry e;

	memcpy(&e, image + h.entries_at + sizeof(e), sizeof(e));
	e.offset = BUFFER_BYTES - 56;
	memcpy(image + h.entries_at + sizeof(e), &e, sizeof(e));
	ck_assert_int_eq(table_view_at(&view, 1, &a), -EBADMSG);
	ck_assert_int_eq(table_view_find(&view, "w1", 2, &a), -EBADMSG);
	e.offset = BUFFER_BYTES - 60;
	memcpy(image + h.entries_at + sizeof(e), &e, sizeof(e));
	ck_assert_int_eq(table_view_find(&view, "w1", 2, &a), 0);
}
END_TEST

START_TEST(more_dimensions_than_an_array_can_have_are_refused)
{
	struct table_header h = header();
	struct table_array a;
	struct table_entry e;

	memcpy(&e, image + h.entries_at, sizeof(e));
	/* As many as the image has bytes for. */
	e.ndim = image_bytes / (2 * sizeof(uint64_t));
	e.dims_at = 0;
	ck_assert_uint_gt(e.ndim, DIMENSIONS_MAX + 8);
	memcpy(image + h.entries_at, &e, sizeof(e));
	ck_assert_int_eq(table_view_at(&view, 0, &a), -EBADMSG);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("table_view");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, each_array_is_read_as_it_was_added);
	tcase_add_test(tc, each_of_many_arrays_is_found);
	tcase_add_test(tc, an_image_that_was_cut_or_grew_is_refused);
	tcase_add_test(tc, a_changed_byte_never_leads_outside);
	tcase_add_test(tc, a_changed_number_never_leads_outside);
	tcase_add_test(tc, a_search_without_an_empty_bucket_ends);
	tcase_add_test(tc, a_bucket_past_the_entries_is_refused);
	tcase_add_test(tc, an_array_outside_the_buffer_is_refused);
	tcase_add_test(tc, more_dimensions_than_an_array_can_have_are_refused);
	return suite_run("table_view", tc, NULL);
}
