/* SPDX-License-Identifier: MIT
 *
 * Building a table: which arrays the builder refuses and with which words, limits, and undoing.
 * test_table_image.c tests the finished memfd, test_table_view.c its readers.
 */
#include "proto/base/own.h"
#include "proto/name.h"
#include "proto/table_image.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define F32                           \
	{                             \
		DTYPE_FLOAT, 32, 1, 0 \
	}
#define U8                          \
	{                           \
		DTYPE_UINT, 8, 1, 0 \
	}
#define F64                           \
	{                             \
		DTYPE_FLOAT, 64, 1, 0 \
	}
#define F4                                   \
	{                                    \
		DTYPE_FLOAT4_E2M1FN, 4, 1, 0 \
	}
#define REC                            \
	{                              \
		DTYPE_RECORD, 0, 1, 12 \
	}
#define MAX64 UINT64_MAX
#define TOP63 ((uint64_t)INT64_MAX)

static struct table_builder *builder;
static struct fault err;

static void setup(void)
{
	fds_mark();
	ck_assert_int_eq(table_builder_new(6000, &builder), 0);
}

static void teardown(void)
{
	builder = table_builder_free(builder);
	fds_check();
}

static struct table_array named(const char *name)
{
	return (struct table_array){
		.name = name, .name_len = strlen(name), .dtype = F32, .ndim = 1, .shape = { 4 }
	};
}

static void add(const char *name)
{
	struct table_array a = named(name);

	ck_assert_msg(table_builder_add(builder, &a, &err) == 0, "%s", err.text);
}

/* Finishes the table and forgets the image. */
static uint64_t digest(void)
{
	_cleanup_(close_fd) int fd = -1;
	uint64_t bytes, ret;

	ck_assert_int_eq(table_builder_finish(builder, &fd, &bytes, &ret), 0);
	return ret;
}

struct offer {
	const char *text; /* of the refusal; NULL: the builder accepts the array */
	struct table_array array;
	int what;
};

#define A(...)                                           \
	{                                                \
		.name = "w1", .name_len = 2, __VA_ARGS__ \
	}
#define SHAPE(n, ...) .ndim = n, .shape = { __VA_ARGS__ }
#define STRIDES(...) .has_strides = true, .strides = { __VA_ARGS__ }

/* Into a buffer of 6,000 bytes. */
static const struct offer offers[] = {
	/* bounds */
	{ .array = A(.dtype = F32, SHAPE(1, 1500)) },
	{ .array = A(.dtype = F32, .offset = 5996) },
	{ .array = A(.dtype = F32, SHAPE(2, 30, 50)) },
	{ "array \"w1\": bytes 4096..8192 lie outside the buffer of 6000 bytes",
	  A(.dtype = F32, SHAPE(1, 1024), .offset = 4096), CODE_LAYOUT },
	{ "array \"w1\": bytes 0..6004 lie outside the buffer of 6000 bytes",
	  A(.dtype = F32, SHAPE(1, 1501)), CODE_LAYOUT },
	{ "array \"w1\": bytes 6000..6004 lie outside the buffer of 6000 bytes",
	  A(.dtype = F32, .offset = 6000), CODE_LAYOUT },
	{ "array \"w1\": bytes 18446744073709551612..18446744073709551615 lie outside the buffer "
	  "of 6000 bytes",
	  A(.dtype = F32, SHAPE(1, 2), .offset = MAX64 - 3), CODE_LAYOUT },
	/* arrays without elements touch no bytes, but have an offset */
	{ .array = A(.dtype = F32, SHAPE(2, 0, 1000000), .offset = 6000) },
	{ .array = A(.dtype = F32, SHAPE(2, 0, 5), STRIDES(-400000, 4), .offset = 0) },
	{ "array \"w1\": bytes 6004..6004 lie outside the buffer of 6000 bytes",
	  A(.dtype = F32, SHAPE(1, 0), .offset = 6004), CODE_LAYOUT },
	/* strides */
	{ .array = A(.dtype = F32, SHAPE(2, 2, 3), STRIDES(12, 4), .offset = 4) },
	{ .array = A(.dtype = F32, SHAPE(1, 1000000), STRIDES(0)) },
	{ .array = A(.dtype = F32, SHAPE(1, 1500), STRIDES(-4), .offset = 5996) },
	{ "array \"w1\": its strides reach 4 bytes before the buffer; give it an offset of at "
	  "least 5996",
	  A(.dtype = F32, SHAPE(1, 1500), STRIDES(-4), .offset = 5992), CODE_LAYOUT },
	{ "array \"w1\": bytes 4..6004 lie outside the buffer of 6000 bytes",
	  A(.dtype = F32, SHAPE(1, 1500), STRIDES(-4), .offset = 6000), CODE_LAYOUT },
	{ "array \"w1\": bytes 0..6004 lie outside the buffer of 6000 bytes",
	  A(.dtype = F32, SHAPE(2, 1501, 1), STRIDES(4, 4)), CODE_LAYOUT },
	{ "array \"w1\": its strides reach 9223372036854775808 bytes before the buffer; give it an "
	  "offset of at least 9223372036854775808",
	  A(.dtype = F32, SHAPE(1, 2), STRIDES(INT64_MIN)), CODE_LAYOUT },
	/* alignment */
	{ "array \"w1\": offset 4094 is no multiple of 4, as its dtype needs; 4096 is",
	  A(.dtype = F32, SHAPE(1, 2), .offset = 4094), CODE_LAYOUT },
	{ "array \"w1\": stride 6 is no multiple of 4, as its dtype needs; copy it to C order "
	  "first",
	  A(.dtype = F32, SHAPE(2, 2, 2), STRIDES(4, 6)), CODE_LAYOUT },
	{ "array \"w1\": stride -6 is no multiple of 4, as its dtype needs; copy it to C order "
	  "first",
	  A(.dtype = F32, SHAPE(1, 2), STRIDES(-6), .offset = 8), CODE_LAYOUT },
	{ .array = A(.dtype = U8, SHAPE(1, 7), STRIDES(3), .offset = 13) },
	/* a field of a NumPy record: the size of one component is the alignment */
	{ .array =
		  A(.dtype = { DTYPE_COMPLEX, 128, 1, 0 }, SHAPE(1, 7), STRIDES(24), .offset = 8) },
	{ "array \"w1\": offset 4 is no multiple of 8, as its dtype needs; 8 is",
	  A(.dtype = { DTYPE_COMPLEX, 128, 1, 0 }, SHAPE(1, 7), STRIDES(24), .offset = 4),
	  CODE_LAYOUT },
	{ .array = A(.dtype = REC, SHAPE(1, 7), STRIDES(13), .offset = 13) },
	/* overflow */
	{ "array \"w1\": its shape has more than 2^63-1 elements",
	  A(.dtype = F32, SHAPE(2, 1ull << 32, 1ull << 32)), CODE_LAYOUT },
	{ "array \"w1\": its shape has more than 2^63-1 elements",
	  A(.dtype = U8, SHAPE(1, 1ull << 63)), CODE_LAYOUT },
	{ "array \"w1\": its shape has more than 2^63-1 elements",
	  A(.dtype = U8, SHAPE(2, 0, MAX64)), CODE_LAYOUT },
	{ "array \"w1\": its shape has more than 2^63-1 bytes",
	  A(.dtype = F64, SHAPE(2, 4, 1ull << 60)), CODE_LAYOUT },
	{ "array \"w1\": its shape and strides span more than 2^64-1 bytes",
	  A(.dtype = F64, SHAPE(2, 1, TOP63), STRIDES(0, 8)), CODE_LAYOUT },
	{ "array \"w1\": its shape and strides span more than 2^64-1 bytes",
	  A(.dtype = F64, SHAPE(3, 2, 2, 3), STRIDES(INT64_MIN, 8, INT64_MIN)), CODE_LAYOUT },
	{ "array \"w1\": 33 dimensions; at most 32 are allowed", A(.dtype = F32, SHAPE(33, 1)),
	  CODE_LAYOUT },
	/* packed types */
	{ .array = A(.dtype = F4, SHAPE(1, 12000)) },
	{ .array = A(.dtype = F4, SHAPE(2, 3, 3), .offset = 5995) },
	{ "array \"w1\": bytes 5996..6001 lie outside the buffer of 6000 bytes",
	  A(.dtype = F4, SHAPE(2, 3, 3), .offset = 5996), CODE_LAYOUT },
	{ "array \"w1\": elements of less than a byte are packed in C order; leave the strides out",
	  A(.dtype = F4, SHAPE(1, 2), STRIDES(1)), CODE_LAYOUT },
	{ "array \"w1\": its shape and strides span more than 2^64-1 bytes",
	  A(.dtype = F4, SHAPE(1, TOP63)), CODE_LAYOUT },
	/* dtypes */
	{ "array \"w1\": there is no such dtype: code 3 of 32 bits and 1 lanes",
	  A(.dtype = { 3, 32, 1, 0 }), CODE_DTYPE },
	{ "array \"w1\": it has a descr, which is for records only",
	  A(.dtype = F32, .descr = "x", .descr_len = 1), CODE_DTYPE },
	{ "array \"w1\": its descr: it has a control character",
	  A(.dtype = REC, .descr = "x\0", .descr_len = 2), CODE_DTYPE },
	{ .array = A(.dtype = REC, .descr = "[('a', '<f4'), ('b', '<f8')]", .descr_len = 28) },
	{ .array = A(.dtype = REC) },
};

START_TEST(a_valid_array_is_accepted_and_an_invalid_one_refused)
{
	const struct offer *o = &offers[_i];
	int r = table_builder_add(builder, &o->array, &err);

	if (!o->text) {
		ck_assert_msg(r == 0, "%s", err.text);
		ck_assert_uint_eq(table_builder_arrays(builder), 1);
		return;
	}
	ck_assert_int_eq(r, -code_to_errno(o->what));
	ck_assert_str_eq(err.text, o->text);
	ck_assert_int_eq(err.code, o->what);
	ck_assert_uint_eq(table_builder_arrays(builder), 0);
	ck_assert_uint_eq(digest(), FNV1A_BASIS);
}
END_TEST

START_TEST(a_long_name_leaves_the_advice_in_the_text)
{
	char name[ARRAY_NAME_MAX];
	struct table_array a = { .name = name, .name_len = sizeof(name), .dtype = F32 };

	for (size_t i = 0; i < sizeof(name); i += 3)
		memcpy(name + i, "\xe6\xa8\xa1", 3);
	a.offset = MAX64 - 4;
	ck_assert_int_eq(table_builder_add(builder, &a, &err), -ERANGE);
	ck_assert_ptr_nonnull(strstr(err.text, "18446744073709551612 is"));
	ck_assert_ptr_null(name_check_text(err.text, strlen(err.text)));

	a.offset = 0;
	a.ndim = 1;
	a.shape[0] = 2;
	a.has_strides = true;
	a.strides[0] = INT64_MIN;
	ck_assert_int_eq(table_builder_add(builder, &a, &err), -ERANGE);
	ck_assert_ptr_nonnull(strstr(err.text, "at least 9223372036854775808"));
	ck_assert_uint_lt(strlen(err.text), sizeof(err.text) - 1);
}
END_TEST

START_TEST(a_bad_name_is_refused_and_not_repeated_in_the_text)
{
	struct table_array a = named("w\x1b[31m");

	ck_assert_int_eq(table_builder_add(builder, &a, &err), -EINVAL);
	ck_assert_int_eq(err.code, CODE_NAME);
	ck_assert_str_eq(err.text, "array \"?\": its name: it has a control character");
	a = named("");
	ck_assert_int_eq(table_builder_add(builder, &a, &err), 0);
}
END_TEST

START_TEST(a_descr_longer_than_allowed_is_refused)
{
	static char descr[DESCR_MAX + 1];
	struct table_array a = named("r");

	memset(descr, 'x', sizeof(descr));
	a.dtype = (struct dtype)REC;
	a.descr = descr;
	a.descr_len = sizeof(descr);
	ck_assert_int_eq(table_builder_add(builder, &a, &err), -EDQUOT);
	ck_assert_int_eq(err.code, CODE_LIMIT);
	a.descr_len--;
	ck_assert_int_eq(table_builder_add(builder, &a, &err), 0);
}
END_TEST

START_TEST(a_name_that_is_taken_is_refused)
{
	struct table_array a = named("w1");

	add("w1");
	add("w2");
	add("");
	ck_assert_int_eq(table_builder_add(builder, &a, &err), -EEXIST);
	ck_assert_int_eq(err.code, CODE_EXISTS);
	ck_assert_str_eq(err.text, "array \"w1\": the buffer has one of that name already");
	a.name_len = 0;
	ck_assert_int_eq(table_builder_add(builder, &a, &err), -EEXIST);
	ck_assert_uint_eq(table_builder_arrays(builder), 3);
}
END_TEST

START_TEST(truncating_leaves_no_array_behind)
{
	uint64_t three, after;
	char name[16];

	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "w%d", i);
		add(name);
	}
	three = digest();
	/* Enough that the hash and both vectors have grown. */
	for (int i = 3; i < 1000; i++) {
		snprintf(name, sizeof(name), "w%d", i);
		add(name);
	}
	table_builder_truncate(builder, 2000);
	ck_assert_uint_eq(table_builder_arrays(builder), 1000);
	table_builder_truncate(builder, 3);
	ck_assert_uint_eq(table_builder_arrays(builder), 3);
	after = digest();
	ck_assert_uint_eq(three, after);
	for (int i = 3; i < 1000; i++) {
		snprintf(name, sizeof(name), "w%d", i);
		add(name);
	}
	table_builder_truncate(builder, 0);
	ck_assert_uint_eq(digest(), FNV1A_BASIS);
	add("w0");
}
END_TEST

START_TEST(an_array_above_the_limit_is_refused)
{
	struct table_array a = named("one too many");
	char name[16];

	for (unsigned i = 0; i < ARRAYS_MAX; i++) {
		snprintf(name, sizeof(name), "%u", i);
		add(name);
	}
	ck_assert_int_eq(table_builder_add(builder, &a, &err), -EDQUOT);
	ck_assert_int_eq(err.code, CODE_LIMIT);
	ck_assert_uint_eq(table_builder_arrays(builder), ARRAYS_MAX);
}
END_TEST

START_TEST(descrs_stop_at_the_limit_of_a_table)
{
	static char descr[DESCR_MAX];
	struct table_array a = { .dtype = REC, .descr = descr, .descr_len = sizeof(descr) };
	uint64_t bytes, hash;
	int fd = -1, n = 0, r;
	char name[16];

	memset(descr, 'x', sizeof(descr));
	do {
		a.name = name;
		a.name_len = snprintf(name, sizeof(name), "%d", n++);
		r = table_builder_add(builder, &a, &err);
	} while (r == 0);
	ck_assert_int_eq(r, -EDQUOT);
	ck_assert_int_eq(err.code, CODE_LIMIT);
	ck_assert_int_eq(table_builder_finish(builder, &fd, &bytes, &hash), 0);
	close_fd(&fd);
	ck_assert_uint_le(bytes, TABLE_BYTES_MAX);
	ck_assert_uint_gt(bytes, TABLE_BYTES_MAX / 10 * 9);
}
END_TEST

/* All names hash to one bucket, in a table of up to 1,024 of them. */
START_TEST(colliding_names_are_limited_in_number)
{
	struct table_array a;
	char name[16];
	unsigned n = 0, added = 0;
	int r = 0;

	while (r == 0) {
		snprintf(name, sizeof(name), "%u", n++);
		if (fnv1a(FNV1A_BASIS, name, strlen(name)) % 1024 != 0)
			continue;
		a = named(name);
		r = table_builder_add(builder, &a, &err);
		added += r == 0;
	}
	ck_assert_int_eq(r, -EDQUOT);
	ck_assert_int_eq(err.code, CODE_LIMIT);
	ck_assert_uint_eq(added, TABLE_PROBES_MAX);
	/* The table still finds every other name. */
	add("w1");
}
END_TEST

START_TEST(an_added_array_is_a_copy)
{
	char name[] = "w1", descr[] = "abc", value[] = "v";
	struct table_array a = named(name);
	struct table_attr attr = { name, 2, value, 1 };
	uint64_t before;

	a.dtype = (struct dtype)REC;
	a.descr = descr;
	a.descr_len = 3;
	ck_assert_int_eq(table_builder_add(builder, &a, &err), 0);
	ck_assert_int_eq(table_builder_set_attr(builder, &attr, &err), 0);
	before = digest();
	memset(name, '?', 2);
	memset(descr, '?', 3);
	memset(&a, 0xff, sizeof(a));
	ck_assert_uint_eq(digest(), before);
}
END_TEST

/* ---- attributes ---- */

static struct table_attr attr(const char *key, const char *value)
{
	return (struct table_attr){ key, strlen(key), value, strlen(value) };
}

static int change(const struct table_attr *attrs, size_t n)
{
	struct table_builder *changed = NULL;
	int r = table_builder_change_attrs(builder, attrs, n, &changed, &err);

	if (r == 0)
		table_builder_swap_attrs(builder, changed);
	table_builder_free(changed);
	return r;
}

/* The attributes in the finished image are these, as "key=value ", in their order. */
static void expect_attrs(const char *wanted)
{
	_cleanup_(close_fd) int fd = -1;
	static unsigned char image[65536];
	char found[1024] = "";
	struct table_view v;
	struct table_attr a;
	uint64_t bytes, digest;

	ck_assert_int_eq(table_builder_finish(builder, &fd, &bytes, &digest), 0);
	ck_assert_int_eq(pread(fd, image, sizeof(image), 0), (ssize_t)bytes);
	ck_assert_int_eq(table_view_init(&v, image, bytes, 6000), 0);
	for (uint32_t i = 0; table_view_attr_at(&v, i, &a) == 0; i++)
		snprintf(found + strlen(found), sizeof(found) - strlen(found), "%.*s=%.*s ",
			 (int)a.key_len, a.key, (int)a.value_len, (const char *)a.value);
	ck_assert_str_eq(found, wanted);
	ck_assert_uint_eq(table_builder_attrs(builder), v.attrs);
}

START_TEST(a_change_sets_and_removes_attributes)
{
	const struct table_attr first[] = { attr("a", "1"), attr("b", "2"), attr("c", "3") };
	const struct table_attr second[] = { attr("b", ""), attr("c", "longer"), attr("never", ""),
					     attr("d", "4") };
	uint64_t empty = table_builder_bytes(builder);

	add("w");
	ck_assert_int_eq(change(first, 3), 0);
	expect_attrs("a=1 b=2 c=3 ");
	ck_assert_int_eq(change(second, 4), 0);
	expect_attrs("a=1 c=longer d=4 ");
	ck_assert_uint_eq(table_builder_arrays(builder), 1);
	for (const char *key = "acd"; *key; key++)
		ck_assert_int_eq(change(&(struct table_attr){ key, 1, "", 0 }, 1), 0);
	expect_attrs("");
	table_builder_truncate(builder, 0);
	ck_assert_uint_eq(table_builder_bytes(builder), empty);
}
END_TEST

START_TEST(a_refused_change_leaves_the_attributes_alone)
{
	static char large[ATTR_BYTES_MAX];
	const struct table_attr first = attr("a", "1");
	const struct table_attr bad[] = { attr("a", ""), attr("b", "2"), attr("", "3") };
	const struct table_attr removed[] = { attr("a", ""), attr("a\n", "") };
	const struct table_attr long_one[] = { attr("b", "2"), { "c", 1, large, sizeof(large) } };
	/* With the other one removed it fits. */
	const struct table_attr fits[] = { { "c", 1, large, sizeof(large) - 1 }, attr("a", "") };

	ck_assert_int_eq(change(&first, 1), 0);
	ck_assert_int_eq(change(bad, 3), -EINVAL);
	ck_assert_int_eq(change(removed, 2), -EINVAL);
	ck_assert_int_eq(change(long_one, 2), -EDQUOT);
	expect_attrs("a=1 ");
	memset(large, 'v', sizeof(large));
	ck_assert_int_eq(change(fits, 2), 0);
	ck_assert_uint_eq(table_builder_attrs(builder), 1);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("table");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, a_valid_array_is_accepted_and_an_invalid_one_refused, 0,
			    array_size(offers));
	tcase_add_test(tc, a_long_name_leaves_the_advice_in_the_text);
	tcase_add_test(tc, a_bad_name_is_refused_and_not_repeated_in_the_text);
	tcase_add_test(tc, a_descr_longer_than_allowed_is_refused);
	tcase_add_test(tc, a_name_that_is_taken_is_refused);
	tcase_add_test(tc, truncating_leaves_no_array_behind);
	tcase_add_test(tc, an_array_above_the_limit_is_refused);
	tcase_add_test(tc, descrs_stop_at_the_limit_of_a_table);
	tcase_add_test(tc, colliding_names_are_limited_in_number);
	tcase_add_test(tc, an_added_array_is_a_copy);
	tcase_add_test(tc, a_change_sets_and_removes_attributes);
	tcase_add_test(tc, a_refused_change_leaves_the_attributes_alone);
	return suite_run("table", tc, NULL);
}
