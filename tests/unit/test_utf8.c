/* SPDX-License-Identifier: MIT
 *
 * The decoder of UTF-8: the sequences that RFC 3629 forbids, and the limits of those that it
 * allows.
 */
#include "proto/base/own.h"
#include "proto/base/utf8.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

START_TEST(invalid_utf_8_passes_as_valid)
{
	static const char *const bad[] = { "\x80",
					   "\xc0\xaf",
					   "\xc1\xbf",
					   "\xe0\x80\xaf",
					   "\xe0\x9f\xbf",
					   "\xed\xa0\x80",
					   "\xed\xbf\xbf",
					   "\xf0\x8f\xbf\xbf",
					   "\xf4\x90\x80\x80",
					   "\xf8\x88\x80\x80\x80",
					   "\xc3",
					   "\xe2\x82",
					   "\xe2(\xa1",
					   "a\xff" };

	for (size_t i = 0; i < array_size(bad); i++)
		ck_assert_msg(!utf8_valid(bad[i], strlen(bad[i])), "case %zu", i);
	ck_assert(utf8_valid("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10));
	ck_assert(utf8_valid("\0", 1));
	ck_assert(utf8_valid("", 0));
}
END_TEST

static const struct {
	const char *text;
	uint32_t point;
} points[] = {
	{ "a", 'a' },
	{ "\x7f", 0x7f },
	{ "\xc2\x80", 0x80 },
	{ "\xdf\xbf", 0x7ff },
	{ "\xe0\xa0\x80", 0x800 },
	{ "\xed\x9f\xbf", 0xd7ff },
	{ "\xee\x80\x80", 0xe000 },
	{ "\xef\xbf\xbf", 0xffff },
	{ "\xf0\x90\x80\x80", 0x10000 },
	{ "\xf4\x8f\xbf\xbf", 0x10ffff },
};

START_TEST(a_character_is_decoded_as_another)
{
	size_t len = strlen(points[_i].text);
	uint32_t point = 1;

	ck_assert_uint_eq(utf8_next(points[_i].text, len, &point), len);
	ck_assert_uint_eq(point, points[_i].point);
	if (len > 1)
		ck_assert_uint_eq(utf8_next(points[_i].text, len - 1, &point), 0);
}
END_TEST

START_TEST(a_control_character_is_shown)
{
	static const uint32_t controls[] = { 0, 0x1f, 0x7f, 0x80, 0x9f };
	static const uint32_t others[] = { 0x20, 0x7e, 0xa0, 0x10ffff };

	for (size_t i = 0; i < array_size(controls); i++)
		ck_assert(utf8_is_control(controls[i]));
	for (size_t i = 0; i < array_size(others); i++)
		ck_assert(!utf8_is_control(others[i]));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("utf8");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, invalid_utf_8_passes_as_valid);
	tcase_add_loop_test(tc, a_character_is_decoded_as_another, 0, array_size(points));
	tcase_add_test(tc, a_control_character_is_shown);
	return suite_run("utf8", tc, NULL);
}
