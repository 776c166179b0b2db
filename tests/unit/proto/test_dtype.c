/* SPDX-License-Identifier: MIT
 *
 * Types of elements: names and typestrs there and back, sizes, and invalid types.
 */
#include "proto/base/own.h"
#include "proto/dtype.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

static const struct known {
	struct dtype type;
	uint64_t bits;
	uint32_t align;
	bool packed;
	const char *name;
	const char *typestr; /* NULL: NumPy has no such type */
} known[] = {
	{ { DTYPE_BOOL, 8, 1, 0 }, 8, 1, false, "bool", "|b1" },
	{ { DTYPE_INT, 2, 1, 0 }, 2, 1, true, "int2", NULL },
	{ { DTYPE_INT, 4, 1, 0 }, 4, 1, true, "int4", NULL },
	{ { DTYPE_UINT, 2, 1, 0 }, 2, 1, true, "uint2", NULL },
	{ { DTYPE_UINT, 4, 1, 0 }, 4, 1, true, "uint4", NULL },
	{ { DTYPE_COMPLEX, 32, 1, 0 }, 32, 2, false, "complex32", NULL },
	{ { DTYPE_INT, 8, 1, 0 }, 8, 1, false, "int8", "|i1" },
	{ { DTYPE_INT, 16, 1, 0 }, 16, 2, false, "int16", "<i2" },
	{ { DTYPE_INT, 32, 1, 0 }, 32, 4, false, "int32", "<i4" },
	{ { DTYPE_INT, 64, 1, 0 }, 64, 8, false, "int64", "<i8" },
	{ { DTYPE_UINT, 8, 1, 0 }, 8, 1, false, "uint8", "|u1" },
	{ { DTYPE_UINT, 16, 1, 0 }, 16, 2, false, "uint16", "<u2" },
	{ { DTYPE_UINT, 32, 1, 0 }, 32, 4, false, "uint32", "<u4" },
	{ { DTYPE_UINT, 64, 1, 0 }, 64, 8, false, "uint64", "<u8" },
	{ { DTYPE_FLOAT, 16, 1, 0 }, 16, 2, false, "float16", "<f2" },
	{ { DTYPE_FLOAT, 32, 1, 0 }, 32, 4, false, "float32", "<f4" },
	{ { DTYPE_FLOAT, 64, 1, 0 }, 64, 8, false, "float64", "<f8" },
	{ { DTYPE_COMPLEX, 64, 1, 0 }, 64, 4, false, "complex64", "<c8" },
	{ { DTYPE_COMPLEX, 128, 1, 0 }, 128, 8, false, "complex128", "<c16" },
	{ { DTYPE_COMPLEX, 64, 2, 0 }, 128, 4, false, "complex64x2", NULL },
	{ { DTYPE_BFLOAT, 16, 1, 0 }, 16, 2, false, "bfloat16", "<V2" },
	{ { 7, 8, 1, 0 }, 8, 1, false, "float8_e3m4", NULL },
	{ { 8, 8, 1, 0 }, 8, 1, false, "float8_e4m3", NULL },
	{ { 9, 8, 1, 0 }, 8, 1, false, "float8_e4m3b11fnuz", NULL },
	{ { 10, 8, 1, 0 }, 8, 1, false, "float8_e4m3fn", NULL },
	{ { 11, 8, 1, 0 }, 8, 1, false, "float8_e4m3fnuz", NULL },
	{ { 12, 8, 1, 0 }, 8, 1, false, "float8_e5m2", NULL },
	{ { 13, 8, 1, 0 }, 8, 1, false, "float8_e5m2fnuz", NULL },
	{ { 14, 8, 1, 0 }, 8, 1, false, "float8_e8m0fnu", NULL },
	{ { 15, 6, 1, 0 }, 6, 1, true, "float6_e2m3fn", NULL },
	{ { 16, 6, 1, 0 }, 6, 1, true, "float6_e3m2fn", NULL },
	{ { 17, 4, 1, 0 }, 4, 1, true, "float4_e2m1fn", NULL },
	{ { 17, 4, 2, 0 }, 8, 1, false, "float4_e2m1fnx2", NULL },
	{ { 17, 4, 3, 0 }, 12, 1, true, "float4_e2m1fnx3", NULL },
	{ { DTYPE_FLOAT, 32, 4, 0 }, 128, 4, false, "float32x4", NULL },
	{ { DTYPE_UINT, 8, 16, 0 }, 128, 1, false, "uint8x16", NULL },
	{ { DTYPE_RECORD, 0, 1, 40 }, 320, 1, false, "record40", "|V40" },
	{ { DTYPE_RECORD, 0, 1, 1 }, 8, 1, false, "record1", "|V1" },
	{ { DTYPE_RECORD, 0, 1, 2 }, 16, 1, false, "record2", "|V2" },
	{ { DTYPE_RECORD, 0, 1, 4294967295u },
	  34359738360,
	  1,
	  false,
	  "record4294967295",
	  "|V4294967295" },
};

static void same_type(struct dtype a, struct dtype b)
{
	ck_assert_uint_eq(a.code, b.code);
	ck_assert_uint_eq(a.bits, b.bits);
	ck_assert_uint_eq(a.lanes, b.lanes);
	ck_assert_uint_eq(a.itemsize, b.itemsize);
}

START_TEST(each_type_has_its_size_and_alignment)
{
	for (size_t i = 0; i < array_size(known); i++) {
		ck_assert_msg(dtype_valid(known[i].type), "%s", known[i].name);
		ck_assert_uint_eq(dtype_bits(known[i].type), known[i].bits);
		ck_assert_uint_eq(dtype_align(known[i].type), known[i].align);
		ck_assert_msg(dtype_packed(known[i].type) == known[i].packed, "%s", known[i].name);
	}
}
END_TEST

START_TEST(each_name_comes_back_as_its_type)
{
	struct dtype back;
	char name[64];

	for (size_t i = 0; i < array_size(known); i++) {
		dtype_format(known[i].type, name, sizeof(name));
		ck_assert_str_eq(name, known[i].name);
		ck_assert_int_eq(dtype_parse(name, &back), 0);
		same_type(back, known[i].type);
	}
}
END_TEST

START_TEST(each_typestr_comes_back_as_its_type)
{
	struct dtype back;
	char typestr[16];

	for (size_t i = 0; i < array_size(known); i++) {
		int r = dtype_to_typestr(known[i].type, typestr, sizeof(typestr));

		if (!known[i].typestr) {
			ck_assert_int_eq(r, -ENOTSUP);
			continue;
		}
		ck_assert_int_eq(r, 0);
		ck_assert_str_eq(typestr, known[i].typestr);
		ck_assert_int_eq(dtype_from_typestr(typestr, &back), 0);
		same_type(back, known[i].type);
	}
}
END_TEST

START_TEST(an_invalid_type_is_refused)
{
	static const struct dtype types[] = {
		{ 3, 64, 1, 0 },
		{ 18, 8, 1, 0 },
		{ 254, 8, 1, 0 },
		{ DTYPE_INT, 0, 1, 0 },
		{ DTYPE_INT, 3, 1, 0 },
		{ DTYPE_INT, 24, 1, 0 },
		{ DTYPE_INT, 128, 1, 0 },
		{ DTYPE_FLOAT, 8, 1, 0 },
		{ DTYPE_FLOAT, 128, 1, 0 },
		{ DTYPE_BFLOAT, 32, 1, 0 },
		{ DTYPE_COMPLEX, 16, 1, 0 },
		{ DTYPE_BOOL, 1, 1, 0 },
		{ 7, 4, 1, 0 },
		{ 15, 8, 1, 0 },
		{ 17, 8, 1, 0 },
		{ DTYPE_FLOAT, 32, 0, 0 },
		{ DTYPE_FLOAT, 32, 17, 0 },
		{ DTYPE_FLOAT, 32, 1, 4 },
		{ DTYPE_RECORD, 0, 1, 0 },
		{ DTYPE_RECORD, 8, 1, 8 },
		{ DTYPE_RECORD, 0, 2, 8 },
		{ DTYPE_RECORD, 0, 0, 8 },
	};

	for (size_t i = 0; i < array_size(types); i++)
		ck_assert_msg(!dtype_valid(types[i]), "%zu", i);
}
END_TEST

/* Every one of the 2^24 combinations of code, bits and lanes below 256: a valid one has a size
 * and a name. */
START_TEST(every_valid_type_has_bits_and_a_name)
{
	struct dtype back;
	char name[64];

	for (uint32_t n = 0; n < 1u << 24; n++) {
		struct dtype t = { n, n >> 8, n >> 16, (n & 255) == DTYPE_RECORD ? 3 : 0 };

		if (!dtype_valid(t))
			continue;
		ck_assert_uint_gt(dtype_bits(t), 0);
		ck_assert_uint_gt(dtype_align(t), 0);
		ck_assert_uint_le(dtype_align(t), 8);
		dtype_format(t, name, sizeof(name));
		ck_assert_int_eq(dtype_parse(name, &back), 0);
		same_type(back, t);
	}
}
END_TEST

START_TEST(an_invalid_name_of_a_type_is_refused)
{
	static const char *const names[] = {
		"",
		"float",
		"float33",
		"float32x",
		"float32x0",
		"float32x1",
		"float32x17",
		"float32x04",
		"float32x4x4",
		"float32 ",
		" float32",
		"Float32",
		"float32y4",
		"record",
		"record0",
		"record-1",
		"record040",
		"record8x2",
		"record4294967296",
		"int8x 2",
		"bfloat",
		"float8_e4m3f",
		"float32x18446744073709551618",
	};
	struct dtype t = { 1, 2, 3, 4 };

	for (size_t i = 0; i < array_size(names); i++)
		ck_assert_msg(dtype_parse(names[i], &t) == -EINVAL, "\"%s\"", names[i]);
	same_type(t, (struct dtype){ 1, 2, 3, 4 });
}
END_TEST

START_TEST(an_invalid_or_unsupported_typestr_is_refused)
{
	static const char *const none[] = { "",	    "<",       "f4",  "<f",	     "<f04",
					    "<f-4", "<f4 ",    "<x4", "?f4",	     "<V",
					    "|V0",  "<f4[ns]", "<i0", "|V4294967296" };
	static const char *const others[] = { ">f4", ">V8",  "|S5",  "<U7", "|O8", "<M8[ns]",
					      "<m8", "<f16", "<c32", "|b2", "<i16" };
	struct dtype t = { 1, 2, 3, 4 };

	for (size_t i = 0; i < array_size(none); i++)
		ck_assert_msg(dtype_from_typestr(none[i], &t) == -EINVAL, "\"%s\"", none[i]);
	for (size_t i = 0; i < array_size(others); i++)
		ck_assert_msg(dtype_from_typestr(others[i], &t) == -ENOTSUP, "\"%s\"", others[i]);
	same_type(t, (struct dtype){ 1, 2, 3, 4 });
}
END_TEST

START_TEST(an_equivalent_byte_order_mark_gives_the_same_type)
{
	static const struct {
		const char *typestr;
		struct dtype type;
	} same[] = {
		{ "=f4", { DTYPE_FLOAT, 32, 1, 0 } }, { "<i1", { DTYPE_INT, 8, 1, 0 } },
		{ "=b1", { DTYPE_BOOL, 8, 1, 0 } },   { "|V2", { DTYPE_RECORD, 0, 1, 2 } },
		{ "<V8", { DTYPE_RECORD, 0, 1, 8 } },
	};
	struct dtype t;

	for (size_t i = 0; i < array_size(same); i++) {
		ck_assert_int_eq(dtype_from_typestr(same[i].typestr, &t), 0);
		same_type(t, same[i].type);
	}
}
END_TEST

START_TEST(a_name_is_cut_to_its_buffer)
{
	char buf[8];

	for (size_t size = 1; size <= sizeof(buf); size++) {
		memset(buf, '#', sizeof(buf));
		dtype_format(known[0].type, buf, size);
		ck_assert_uint_lt(strlen(buf), size);
		for (size_t i = size; i < sizeof(buf); i++)
			ck_assert_int_eq(buf[i], '#');
	}
	dtype_format((struct dtype){ 3, 2, 65535, 4294967295u }, buf, sizeof(buf));
	ck_assert_uint_lt(strlen(buf), sizeof(buf));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("dtype");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, each_type_has_its_size_and_alignment);
	tcase_add_test(tc, each_name_comes_back_as_its_type);
	tcase_add_test(tc, each_typestr_comes_back_as_its_type);
	tcase_add_test(tc, an_invalid_type_is_refused);
	tcase_add_test(tc, every_valid_type_has_bits_and_a_name);
	tcase_add_test(tc, an_invalid_name_of_a_type_is_refused);
	tcase_add_test(tc, an_invalid_or_unsupported_typestr_is_refused);
	tcase_add_test(tc, an_equivalent_byte_order_mark_gives_the_same_type);
	tcase_add_test(tc, a_name_is_cut_to_its_buffer);
	return suite_run("dtype", tc, NULL);
}
