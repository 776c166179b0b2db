/* SPDX-License-Identifier: MIT
 *
 * Sizes as text: units change where the digits would, and nothing overflows.
 */
#include "proto/base/size.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdlib.h>

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

START_TEST(what_would_round_to_1024_is_one_of_the_next_unit)
{
	ck_assert_str_eq(size_format((1ull << 20) - 1).text, "1.0 MiB");
	ck_assert_str_eq(size_format((1ull << 30) - 1).text, "1.0 GiB");
	ck_assert_str_eq(size_format((1ull << 20) - 1024).text, "1023.0 KiB");
}
END_TEST

START_TEST(the_largest_number_is_cut_nowhere)
{
	ck_assert_str_eq(size_format(UINT64_MAX).text, "16.0 EiB");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("size");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, bytes_are_whole_and_have_no_decimal);
	tcase_add_test(tc, units_are_binary);
	tcase_add_test(tc, what_would_round_to_1024_is_one_of_the_next_unit);
	tcase_add_test(tc, the_largest_number_is_cut_nowhere);
	return suite_run("size", tc, NULL);
}
