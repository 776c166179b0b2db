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

START_TEST(invalid_utf_8_is_refused)
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

START_TEST(each_character_is_decoded_as_itself)
{
	size_t len = strlen(points[_i].text);
	uint32_t point = 1;

	ck_assert_uint_eq(utf8_next(points[_i].text, len, &point), len);
	ck_assert_uint_eq(point, points[_i].point);
	if (len > 1)
		ck_assert_uint_eq(utf8_next(points[_i].text, len - 1, &point), 0);
}
END_TEST

START_TEST(control_characters_are_recognized)
{
	static const uint32_t controls[] = { 0, 0x1f, 0x7f, 0x80, 0x9f };
	static const uint32_t others[] = { 0x20, 0x7e, 0xa0, 0x10ffff };

	for (size_t i = 0; i < array_size(controls); i++)
		ck_assert(utf8_is_control(controls[i]));
	for (size_t i = 0; i < array_size(others); i++)
		ck_assert(!utf8_is_control(others[i]));
}
END_TEST

/* One of each group: zero width, direction, separators, byte order mark, variation selectors, tags
 * that spell text which nobody sees. */
START_TEST(invisible_characters_are_unsafe)
{
	static const uint32_t unsafe[] = { 0,	   0x1b,    0x9b,    0xad,    0x34f,   0x61c,
					   0x115f, 0x180e,  0x200b,  0x200d,  0x200f,  0x2028,
					   0x2029, 0x202a,  0x202e,  0x2060,  0x2066,  0x2069,
					   0x206f, 0x3164,  0xfe0f,  0xfeff,  0xffa0,  0xfff9,
					   0xfffb, 0x1bca0, 0x1d17a, 0xe0001, 0xe0041, 0xe01ef };
	static const uint32_t safe[] = { ' ',	 '~',	  0xa0,	   0xe9,   0x301,  0x620,
					 0x3bb,	 0x2010,  0x2027,  0x20ac, 0x3042, 0xfe10,
					 0xfffd, 0x1f600, 0xdfffd, 0xe1000 };

	for (size_t i = 0; i < array_size(unsafe); i++)
		ck_assert_msg(utf8_is_unsafe(unsafe[i]), "U+%04X", unsafe[i]);
	for (size_t i = 0; i < array_size(safe); i++)
		ck_assert_msg(!utf8_is_unsafe(safe[i]), "U+%04X", safe[i]);
}
END_TEST

/* Unicode reserves two at the end of each plane, and 32 others. */
START_TEST(points_that_are_no_characters_are_unsafe)
{
	for (uint32_t plane = 0; plane <= 0x100000; plane += 0x10000) {
		ck_assert(utf8_is_unsafe(plane | 0xfffe));
		ck_assert(utf8_is_unsafe(plane | 0xffff));
	}
	for (uint32_t point = 0xfdcf; point <= 0xfdf0; point++)
		ck_assert_int_eq(utf8_is_unsafe(point), point != 0xfdcf && point != 0xfdf0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("utf8");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, invalid_utf_8_is_refused);
	tcase_add_loop_test(tc, each_character_is_decoded_as_itself, 0, array_size(points));
	tcase_add_test(tc, control_characters_are_recognized);
	tcase_add_test(tc, invisible_characters_are_unsafe);
	tcase_add_test(tc, points_that_are_no_characters_are_unsafe);
	return suite_run("utf8", tc, NULL);
}
