/* SPDX-License-Identifier: MIT
 *
 * Percent signs of URIs: what is encoded comes back, in place too, and half a byte is refused.
 */
#include "proto/base/own.h"
#include "proto/base/uri.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

START_TEST(what_is_encoded_is_decoded_in_place)
{
	static const char *const texts[][2] = {
		{ "", "" },
		{ "a/b-c._~", "a/b-c._~" },
		{ "a/b c%\xc3\xa4+", "a/b%20c%25%C3%A4%2B" },
		{ "  x", "%20%20x" },
	};
	char text[64];

	for (size_t i = 0; i < array_size(texts); i++) {
		uri_encode(texts[i][0], strlen(texts[i][0]), URI_PATH, text);
		ck_assert_str_eq(text, texts[i][1]);
		ck_assert(uri_decode(text, text, sizeof(text)));
		ck_assert_str_eq(text, texts[i][0]);
	}
}
END_TEST

START_TEST(what_is_no_byte_or_too_long_is_refused)
{
	static const char *const bad[] = { "%", "a%4", "%4g", "%g4", "%00", "1234" };
	char ret[4];

	for (size_t i = 0; i < array_size(bad); i++)
		ck_assert_msg(!uri_decode(bad[i], ret, sizeof(ret)), "case %zu", i);
	ck_assert(uri_decode("%4A%4b3", ret, sizeof(ret)));
	ck_assert_str_eq(ret, "JK3");
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("uri");

	tcase_add_test(t, what_is_encoded_is_decoded_in_place);
	tcase_add_test(t, what_is_no_byte_or_too_long_is_refused);
	return suite_run("uri", t, NULL);
}
