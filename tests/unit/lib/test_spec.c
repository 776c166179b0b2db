/* SPDX-License-Identifier: MIT
 *
 * What the library checks without the daemon: array specs and layouts, options of another version
 * of the header, dtypes, and the error that each thread keeps.
 */
#include "client/lib/base/error.h"
#include "client/lib/base/spec.h"
#include "client/lib/buffer/buffer.h"

#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <pthread.h>
#include <string.h>

static const struct gpushm_dtype float32 = { .code = 2, .bits = 32, .lanes = 1 };
static const struct gpushm_dtype float4 = { .code = DTYPE_FLOAT4_E2M1FN, .bits = 4, .lanes = 1 };

static void says(const char *words)
{
	ck_assert_msg(strstr(gpushm_error(), words), "\"%s\" is not in \"%s\"", words,
		      gpushm_error());
}

static struct gpushm_array_spec spec_of(int ndim, const int64_t *shape)
{
	return (struct gpushm_array_spec){ .struct_size = sizeof(struct gpushm_array_spec),
					   .name = "it",
					   .dtype = float32,
					   .ndim = ndim,
					   .shape = shape };
}

START_TEST(a_layout_aligns_arrays_without_overlap)
{
	const int64_t a[] = { 3, 5 }, none[] = { 0, 7 }, seven[] = { 7 };
	struct gpushm_array_spec specs[] = { spec_of(2, a), spec_of(2, none), spec_of(0, NULL),
					     spec_of(1, seven), spec_of(1, seven) };
	uint64_t n = 0;

	specs[3].dtype = float4; /* 7 * 4 bits: 4 bytes */
	ck_assert_msg(gpushm_layout(specs, array_size(specs), &n) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(specs[0].offset, 0);
	ck_assert_uint_eq(specs[1].offset, 256);
	ck_assert_uint_eq(specs[2].offset, 256);
	ck_assert_uint_eq(specs[3].offset, 512);
	ck_assert_uint_eq(specs[4].offset, 768);
	ck_assert_uint_eq(n, 768 + 28);
}
END_TEST

START_TEST(an_array_with_negative_strides_lies_within_its_buffer)
{
	const int64_t shape[] = { 4 }, strides[] = { -4 };
	struct gpushm_array_spec specs[] = { spec_of(1, shape), spec_of(1, shape) };
	uint64_t n = 0;

	specs[1].strides = strides;
	ck_assert_int_eq(gpushm_layout(specs, 2, &n), 0);
	ck_assert_uint_eq(specs[1].offset, 256 + 12);
	ck_assert_uint_eq(n, 256 + 16);
}
END_TEST

START_TEST(a_layout_without_arrays_has_one_byte)
{
	uint64_t n = 0;

	ck_assert_int_eq(gpushm_layout(NULL, 0, &n), 0);
	ck_assert_uint_eq(n, 1);
}
END_TEST

START_TEST(a_layout_that_overflows_is_refused)
{
	const int64_t huge[] = { INT64_MAX / 4, 3 }, most[] = { INT64_MAX / 4 - 100 };
	const int64_t half[] = { INT64_MAX / 4 }, one[] = { 1 };
	struct gpushm_array_spec specs[] = { spec_of(1, most), spec_of(1, most), spec_of(1, most) };
	uint64_t n = 7;

	ck_assert_int_eq(gpushm_layout(specs, 3, &n), -EOVERFLOW);
	specs[0] = spec_of(2, huge);
	ck_assert_int_eq(gpushm_layout(specs, 1, &n), -EOVERFLOW);
	ck_assert_uint_eq(n, 7);
	/* After two of 2^63 - 4 bytes, 4 bytes are left, which are not on a multiple of 256. */
	specs[0] = specs[1] = spec_of(1, half);
	specs[2] = spec_of(1, one);
	ck_assert_int_eq(gpushm_layout(specs, 3, &n), -EOVERFLOW);
	ck_assert_uint_eq(n, 7);
}
END_TEST

START_TEST(an_invalid_spec_is_refused)
{
	const int64_t negative[] = { 2, -1 }, two[] = { 2 };
	struct gpushm_array_spec s = spec_of(2, negative);
	char name[ARRAY_NAME_MAX + 2];
	uint64_t n;

	ck_assert_int_eq(gpushm_layout(&s, 1, &n), -EINVAL);
	says("axis 1");
	s = spec_of(33, two);
	ck_assert_int_eq(gpushm_layout(&s, 1, &n), -EINVAL);
	s = spec_of(-1, two);
	ck_assert_int_eq(gpushm_layout(&s, 1, &n), -EINVAL);
	s = spec_of(1, NULL);
	ck_assert_int_eq(gpushm_layout(&s, 1, &n), -EINVAL);
	s = spec_of(1, two);
	s.dtype.bits = 33;
	ck_assert_int_eq(gpushm_layout(&s, 1, &n), -EINVAL);
	says("dtype");
	memset(name, 'x', sizeof(name));
	name[ARRAY_NAME_MAX + 1] = '\0';
	s = spec_of(1, two);
	s.name = name;
	ck_assert_int_eq(gpushm_layout(&s, 1, &n), -EINVAL);
	says("255");
}
END_TEST

START_TEST(names_of_dtypes_are_parsed_and_formatted)
{
	struct gpushm_dtype t;
	char name[32];

	ck_assert_int_eq(gpushm_dtype_parse("bfloat16", &t), 0);
	ck_assert_uint_eq(gpushm_dtype_bits(t), 16);
	ck_assert_int_eq(gpushm_dtype_typestr(t, name, sizeof(name)), 0);
	ck_assert_str_eq(name, "<V2");
	ck_assert_int_eq(gpushm_dtype_parse("<f4", &t), 0);
	ck_assert_int_eq(gpushm_dtype_format(t, name, sizeof(name)), 0);
	ck_assert_str_eq(name, "float32");
	ck_assert_int_eq(gpushm_dtype_parse("float33", &t), -EINVAL);
	says("\"float33\"");
	ck_assert_int_eq(gpushm_dtype_parse(NULL, &t), -EINVAL);
	ck_assert_int_eq(gpushm_dtype_typestr(float4, name, sizeof(name)), -ENOTSUP);
	says("float4_e2m1fn");
	t.bits = 0;
	ck_assert_int_eq(gpushm_dtype_format(t, name, sizeof(name)), -EINVAL);
	ck_assert_uint_eq(gpushm_dtype_bits(t), 0);
}
END_TEST

/* ---- options ---- */

START_TEST(options_of_an_older_header_are_read_to_their_end)
{
	struct gpushm_create_options from, o;

	memset(&from, 0xff, sizeof(from));
	from.struct_size = offsetof(struct gpushm_create_options, mode);
	from.pool = "p";
	ck_assert_msg(buffer_create_options(&from, &o) == 0, "%s", gpushm_error());
	ck_assert_str_eq(o.pool, "p");
	ck_assert_uint_eq(o.mode, 0);
	ck_assert_int_eq(o.device, GPUSHM_OWN_DEVICE);
	ck_assert_int_eq(buffer_create_options(NULL, &o), 0);
	ck_assert_ptr_null(o.pool);
	ck_assert_int_eq(o.device, GPUSHM_OWN_DEVICE);
}
END_TEST

START_TEST(options_of_a_newer_header_are_refused_only_if_set)
{
	struct {
		struct gpushm_create_options known;
		uint64_t later;
	} from = { .known = { .struct_size = sizeof(from), .pool = "p" } };
	struct gpushm_create_options o;

	ck_assert_msg(buffer_create_options(&from.known, &o) == 0, "%s", gpushm_error());
	ck_assert_str_eq(o.pool, "p");
	from.later = 1ull << 63;
	ck_assert_int_eq(buffer_create_options(&from.known, &o), -EINVAL);
	says("newer");
}
END_TEST

START_TEST(unknown_options_are_refused)
{
	struct gpushm_create_options from = { .struct_size = sizeof(from) }, o;

	from.struct_size = 0;
	ck_assert_int_eq(buffer_create_options(&from, &o), -EINVAL);
	says("struct_size");
	from.struct_size = SIZE_MAX;
	ck_assert_int_eq(buffer_create_options(&from, &o), -EINVAL);
	says("newer");
	from.struct_size = sizeof(from);
	from.flags = 1u << 20;
	ck_assert_int_eq(buffer_create_options(&from, &o), -EINVAL);
	says("0x100000");
	from.flags = 0;
	from.n_attrs = 1;
	ck_assert_int_eq(buffer_create_options(&from, &o), -EINVAL);
	from.n_attrs = 0;
	from.device = 1;
	ck_assert_int_eq(buffer_create_options(&from, &o), -EINVAL);
	from.flags = GPUSHM_SET_DEVICE;
	ck_assert_int_eq(buffer_create_options(&from, &o), 0);
	ck_assert_int_eq(o.device, 1);
	from.device = GPUSHM_CURRENT_DEVICE;
	ck_assert_int_eq(buffer_create_options(&from, &o), 0);
	from.device = GPUSHM_CURRENT_DEVICE - 1;
	ck_assert_int_eq(buffer_create_options(&from, &o), -EINVAL);
	from.device = 0;
	from.flags = GPUSHM_COPY_ON_WRITE;
	ck_assert_int_eq(buffer_create_options(&from, &o), -EINVAL);
	says("another function");
}
END_TEST

/* ---- errors ---- */

static void *fail_elsewhere(void *arg)
{
	const char *before = gpushm_error();

	if (*before)
		return (void *)"it begins with another thread's error";
	error_set(EINVAL, "elsewhere");
	return NULL;
}

START_TEST(each_thread_has_its_own_error)
{
	pthread_t thread;
	void *wrong;

	ck_assert_int_eq(error_set(ENOENT, "here, %d", 5), -ENOENT);
	ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
	pthread_join(thread, &wrong);
	ck_assert_msg(!wrong, "%s", (char *)wrong);
	ck_assert_str_eq(gpushm_error(), "here, 5");
	ck_assert_int_eq(error_set_about(EIO, "buffer", "b"), -EIO);
	ck_assert_str_eq(gpushm_error(), "buffer \"b\": here, 5");
}
END_TEST

START_TEST(a_long_error_is_cut_to_its_buffer)
{
	static char text[4096];

	memset(text, 'x', sizeof(text) - 1);
	error_set(EIO, "%s", text);
	ck_assert_uint_eq(strlen(gpushm_error()), ERROR_TEXT_MAX - 1);
	error_set_remote(5, text, sizeof(text));
	ck_assert_uint_eq(strlen(gpushm_error()), ERROR_TEXT_MAX - 1);
	error_set_about(EIO, "buffer", "b");
	ck_assert_str_eq(gpushm_error_code(), "NOT_FOUND");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("spec");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, a_layout_aligns_arrays_without_overlap);
	tcase_add_test(tc, an_array_with_negative_strides_lies_within_its_buffer);
	tcase_add_test(tc, a_layout_without_arrays_has_one_byte);
	tcase_add_test(tc, a_layout_that_overflows_is_refused);
	tcase_add_test(tc, an_invalid_spec_is_refused);
	tcase_add_test(tc, names_of_dtypes_are_parsed_and_formatted);
	tcase_add_test(tc, options_of_an_older_header_are_read_to_their_end);
	tcase_add_test(tc, unknown_options_are_refused);
	tcase_add_test(tc, options_of_a_newer_header_are_refused_only_if_set);
	tcase_add_test(tc, each_thread_has_its_own_error);
	tcase_add_test(tc, a_long_error_is_cut_to_its_buffer);
	return suite_run("spec", tc, NULL);
}
