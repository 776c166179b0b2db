/* SPDX-License-Identifier: MIT
 *
 * Headers of safetensors files, rule by rule: valid ones, and what each rule refuses. A refusal
 * names the file, the tensor and the numbers that disagree.
 */
#include "client/models/files/header.h"
#include "proto/base/own.h"
#include "proto/dtype.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Parses a copy of exactly the header's size, so that valgrind and ASan find a read past its end.
 */
static int parse_n(const char *text, size_t n, uint64_t data_bytes, struct header *ret)
{
	_cleanup_(free_ptr) char *copy = malloc(n + !n);
	int r;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, text, n);
	*ret = (struct header){ 0 };
	r = header_parse("f.safetensors", copy, n, data_bytes, ret);
	ck_assert_msg(r == 0 || (ret->tensors == NULL && strstr(gpushm_error(), "f.safetensors")),
		      "%s", gpushm_error());
	return r;
}

static int parse(const char *text, uint64_t data_bytes, struct header *ret)
{
	return parse_n(text, strlen(text), data_bytes, ret);
}

#define T(dtype, shape, begin, end) \
	"{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"

/* ---- what is valid ---- */

START_TEST(tensors_are_in_the_order_of_their_offsets)
{
	/* The header may have any order; offsets decide. */
	static const char text[] =
		"{\"b\":" T("F32", "2,3", 4, 28) ",\"__metadata__\":{\"format\":\"pt\"},"
						 "\"none\":" T("I64", "0,7", 28, 28) ",\"a.x\":" T(
							 "BF16", "2", 0, 4) ",\"\":" T("U8", "", 28,
										       29) "}   ";
	struct header h;

	ck_assert_msg(parse(text, 29, &h) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(h.n, 4);
	ck_assert_str_eq(h.tensors[0].name, "a.x");
	ck_assert_str_eq(h.tensors[1].name, "b");
	ck_assert_uint_eq(h.tensors[1].ndim, 2);
	ck_assert_int_eq(h.tensors[1].shape[1], 3);
	ck_assert_uint_eq(h.tensors[1].begin, 4);
	ck_assert_uint_eq(h.tensors[1].end, 28);
	ck_assert_str_eq(h.tensors[2].name, "none");
	ck_assert_int_eq(h.tensors[2].shape[0], 0);
	ck_assert_str_eq(h.tensors[3].name, "");
	ck_assert_uint_eq(h.tensors[3].ndim, 0);
	ck_assert_str_eq(json_string_value(json_object_get(h.metadata, "format")), "pt");
	header_done(&h);
	header_done(&h);
}
END_TEST

static const struct {
	const char *name, *ours;
	unsigned bits;
} types[] = {
	{ "BOOL", "bool", 8 },
	{ "F4", "float4_e2m1fn", 4 },
	{ "F6_E2M3", "float6_e2m3fn", 6 },
	{ "F6_E3M2", "float6_e3m2fn", 6 },
	{ "U8", "uint8", 8 },
	{ "I8", "int8", 8 },
	{ "F8_E5M2", "float8_e5m2", 8 },
	{ "F8_E4M3", "float8_e4m3fn", 8 },
	{ "F8_E8M0", "float8_e8m0fnu", 8 },
	{ "F8_E4M3FNUZ", "float8_e4m3fnuz", 8 },
	{ "F8_E5M2FNUZ", "float8_e5m2fnuz", 8 },
	{ "I16", "int16", 16 },
	{ "U16", "uint16", 16 },
	{ "F16", "float16", 16 },
	{ "BF16", "bfloat16", 16 },
	{ "I32", "int32", 32 },
	{ "U32", "uint32", 32 },
	{ "F32", "float32", 32 },
	{ "C64", "complex64", 64 },
	{ "F64", "float64", 64 },
	{ "I64", "int64", 64 },
	{ "U64", "uint64", 64 },
};

START_TEST(a_dtype_is_read_and_written_as_the_same)
{
	char text[256], name[32];
	const char *back;
	struct header h;

	snprintf(text, sizeof(text),
		 "{\"t\":{\"dtype\":\"%s\",\"shape\":[4],\"data_offsets\":[0,%u]}}", types[_i].name,
		 types[_i].bits / 2);
	ck_assert_msg(parse(text, types[_i].bits / 2, &h) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_dtype_format(h.tensors[0].dtype, name, sizeof(name)), 0);
	ck_assert_str_eq(name, types[_i].ours);
	ck_assert_int_eq(tensor_dtype_name(h.tensors[0].dtype, &back), 0);
	ck_assert_str_eq(back, types[_i].name);
	header_done(&h);
}
END_TEST

START_TEST(a_type_that_the_format_lacks_is_refused)
{
	static const char *const lacks[] = { "complex128", "int4",     "float8_e4m3",
					     "float32x4",  "record16", "complex32" };
	struct gpushm_dtype t;
	const char *name;

	for (size_t i = 0; i < array_size(lacks); i++) {
		ck_assert_int_eq(gpushm_dtype_parse(lacks[i], &t), 0);
		ck_assert_int_eq(tensor_dtype_name(t, &name), -EINVAL);
	}
}
END_TEST

START_TEST(a_header_without_tensors_is_read)
{
	struct header h;

	ck_assert_int_eq(parse("{}", 0, &h), 0);
	ck_assert_uint_eq(h.n, 0);
	header_done(&h);
	ck_assert_int_eq(parse("{\"__metadata__\":{}}      ", 0, &h), 0);
	ck_assert_uint_eq(json_object_size(h.metadata), 0);
	header_done(&h);
}
END_TEST

START_TEST(the_header_of_a_stream_needs_no_size)
{
	struct header h;

	ck_assert_int_eq(parse("{\"t\":" T("U8", "5", 0, 5) "}", HEADER_NO_SIZE, &h), 0);
	ck_assert_uint_eq(h.tensors[0].end, 5);
	header_done(&h);
}
END_TEST

/* As safetensors.torch.save_model() writes tied weights. */
START_TEST(a_tied_weight_keeps_its_second_name)
{
	static const char text[] =
		"{\"__metadata__\":{\"lm_head\":\"embed\",\"format\":\"pt\",\"embed\":\"pt\","
		"\"note\":\"no tensor\",\"a//b\":\"embed\",\"tied\":\"pt\","
		"\"__metadata__\":\"embed\"},"
		"\"embed\":" T("U8", "3", 0, 3) ",\"pt\":" T("U8", "2", 3, 5) "}";
	struct header h;

	ck_assert_int_eq(parse(text, 5, &h), 0);
	ck_assert_uint_eq(h.n_aliases, 2);
	ck_assert_str_eq(h.aliases[0].name, "lm_head");
	ck_assert_uint_eq(h.aliases[0].tensor, 0);
	ck_assert_str_eq(h.aliases[1].name, "tied");
	ck_assert_uint_eq(h.aliases[1].tensor, 1);
	ck_assert_uint_eq(json_object_size(h.metadata), 7);
	header_done(&h);
}
END_TEST

/* Strings that are read without jansson and those that are read by it are the same. */
START_TEST(a_tensor_is_the_same_however_it_is_written)
{
	static const char *const ways[] = {
		"{\"a.b\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}",
		"{\"a.b\":{\"data_offsets\":[0,12],\"shape\":[2,3],\"dtype\":\"F16\"}}",
		("{ \"a.b\" :\n{\t\"dtype\" : \"F16\" , \"shape\" : [ 2 , 3 ] "
		 ",\r\"data_offsets\":[0, 12 ] } } "),
		"{\"a\\u002eb\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}",
		"{\"a.b\":{\"\\u0064type\":\"F16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}",
		"{\"a.b\":{\"dtype\":\"\\u004616\",\"shape\":[2,3],\"data_offsets\":[0,12]}}",
		("{\"__metadata__\":{},\"a.b\":{\"dtype\":\"F16\",\"shape\":[2,3],"
		 "\"data_offsets\":[0,12]}}"),
	};
	struct header h;

	ck_assert_msg(parse(ways[_i], 12, &h) == 0, "%s: %s", ways[_i], gpushm_error());
	ck_assert_uint_eq(h.n, 1);
	ck_assert_str_eq(h.tensors[0].name, "a.b");
	ck_assert_uint_eq(h.tensors[0].dtype.code, DTYPE_FLOAT);
	ck_assert_uint_eq(h.tensors[0].dtype.bits, 16);
	ck_assert_uint_eq(h.tensors[0].ndim, 2);
	ck_assert_int_eq(h.tensors[0].shape[0], 2);
	ck_assert_int_eq(h.tensors[0].shape[1], 3);
	ck_assert_uint_eq(h.tensors[0].begin, 0);
	ck_assert_uint_eq(h.tensors[0].end, 12);
	header_done(&h);
}
END_TEST

START_TEST(the_largest_numbers_are_read)
{
	struct header h;

	ck_assert_int_eq(parse("{\"t\":" T("U8", "2305843009213693951", 0, 2305843009213693951) "}",
			       HEADER_NO_SIZE, &h),
			 0);
	ck_assert_int_eq(h.tensors[0].shape[0], (INT64_C(1) << 61) - 1);
	ck_assert_uint_eq(h.tensors[0].end, (INT64_C(1) << 61) - 1);
	header_done(&h);
}
END_TEST

/* ---- what is refused ---- */

#define LONG_64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SHAPE_11 "1,1,1,1,1,1,1,1,1,1,1"

static const struct {
	const char *text;
	uint64_t data;
	int error;
	const char *says; /* gpushm_error() has this */
} bad[] = {
	/* The text. */
	{ "", 0, EBADMSG, "'{'" },
	{ " {}", 0, EBADMSG, "'{'" },
	{ "\xef\xbb\xbf{}", 0, EBADMSG, "'{'" },
	{ "[]", 0, EBADMSG, "'{'" },
	{ "{", 0, EBADMSG, "not valid JSON" },
	{ "{}x", 0, EBADMSG, "end of file expected" },
	{ "{} {}", 0, EBADMSG, "end of file expected" },
	{ "{\"t\":" T("U8", "1", 0, 1) ",}", 1, EBADMSG, "not valid JSON" },
	{ "{'t':1}", 0, EBADMSG, "not valid JSON" },
	{ "{\"\xff\":1}", 0, EBADMSG, "unable to decode byte" },
	{ "{\"\\u0000\":1}", 0, EBADMSG, "NUL" },
	{ "{\"t\":" T("U8", "1", 0, 1) ",\"t\":" T("U8", "1", 0, 1) "}", 1, EBADMSG, "duplicate" },
	{ "{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
	  EBADMSG, "duplicate" },
	{ "{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}", 0, EBADMSG, "duplicate" },
	{ "{\"t\":" T("U8", "1", 0, 1) " \"u\":" T("U8", "1", 1, 2) "}", 2, EBADMSG,
	  "',' or '}' is expected" },
	{ "{\"t\":" T("U8", "1", 0, 1) ",\"u\":" T("U8", "1", 1, 2), 2, EBADMSG,
	  "',' or '}' is expected" },
	{ "{,}", 0, EBADMSG, "not valid JSON" },
	{ "{\"t\":" T("U8", "1", 0, 1) "]", 1, EBADMSG, "not valid JSON" },
	{ "{\"t\":" T("U8", "01", 0, 1) "}", 1, EBADMSG, "shape has something else than whole" },
	{ "{\"t\":" T("U8", "1,", 0, 1) "}", 1, EBADMSG, "shape has something else than whole" },
	{ "{\"__metadata__\":{},\"__metadata__\":{}}", 0, EBADMSG, "duplicate" },
	/* A tensor's members. */
	{ "{\"t\":1}", 0, EBADMSG, "tensor \"t\" is not a JSON object" },
	{ "{\"t\":[\"U8\",[1],[0,1]]}", 1, EBADMSG, "tensor \"t\" is not a JSON object" },
	{ "{\"t\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, EBADMSG, "no \"dtype\"" },
	{ "{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, EBADMSG, "no \"shape\"" },
	{ "{\"t\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, EBADMSG, "no \"data_offsets\"" },
	{ "{\"t\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"strides\":[]}}", 1,
	  EBADMSG, "\"strides\"" },
	/* Its type. */
	{ "{\"t\":" T("F128", "1", 0, 16) "}", 16, EBADMSG, "dtype \"F128\" is not known" },
	{ "{\"t\":" T("f32", "1", 0, 4) "}", 4, EBADMSG, "dtype \"f32\" is not known" },
	{ "{\"t\":" T("", "1", 0, 4) "}", 4, EBADMSG, "dtype \"\" is not known" },
	{ "{\"t\":{\"dtype\":7,\"shape\":[],\"data_offsets\":[0,1]}}", 1, EBADMSG,
	  "dtype is not a string" },
	/* Its shape. */
	{ "{\"t\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, EBADMSG,
	  "shape is not an array" },
	{ "{\"t\":" T("U8", "-1", 0, 1) "}", 1, EBADMSG, "shape has something else than whole" },
	{ "{\"t\":" T("U8", "-0", 0, 0) "}", 0, EBADMSG, "shape has something else than whole" },
	{ "{\"t\":" T("U8", "1.0", 0, 1) "}", 1, EBADMSG, "shape has something else than whole" },
	{ "{\"t\":" T("U8", "\"1\"", 0, 1) "}", 1, EBADMSG, "shape has something else than whole" },
	{ "{\"t\":" T("U8", "1e0", 0, 1) "}", 1, EBADMSG, "shape has something else than whole" },
	{ "{\"t\":" T("U8", "18446744073709551616", 0, 0) "}", 0, EBADMSG, "too big integer" },
	{ "{\"t\":" T("U8", "4294967296,4294967296", 0, 0) "}", 0, EBADMSG, "overflows" },
	{ "{\"t\":" T("U8", "4294967296,4294967296,0", 0, 0) "}", 0, EBADMSG, "overflows" },
	{ "{\"t\":" T("F64", "288230376151711744", 0, 0) "}", 0, EBADMSG, "overflows" },
	{ "{\"t\":" T("U8", SHAPE_11 "," SHAPE_11 "," SHAPE_11, 0, 1) "}", 1, EINVAL,
	  "too many dimensions" },
	/* Its offsets. */
	{ "{\"t\":" T("U8", "1", 0, "1") "}", 1, EBADMSG, "data_offsets has something else" },
	{ "{\"t\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0]}}", 1, EBADMSG,
	  "not an array of two" },
	{ "{\"t\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1,2]}}", 1, EBADMSG,
	  "not an array of two" },
	{ "{\"t\":" T("U8", "1", 1, 0) "}", 1, EBADMSG, "begin at 1 and end at 0" },
	{ "{\"t\":" T("F32", "2", 0, 7) "}", 7, EBADMSG, "make 8 bytes, its data_offsets 7" },
	{ "{\"t\":" T("F32", "0", 0, 7) "}", 7, EBADMSG, "make 0 bytes, its data_offsets 7" },
	{ "{\"t\":" T("F4", "3", 0, 2) "}", 2, EBADMSG, "has 12 bits" },
	{ "{\"t\":" T("F6_E2M3", "2", 0, 2) "}", 2, EBADMSG, "has 12 bits" },
	/* All of them. */
	{ "{\"t\":" T("U8", "1", 1, 2) "}", 2, EBADMSG,
	  "tensor \"t\": its data begin at 1, those before end at 0: they leave a hole" },
	{ "{\"t\":" T("U8", "2", 0, 2) ",\"u\":" T("U8", "2", 3, 5) "}", 5, EBADMSG,
	  "tensor \"u\": its data begin at 3, those of \"t\" end at 2: they leave a hole" },
	{ "{\"t\":" T("U8", "2", 0, 2) ",\"u\":" T("U8", "2", 1, 3) "}", 3, EBADMSG,
	  "tensor \"u\": its data begin at 1, those of \"t\" end at 2: they overlap" },
	{ "{\"t\":" T("U8", "2", 0, 2) ",\"u\":" T("U8", "2", 0, 2) "}", 2, EBADMSG, "overlap" },
	{ "{\"t\":" T("U8", "2", 0, 2) "}", 3, EBADMSG,
	  "its tensors have 2 bytes, and 3 bytes follow the header" },
	{ "{\"t\":" T("U8", "2", 0, 2) "}", 1, EBADMSG, "the file is truncated" },
	{ "{}", 1, EBADMSG, "its tensors have 0 bytes, and 1 bytes follow" },
	/* Metadata. */
	{ "{\"__metadata__\":[]}", 0, EBADMSG, "__metadata__ is not a JSON object" },
	{ "{\"__metadata__\":null}", 0, EBADMSG, "__metadata__ is not a JSON object" },
	{ "{\"__metadata__\":{\"a\":1}}", 0, EBADMSG, "\"a\" is not a string" },
	{ "{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, EBADMSG, "\"a\" is not a string" },
	/* Names that an array can't have. */
	{ "{\"a//b\":" T("U8", "1", 0, 1) "}", 1, EINVAL, "tensor \"a//b\"" },
	{ "{\"..\":" T("U8", "1", 0, 1) "}", 1, EINVAL, "component" },
	{ "{\"a\\nb\":" T("U8", "1", 0, 1) "}", 1, EINVAL, "tensor \"a?b\"" },
	{ "{\"" LONG_64 LONG_64 LONG_64 LONG_64 "\":" T("U8", "1", 0, 1) "}", 1, ENAMETOOLONG,
	  "longer than 255 bytes" },
};

START_TEST(a_header_that_breaks_a_rule_is_refused)
{
	struct header h;

	ck_assert_msg(parse(bad[_i].text, bad[_i].data, &h) == -bad[_i].error, "%s: %s",
		      bad[_i].text, gpushm_error());
	ck_assert_msg(strstr(gpushm_error(), bad[_i].says), "%s: %s", bad[_i].text, gpushm_error());
}
END_TEST

START_TEST(a_header_that_is_cut_is_refused)
{
	static const char text[] = "{\"t\":" T("U8", "2", 0, 2) ",\"__metadata__\":{\"a\":\"b\"}}";
	struct header h;

	for (size_t n = 0; n + 1 < sizeof(text); n++)
		ck_assert_int_eq(parse_n(text, n, 2, &h), -EBADMSG);
	ck_assert_int_eq(parse_n(text, sizeof(text) - 1, 2, &h), 0);
	header_done(&h);
	/* A NUL is not the end of a text, and not a space, wherever it is. */
	ck_assert_int_eq(parse_n(text, sizeof(text), 2, &h), -EBADMSG);
	for (size_t i = 1; i < sizeof(text); i++) {
		char with[sizeof(text)];

		memcpy(with, text, i);
		with[i] = '\0';
		memcpy(with + i + 1, text + i, sizeof(text) - 1 - i);
		ck_assert_int_eq(parse_n(with, sizeof(with), 2, &h), -EBADMSG);
	}
}
END_TEST

/* What jansson has at once. */
static size_t held, peak;

static void *counted_malloc(size_t n)
{
	size_t *block = malloc(n + sizeof(max_align_t));

	*block = n;
	held += n;
	peak = held > peak ? held : peak;
	return (char *)block + sizeof(max_align_t);
}

static void counted_free(void *memory)
{
	size_t *block = memory ? (size_t *)((char *)memory - sizeof(max_align_t)) : NULL;

	held -= block ? *block : 0;
	free(block);
}

/* What a text repeats, between its start and end. */
static const struct {
	const char *start, *repeated, *end, *says;
} hostile[] = {
	{ "{\"t\":{\"dtype\":\"U8\",\"shape\":[0", ",0", "],\"data_offsets\":[0,0]}}",
	  "too many dimensions" },
	{ "{\"t\":{\"x\":[{}", ",{}", "]}}", "has a member \"x\"" },
	{ "{\"t\":[", "[", "", "not a JSON object" },
	{ "{\"t\":\"", "x", "\"}", "not a JSON object" },
	{ "{\"t\":[[]],\"", "x", "\":1}", "tensor \"t\" is not a JSON object" },
	{ "{\"__metadata__\":{\"a\":[{}", ",{}", "]}}", "\"a\" is not a string" },
	{ "{\"__metadata__\":", "{\"a\":", "1", "\"a\" is not a string" },
	{ "{\"__metadata__\":[", "[", "", "not a JSON object" },
	{ "{\"\\u005f_metadata__\":[0", ",0", "]}", "not a JSON object" },
	{ "{", ",", "}", "not valid JSON" },
	{ "{\"", "\\\"", "", "a string does not end" },
};

START_TEST(a_hostile_header_takes_little_memory)
{
	size_t n = strlen(hostile[_i].repeated), times = (4u << 20) / n;
	_cleanup_(free_ptr) char *text = malloc(times * n + 128);
	char *end = stpcpy(text, hostile[_i].start);
	struct header h;

	for (size_t i = 0; i < times; i++)
		end = stpcpy(end, hostile[_i].repeated);
	stpcpy(end, hostile[_i].end);
	json_set_alloc_funcs(counted_malloc, counted_free);
	ck_assert_int_lt(parse(text, 0, &h), 0);
	ck_assert_msg(strstr(gpushm_error(), hostile[_i].says), "%s", gpushm_error());
	ck_assert_uint_lt(peak, 4u << 20);
	ck_assert_uint_eq(held, 0);
}
END_TEST

START_TEST(metadata_have_a_bound)
{
	_cleanup_(free_ptr) char *text = malloc(HEADER_METADATA_VALUES_MAX * 16ull + 64);
	char *end = stpcpy(text, "{\"__metadata__\":{");
	struct header h;

	for (unsigned i = 0; i < HEADER_METADATA_VALUES_MAX; i++)
		end += sprintf(end, "%s\"%u\":\"\"", i ? "," : "", i);
	strcpy(end, "}}");
	ck_assert_int_eq(parse(text, 0, &h), 0);
	ck_assert_uint_eq(json_object_size(h.metadata), HEADER_METADATA_VALUES_MAX);
	header_done(&h);
	strcpy(end, ",\"x\":\"\"}}");
	ck_assert_int_eq(parse(text, 0, &h), -EBADMSG);
	ck_assert_msg(strstr(gpushm_error(), "more than 262144 values"), "%s", gpushm_error());
}
END_TEST

START_TEST(a_name_in_an_error_has_no_control_characters)
{
	struct header h;

	ck_assert_int_eq(parse("{\"\x1b[31m\xe2\x80\xae\":1}", 0, &h), -EBADMSG);
	ck_assert_int_eq(parse("{\"\\u001b[31m\\u202e\":1}", 0, &h), -EINVAL);
	ck_assert_ptr_null(strchr(gpushm_error(), '\x1b'));
	ck_assert_int_eq(parse("{\"red\\u202e\":1}", 0, &h), -EBADMSG);
	ck_assert_msg(strstr(gpushm_error(), "\"red?\""), "%s", gpushm_error());
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("header");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, tensors_are_in_the_order_of_their_offsets);
	tcase_add_loop_test(tc, a_dtype_is_read_and_written_as_the_same, 0, array_size(types));
	tcase_add_test(tc, a_type_that_the_format_lacks_is_refused);
	tcase_add_test(tc, a_header_without_tensors_is_read);
	tcase_add_test(tc, the_header_of_a_stream_needs_no_size);
	tcase_add_test(tc, a_tied_weight_keeps_its_second_name);
	tcase_add_loop_test(tc, a_tensor_is_the_same_however_it_is_written, 0, 7);
	tcase_add_test(tc, the_largest_numbers_are_read);
	tcase_add_loop_test(tc, a_header_that_breaks_a_rule_is_refused, 0, array_size(bad));
	tcase_add_test(tc, a_header_that_is_cut_is_refused);
	tcase_add_loop_test(tc, a_hostile_header_takes_little_memory, 0, array_size(hostile));
	tcase_add_test(tc, metadata_have_a_bound);
	tcase_add_test(tc, a_name_in_an_error_has_no_control_characters);
	return suite_run("header", tc, NULL);
}
