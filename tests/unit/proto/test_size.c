/* SPDX-License-Identifier: MIT
 *
 * Sizes as text and back: units change where the digits would, and nothing overflows.
 */
#include "proto/base/own.h"
#include "proto/base/size.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

START_TEST(bytes_are_whole_and_have_no_decimal)
{
	ck_assert_str_eq(size_format(0).text, "0 B");
	ck_assert_str_eq(size_format(1023).text, "1023 B");
}
END_TEST

START_TEST(units_are_binary)
{
	ck_assert_str_eq(size_format(1024).text, "1.0 KiB");
	ck_assert_str_eq(size_format(1536).text, "1.5 KiB");
	ck_assert_str_eq(size_format(2ull << 20).text, "2.0 MiB");
	ck_assert_str_eq(size_format(40ull << 30).text, "40.0 GiB");
	ck_assert_str_eq(size_format(3ull << 40).text, "3.0 TiB");
}
END_TEST

START_TEST(a_size_that_would_round_to_1024_is_one_of_the_next_unit)
{
	ck_assert_str_eq(size_format((1ull << 20) - 1).text, "1.0 MiB");
	ck_assert_str_eq(size_format((1ull << 30) - 1).text, "1.0 GiB");
	ck_assert_str_eq(size_format((1ull << 20) - 1024).text, "1023.0 KiB");
}
END_TEST

START_TEST(the_largest_number_is_printed_whole)
{
	ck_assert_str_eq(size_format(UINT64_MAX).text, "16.0 EiB");
}
END_TEST

static const struct {
	const char *text;
	uint64_t value;
} sizes[] = {
	{ "0", 0 },
	{ "4096", 4096 },
	{ "18446744073709551615", UINT64_MAX },
	{ "64K", 65536 },
	{ "64k", 65536 },
	{ "1.5G", 1610612736 },
	{ "8GiB", 8589934592 },
	{ "2MB", 2097152 },
	{ "64.0 MiB", 67108864 },
	{ "512 B", 512 },
	{ "512B", 512 },
	{ "1.0", 1 },
	{ "2t", 2ull << 40 },
	{ "15.5 EiB", 31ull << 59 },
	{ "0.999999999K", 1023 },
	{ "1.1M", 1153433 },
};

START_TEST(a_size_is_read_as_its_number_of_bytes)
{
	uint64_t v = 7;

	ck_assert_ptr_null(size_parse(sizes[_i].text, &v));
	ck_assert_uint_eq(v, sizes[_i].value);
}
END_TEST

static const struct {
	const char *text, *wrong;
} bad[] = {
	{ "", "digit" },
	{ "G", "digit" },
	{ "-1", "digit" },
	{ "+1", "digit" },
	{ " 1", "digit" },
	{ "nan", "digit" },
	{ "inf", "digit" },
	{ ".5G", "digit" },
	{ "0x10", "unit" },
	{ "1Q", "unit" },
	{ "1GB2", "unit" },
	{ "1KiBs", "unit" },
	{ "1Ki", "unit" },
	{ "1iB", "unit" },
	{ "2mb", "unit" },
	{ "1e3", "unit" },
	{ "1  G", "unit" },
	{ "1 ", "unit" },
	{ "9T9", "unit" },
	{ "1.G", "point" },
	{ "1.5", "whole number" },
	{ "0.5 B", "whole number" },
	{ "1.0000000001G", "nine decimals" },
	{ "99999999999999999999", "too large" },
	{ "9999999999T", "too large" },
	{ "16E", "too large" },
	{ "16.0 EiB", "too large" },
};

START_TEST(an_invalid_size_is_refused_with_its_reason)
{
	uint64_t v = 7;
	const char *wrong = size_parse(bad[_i].text, &v);

	ck_assert_ptr_nonnull(wrong);
	ck_assert_msg(strstr(wrong, bad[_i].wrong), "%s: %s", bad[_i].text, wrong);
	ck_assert_uint_eq(v, 7);
}
END_TEST

START_TEST(a_printed_size_can_be_read_back)
{
	for (unsigned shift = 0; shift < 58; shift++)
		for (uint64_t n = 1; n < 64; n++) {
			uint64_t bytes = n << shift >> 1, v = 0;

			ck_assert_ptr_null(size_parse(size_format(bytes).text, &v));
			ck_assert_str_eq(size_format(v).text, size_format(bytes).text);
		}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("size");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, bytes_are_whole_and_have_no_decimal);
	tcase_add_test(tc, units_are_binary);
	tcase_add_test(tc, a_size_that_would_round_to_1024_is_one_of_the_next_unit);
	tcase_add_test(tc, the_largest_number_is_printed_whole);
	tcase_add_loop_test(tc, a_size_is_read_as_its_number_of_bytes, 0, array_size(sizes));
	tcase_add_loop_test(tc, an_invalid_size_is_refused_with_its_reason, 0, array_size(bad));
	tcase_add_test(tc, a_printed_size_can_be_read_back);
	return suite_run("size", tc, NULL);
}
