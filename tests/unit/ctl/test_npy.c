/* SPDX-License-Identifier: MIT
 *
 * Headers of .npy files: valid ones, malformed ones, and writing. The headers here are as
 * numpy.save() writes them (numpy/lib/format.py), except for the padding, which the parser ignores.
 */
#include "client/ctl/npy.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static char file[NPY_HEADER_MAX + 64];

/* Makes a header of that version from the dict. Returns its length. */
static size_t wrap(int major, const char *dict, size_t dict_len)
{
	size_t prelude = major == 1 ? 10 : 12, len = dict_len + 1;

	memcpy(file, "\x93NUMPY", 6);
	file[6] = (char)major;
	file[7] = 0;
	for (size_t i = 8, v = len; i < prelude; i++, v >>= 8)
		file[i] = (char)(v & 0xff);
	memcpy(file + prelude, dict, dict_len);
	file[prelude + dict_len] = '\n';
	return prelude + len;
}

/* Parses a copy of exactly the header's size, so that valgrind and ASan find a read past its end.
 */
static int parse(int major, const char *dict, struct npy *ret)
{
	size_t len = wrap(major, dict, strlen(dict));
	_cleanup_(free_ptr) char *copy = malloc(len);
	struct npy_error err = { "" };
	int r;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, file, len);
	r = npy_parse(copy, len, ret, &err);
	ck_assert_int_eq(r < 0, err.text[0] != '\0');
	return r;
}

static const struct {
	const char *descr, *dtype;
} plain[] = {
	{ "'|b1'", "bool" },	  { "'|i1'", "int8" },	      { "'<i2'", "int16" },
	{ "'<i4'", "int32" },	  { "'<i8'", "int64" },	      { "'|u1'", "uint8" },
	{ "'<u2'", "uint16" },	  { "'<u4'", "uint32" },      { "'<u8'", "uint64" },
	{ "'<f2'", "float16" },	  { "'<f4'", "float32" },     { "'<f8'", "float64" },
	{ "'<c8'", "complex64" }, { "'<c16'", "complex128" }, { "'<V2'", "bfloat16" },
};

START_TEST(numpy_dtypes_are_read_correctly)
{
	char dict[128], name[32];
	struct npy npy;

	snprintf(dict, sizeof(dict), "{'descr': %s, 'fortran_order': False, 'shape': (3, 5), }",
		 plain[_i].descr);
	ck_assert_int_eq(parse(1, dict, &npy), 0);
	dtype_format(npy.dtype, name, sizeof(name));
	ck_assert_str_eq(name, plain[_i].dtype);
	ck_assert_str_eq(npy.descr, "");
	ck_assert_uint_eq(npy.ndim, 2);
	ck_assert_int_eq(npy.shape[0], 3);
	ck_assert_int_eq(npy.shape[1], 5);
	ck_assert_uint_eq(npy.bytes, 15 * dtype_bits(npy.dtype) / 8);
	ck_assert(!npy.fortran);
}
END_TEST

static const struct {
	const char *descr;
	uint32_t itemsize;
} records[] = {
	{ "[('x', '<f4'), ('y', '<i8')]", 12 },
	{ "[('x', '<f4', (2, 3)), ('', '|V8')]", 32 },
	{ "[('x', '|u1', 5),]", 5 },
	{ "[(('a title', 'x'), '<f4'), ('in', [('a', '<u2'), ('b', '>u2', (4,))])]", 14 },
	{ "[('quote\\'s ]', '<M8[ns]'), (\"it's\", '<U3'), ('s', '|S7')]", 27 },
	{ "'|S10'", 10 },
	{ "'<U4'", 16 },
	{ "'<M8[us]'", 8 },
	{ "'<f16'", 16 },
	{ "[('a', [('b', [('c', [('d', [('e', [('f', [('g', '<i4')])])])])])])]", 4 },
};

START_TEST(a_record_keeps_its_size_and_its_descr)
{
	char dict[256];
	struct npy npy;

	snprintf(dict, sizeof(dict), "{'descr': %s, 'fortran_order': False, 'shape': (2,)}",
		 records[_i].descr);
	ck_assert_int_eq(parse(1, dict, &npy), 0);
	ck_assert_int_eq(npy.dtype.code, DTYPE_RECORD);
	ck_assert_uint_eq(npy.dtype.itemsize, records[_i].itemsize);
	ck_assert_str_eq(npy.descr, records[_i].descr);
	ck_assert_uint_eq(npy.bytes, 2 * records[_i].itemsize);
}
END_TEST

START_TEST(void_elements_become_a_record_without_a_descr)
{
	struct npy npy;

	ck_assert_int_eq(parse(1, "{'descr': '|V40', 'fortran_order': False, 'shape': ()}", &npy),
			 0);
	ck_assert_uint_eq(npy.dtype.itemsize, 40);
	ck_assert_str_eq(npy.descr, "");
	ck_assert_uint_eq(npy.ndim, 0);
	ck_assert_uint_eq(npy.bytes, 40);
}
END_TEST

static const struct {
	const char *dict;
	int error;
} bad[] = {
	{ "", -EINVAL },
	{ "[]", -EINVAL },
	{ "{}", -EINVAL },
	{ "{'descr': '<f4', 'fortran_order': False}", -EINVAL },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", -EINVAL },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", -EINVAL },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'shape': (3,)}", -EINVAL },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", -EINVAL },
	{ "{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}", -EINVAL },
	{ "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}", -EINVAL },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", -EINVAL },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}", -EINVAL },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", -EINVAL },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}", -EINVAL },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2,", -EINVAL },
	{ "{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}", -EINVAL },
	{ "{'descr': '', 'fortran_order': False, 'shape': (2,)}", -EINVAL },
	{ "{'descr': '<f', 'fortran_order': False, 'shape': (2,)}", -EINVAL },
	{ "{'descr': '<f4x', 'fortran_order': False, 'shape': (2,)}", -EINVAL },
	{ "{'descr': '|S0', 'fortran_order': False, 'shape': (2,)}", -EINVAL },
	{ "{'descr': [], 'fortran_order': False, 'shape': (2,)}", -EINVAL },
	{ "{'descr': [('x')], 'fortran_order': False, 'shape': (2,)}", -EINVAL },
	{ "{'descr': [('x', '<f4'], 'fortran_order': False, 'shape': (2,)}", -EINVAL },
	{ "{'descr': [('x', '<f4') ('y', '<f4')], 'fortran_order': False, 'shape': (2,)}",
	  -EINVAL },
	{ "{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", -ENOTSUP },
	{ "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", -ENOTSUP },
	{ "{'descr': [('x', '|O')], 'fortran_order': False, 'shape': (2,)}", -ENOTSUP },
	{ "{'descr': '<q8', 'fortran_order': False, 'shape': (2,)}", -ENOTSUP },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
	  "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
	  -ENOTSUP },
	{ "{'descr': [('a', [('b', [('c', [('d', [('e', [('f', [('g', [('h', [('i', '<i4')])])])])"
	  "])])])])], 'fortran_order': False, 'shape': (2,)}",
	  -ENOTSUP },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}", -EOVERFLOW },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 2147483648)}",
	  -EOVERFLOW },
	{ "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}",
	  -EOVERFLOW },
	{ "{'descr': [('x', '|u1', (65536, 65536))], 'fortran_order': False, 'shape': (2,)}",
	  -EOVERFLOW },
	{ "{'descr': [('x', '|S4294967295'), ('y', '|u1')], 'fortran_order': False, 'shape': (2,)}",
	  -EOVERFLOW },
};

START_TEST(an_invalid_header_is_refused)
{
	struct npy npy;

	ck_assert_msg(parse(1, bad[_i].dict, &npy) == bad[_i].error, "%s: not %s", bad[_i].dict,
		      strerror(-bad[_i].error));
}
END_TEST

START_TEST(a_header_that_is_cut_is_refused)
{
	static const char dict[] = "{'descr': [('x', '<f4', (2,)), (('t', 'y'), '|S3')], "
				   "'fortran_order': True, 'shape': (3, 4), }";
	struct npy npy;

	for (size_t n = 0; n < sizeof(dict) - 1; n++) {
		char cut[sizeof(dict)] = "";

		memcpy(cut, dict, n);
		ck_assert_int_lt(parse(1, cut, &npy), 0);
	}
	ck_assert_int_eq(parse(1, dict, &npy), 0);
	ck_assert(npy.fortran);
}
END_TEST

START_TEST(a_prelude_of_another_format_or_version_is_refused)
{
	struct npy_error err;
	size_t len;

	wrap(1, "", 0);
	ck_assert_int_eq(npy_header_size("PK\x03\x04 a zip file", &len, &err), -EINVAL);
	ck_assert_int_eq(npy_header_size(file, &len, &err), -EINVAL); /* empty */
	file[6] = 4;
	ck_assert_int_eq(npy_header_size(file, &len, &err), -ENOTSUP);
	file[6] = 0;
	ck_assert_int_eq(npy_header_size(file, &len, &err), -ENOTSUP);
	memcpy(file, "\x93NUMPY\x02\x00\xff\xff\xff\xff", 12);
	ck_assert_int_eq(npy_header_size(file, &len, &err), -EFBIG);
	memcpy(file, "\x93NUMPY\x01\x00\x76\x00", 10);
	ck_assert_int_eq(npy_header_size(file, &len, &err), 0);
	ck_assert_uint_eq(len, 128);
}
END_TEST

START_TEST(a_descr_above_what_a_buffer_holds_is_refused)
{
	_cleanup_(free_ptr) char *dict = malloc(3 * DESCR_MAX);
	struct npy npy;
	int n;

	ck_assert_ptr_nonnull(dict);
	for (int pad = (int)DESCR_MAX - 20; pad < (int)DESCR_MAX + 20; pad++) {
		n = snprintf(dict, 3 * DESCR_MAX, "{'descr': [('%0*d', '<f4')], ", pad, 0);
		snprintf(dict + n, 3 * DESCR_MAX - (size_t)n,
			 "'fortran_order': False, 'shape': (2,)}");
		/* "[('", "', '<f4')]" */
		ck_assert_int_eq(parse(1, dict, &npy), pad + 13 <= (int)DESCR_MAX ? 0 : -ENOTSUP);
	}
}
END_TEST

START_TEST(a_latin_1_name_is_converted_to_utf_8)
{
	static const char text[] = "{'descr': [('%s', '<f4')], 'fortran_order': False, "
				   "'shape': (2,)}";
	char dict[128];
	struct npy npy;

	snprintf(dict, sizeof(dict), text, "\xe9");
	ck_assert_int_eq(parse(1, dict, &npy), 0);
	ck_assert_str_eq(npy.descr, "[('\xc3\xa9', '<f4')]");
	ck_assert_int_eq(parse(3, dict, &npy), -EINVAL);
	snprintf(dict, sizeof(dict), text, "\xc3\xa9");
	ck_assert_int_eq(parse(3, dict, &npy), 0);
	ck_assert_str_eq(npy.descr, "[('\xc3\xa9', '<f4')]");
}
END_TEST

/* An array must be the same after writing and reading. */
static void round_trip(const struct npy *in, const char *expected)
{
	_cleanup_(free_ptr) char *header = NULL;
	struct npy_error err;
	struct npy out;
	size_t len, announced;

	ck_assert_int_eq(npy_format(in, &header, &len), 0);
	ck_assert_uint_eq(len % 64, 0);
	ck_assert_int_eq(header[len - 1], '\n');
	ck_assert_int_eq(npy_header_size(header, &announced, &err), 0);
	ck_assert_uint_eq(announced, len);
	ck_assert_int_eq(npy_parse(header, len, &out, &err), 0);
	if (expected)
		ck_assert_ptr_nonnull(memmem(header, len, expected, strlen(expected)));
	ck_assert_mem_eq(&in->dtype, &out.dtype, sizeof(in->dtype));
	ck_assert_str_eq(in->descr, out.descr);
	ck_assert_int_eq(in->fortran, out.fortran);
	ck_assert_uint_eq(in->ndim, out.ndim);
	ck_assert_mem_eq(in->shape, out.shape, in->ndim * sizeof(in->shape[0]));
}

START_TEST(a_header_that_we_write_reads_the_same)
{
	struct npy npy = { .ndim = 2, .shape = { 3, 0 }, .fortran = true };
	struct npy wide = { .ndim = DIMENSIONS_MAX };

	for (size_t i = 0; i < array_size(plain); i++) {
		ck_assert_int_eq(dtype_parse(plain[i].dtype, &npy.dtype), 0);
		round_trip(&npy, plain[i].descr);
	}
	npy.ndim = 1;
	round_trip(&npy, "(3,)");
	npy.ndim = 0;
	round_trip(&npy, "()");
	for (size_t i = 0; i < array_size(records); i++) {
		npy.dtype = (struct dtype){ DTYPE_RECORD, 0, 1, records[i].itemsize };
		snprintf(npy.descr, sizeof(npy.descr), "%s", records[i].descr);
		round_trip(&npy, records[i].descr);
	}
	ck_assert_int_eq(dtype_parse("uint8", &wide.dtype), 0);
	for (size_t i = 0; i < DIMENSIONS_MAX; i++)
		wide.shape[i] = i ? 1 : INT64_MAX;
	round_trip(&wide, "(9223372036854775807, 1");
}
END_TEST

START_TEST(an_invalid_descr_is_written_as_void_elements)
{
	static const char *const lies[] = { "[('x', '<f4')]", "__import__('os')",
					    "'|V8', 'more': 1", "[('x', '<f8')] ", "'<f8'\n" };
	struct npy npy = { .dtype = { DTYPE_RECORD, 0, 1, 8 } };
	size_t len;

	for (size_t i = 0; i < array_size(lies); i++) {
		_cleanup_(free_ptr) char *header = NULL;

		snprintf(npy.descr, sizeof(npy.descr), "%s", lies[i]);
		ck_assert_int_eq(npy_format(&npy, &header, &len), 0);
		ck_assert_ptr_nonnull(memmem(header, len, "'descr': '|V8',", 15));
		ck_assert_ptr_null(memmem(header, len, lies[i], strlen(lies[i])));
	}
}
END_TEST

START_TEST(a_type_that_numpy_lacks_is_refused_or_written_as_void)
{
	static const char *const none[] = { "float4_e2m1fn", "float6_e2m3fn", "float32x4",
					    "float8_e4m3fnx2" };
	_cleanup_(free_ptr) char *header = NULL;
	struct npy npy = { .ndim = 1, .shape = { 4 } };
	size_t len;

	for (size_t i = 0; i < array_size(none); i++) {
		ck_assert_int_eq(dtype_parse(none[i], &npy.dtype), 0);
		ck_assert_int_eq(npy_format(&npy, &header, &len), -ENOTSUP);
	}
	ck_assert_int_eq(dtype_parse("float8_e4m3fn", &npy.dtype), 0);
	ck_assert_int_eq(npy_format(&npy, &header, &len), 0);
	ck_assert_ptr_nonnull(memmem(header, len, "'|V1'", 5));
}
END_TEST

START_TEST(a_field_name_above_ascii_is_written_as_utf_8)
{
	struct npy npy = { .dtype = { DTYPE_RECORD, 0, 1, 4 }, .descr = "[('\xc3\xa9', '<f4')]" };
	_cleanup_(free_ptr) char *header = NULL;
	size_t len;

	ck_assert_int_eq(npy_format(&npy, &header, &len), 0);
	ck_assert_int_eq(header[6], 3);
	round_trip(&npy, NULL);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("npy");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_loop_test(tc, numpy_dtypes_are_read_correctly, 0, array_size(plain));
	tcase_add_loop_test(tc, a_record_keeps_its_size_and_its_descr, 0, array_size(records));
	tcase_add_test(tc, void_elements_become_a_record_without_a_descr);
	tcase_add_loop_test(tc, an_invalid_header_is_refused, 0, array_size(bad));
	tcase_add_test(tc, a_header_that_is_cut_is_refused);
	tcase_add_test(tc, a_prelude_of_another_format_or_version_is_refused);
	tcase_add_test(tc, a_descr_above_what_a_buffer_holds_is_refused);
	tcase_add_test(tc, a_latin_1_name_is_converted_to_utf_8);
	tcase_add_test(tc, a_header_that_we_write_reads_the_same);
	tcase_add_test(tc, an_invalid_descr_is_written_as_void_elements);
	tcase_add_test(tc, a_type_that_numpy_lacks_is_refused_or_written_as_void);
	tcase_add_test(tc, a_field_name_above_ascii_is_written_as_utf_8);
	return suite_run("npy", tc, NULL);
}
