/* SPDX-License-Identifier: MIT
 *
 * The rule for names: one table of valid names and one of invalid names, for each kind.
 */
#include "proto/base/own.h"
#include "proto/limits.h"
#include "proto/name.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

struct text {
	const char *bytes;
	size_t len;
};

#define T(s)                     \
	{                        \
		s, sizeof(s) - 1 \
	}

static void all_pass(const char *(*check)(const void *, size_t), const struct text *texts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *wrong = check(texts[i].bytes, texts[i].len);

		ck_assert_msg(!wrong, "%zu \"%s\": %s", i, texts[i].bytes, wrong);
	}
}

static void all_fail(const char *(*check)(const void *, size_t), const struct text *texts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(check(texts[i].bytes, texts[i].len), "%zu \"%s\" passed", i,
			      texts[i].bytes);
}

static const struct text right[] = {
	T("a"),
	T("m/llama"),
	T("a/b/c"),
	T("..."),
	T(".a"),
	T("a."),
	T("a/...b"),
	T("white space"),
	T("a~"),
	T("a/~b"),
	T("\x20\x7e"),
	T("\xc2\xa0"),	       /* U+00A0, the first after the C1 controls */
	T("\xdf\xbf"),	       /* U+07FF */
	T("\xe0\xa0\x80"),     /* U+0800 */
	T("\xed\x9f\xbf"),     /* U+D7FF */
	T("\xee\x80\x80"),     /* U+E000 */
	T("\xef\xbf\xbf"),     /* U+FFFF */
	T("\xf0\x90\x80\x80"), /* U+10000 */
	T("\xf4\x8f\xbf\xbf"), /* U+10FFFF */
	T("caf\xc3\xa9/\xe6\xa8\xa1"),
};

static const struct text wrong_bytes[] = {
	T("\0"),
	T("a\0b"),
	T("\x1f"),
	T("a\nb"),
	T("a\x1b[31m"),
	T("\x7f"),
	T("\xc2\x80"), /* U+0080 */
	T("\xc2\x9f"), /* U+009F */
	T("\x80"),
	T("\xbf"),
	T("\xc0\x80"), /* overlong NUL */
	T("\xc0\xaf"), /* overlong '/' */
	T("\xc1\xbf"),
	T("\xe0\x80\xaf"),
	T("\xe0\x9f\xbf"),
	T("\xf0\x80\x80\xaf"),
	T("\xf0\x8f\xbf\xbf"),
	T("\xed\xa0\x80"), /* surrogates */
	T("\xed\xbf\xbf"),
	T("\xf4\x90\x80\x80"), /* U+110000 */
	T("\xf5\x80\x80\x80"),
	T("\xf8\x88\x80\x80\x80"),
	T("\xfe"),
	T("\xff"),
	T("\xc3"), /* cut */
	T("a\xe6\xa8"),
	T("\xf0\x9f\x98"),
	T("\xc3/"),
	T("\xe6\xa8/\xa1"),
};

static const struct text wrong_components[] = {
	T("/"),	  T("/a"),   T("a/"),  T("a//b"), T("."),     T(".."),
	T("./a"), T("../a"), T("a/."), T("a/.."), T("a/./b"), T("a/../b"),
};

START_TEST(a_valid_name_is_accepted)
{
	all_pass(name_check_buffer, right, array_size(right));
	all_pass(name_check_array, right, array_size(right));
	all_pass(name_check_attr, right, array_size(right));
}
END_TEST

START_TEST(controls_and_malformed_utf8_are_refused)
{
	all_fail(name_check_buffer, wrong_bytes, array_size(wrong_bytes));
	all_fail(name_check_array, wrong_bytes, array_size(wrong_bytes));
	all_fail(name_check_attr, wrong_bytes, array_size(wrong_bytes));
	all_fail(name_check_pool, wrong_bytes, array_size(wrong_bytes));
	all_fail(name_check_text, wrong_bytes, array_size(wrong_bytes));
}
END_TEST

START_TEST(empty_and_dot_components_are_refused)
{
	all_fail(name_check_buffer, wrong_components, array_size(wrong_components));
	all_fail(name_check_array, wrong_components, array_size(wrong_components));
	all_fail(name_check_attr, wrong_components, array_size(wrong_components));
}
END_TEST

START_TEST(a_private_name_is_accepted)
{
	static const struct text names[] = {
		T("~/x"), T("~/x/y"), T("~0/x"), T("~1001/x"), T("~4294967294/x"), T("~/~"),
	};

	all_pass(name_check_buffer, names, array_size(names));
}
END_TEST

START_TEST(an_invalid_private_name_is_refused)
{
	static const struct text names[] = {
		T("~"),	     T("~/"),	  T("~1001"),	      T("~foo"),
		T("~foo/x"), T("~1001/"), T("~-1/x"),	      T("~ /x"),
		T("~01/x"),  T("~00/x"),  T("~4294967295/x"), T("~1x/y"),
		T("~~/x"),   T("~//x"),	  T("~/../x"),	      T("~18446744073709551617/x"),
	};
	static const struct text plain[] = { T("~"), T("~foo"), T("~1001"), T("~01/x") };

	all_fail(name_check_buffer, names, array_size(names));
	/* In the name of an array it is an ordinary character. */
	all_pass(name_check_array, plain, array_size(plain));
	all_pass(name_check_attr, plain, array_size(plain));
}
END_TEST

START_TEST(the_longest_name_is_accepted_and_one_byte_more_is_not)
{
	char name[BUFFER_NAME_MAX + 1];

	memset(name, 'a', sizeof(name));
	ck_assert_ptr_null(name_check_buffer(name, BUFFER_NAME_MAX));
	ck_assert_ptr_null(name_check_array(name, ARRAY_NAME_MAX));
	ck_assert_ptr_null(name_check_attr(name, ARRAY_NAME_MAX));
	ck_assert_ptr_null(name_check_pool(name, POOL_NAME_MAX));
	ck_assert_ptr_nonnull(name_check_buffer(name, BUFFER_NAME_MAX + 1));
	ck_assert_ptr_nonnull(name_check_array(name, ARRAY_NAME_MAX + 1));
	ck_assert_ptr_nonnull(name_check_attr(name, ARRAY_NAME_MAX + 1));
	ck_assert_ptr_nonnull(name_check_pool(name, POOL_NAME_MAX + 1));

	ck_assert_ptr_nonnull(name_check_buffer("", 0));
	ck_assert_ptr_nonnull(name_check_buffer(NULL, 0));
	ck_assert_ptr_null(name_check_array(NULL, 0));
	ck_assert_ptr_nonnull(name_check_attr(NULL, 0));
	ck_assert_ptr_nonnull(name_check_pool(NULL, 0));
}
END_TEST

START_TEST(a_pool_name_with_other_characters_is_refused)
{
	static const struct text good[] = { T("gpu0"), T("gpu0-mempool"), T("A.b_C-9"), T("-") };
	static const struct text bad[] = {
		T("a/b"), T("a b"), T("~"),   T("caf\xc3\xa9"), T("a@b"),
		T("a[b"), T("a`b"), T("a{b"), T("a:b"),		T("a,b")
	};

	all_pass(name_check_pool, good, array_size(good));
	all_fail(name_check_pool, bad, array_size(bad));
}
END_TEST

START_TEST(a_cut_falls_between_characters)
{
	static const struct text texts[] = { T("ab\xc3\xa9"), T("ab\xe6\xa8\xa1"),
					     T("ab\xf0\x9f\x98\x80") };

	for (size_t i = 0; i < array_size(texts); i++) {
		for (size_t len = 0; len < texts[i].len; len++)
			ck_assert_uint_eq(name_cut(texts[i].bytes, len), len < 2 ? len : 2);
		ck_assert_uint_eq(name_cut(texts[i].bytes, texts[i].len), texts[i].len);
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("name");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, a_valid_name_is_accepted);
	tcase_add_test(tc, controls_and_malformed_utf8_are_refused);
	tcase_add_test(tc, empty_and_dot_components_are_refused);
	tcase_add_test(tc, a_private_name_is_accepted);
	tcase_add_test(tc, an_invalid_private_name_is_refused);
	tcase_add_test(tc, the_longest_name_is_accepted_and_one_byte_more_is_not);
	tcase_add_test(tc, a_pool_name_with_other_characters_is_refused);
	tcase_add_test(tc, a_cut_falls_between_characters);
	return suite_run("name", tc, NULL);
}
