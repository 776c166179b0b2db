/* SPDX-License-Identifier: MIT
 *
 * Error codes: each has a name and an errno, and a fault's text is safe to print.
 */
#include "proto/base/own.h"
#include "proto/code.h"
#include "proto/name.h"
#include "tests/lib/fds.h"

#include "gpushm.pb-c.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

START_TEST(each_code_of_the_protocol_has_a_name_and_an_errno)
{
	const ProtobufCEnumDescriptor *d = &gpushm__proto__code__descriptor;

	ck_assert_uint_eq(d->n_values, CODE_COUNT);
	for (unsigned i = 1; i < d->n_values; i++) {
		const char *name = d->values[i].name + strlen("CODE_");

		ck_assert_str_eq(code_name(d->values[i].value), name);
		ck_assert_int_gt(code_to_errno(d->values[i].value), 0);
	}
}
END_TEST

START_TEST(the_errno_is_what_the_protocol_says)
{
	ck_assert_int_eq(code_to_errno(CODE_OK), 0);
	ck_assert_int_eq(code_to_errno(CODE_BAD_REQUEST), EINVAL);
	ck_assert_int_eq(code_to_errno(CODE_NOT_FOUND), ENOENT);
	ck_assert_int_eq(code_to_errno(CODE_LIMIT), EDQUOT);
	ck_assert_int_eq(code_to_errno(CODE_LAYOUT), ERANGE);
	ck_assert_int_eq(code_to_errno(CODE_UNIDENTIFIED), EPERM);
}
END_TEST

START_TEST(a_code_of_a_later_version_is_unknown)
{
	const int codes[] = { -1, CODE_COUNT, CODE_COUNT + 1, 0x7fffffff, -0x7fffffff - 1 };

	for (size_t i = 0; i < array_size(codes); i++) {
		ck_assert_int_eq(code_to_errno(codes[i]), EIO);
		ck_assert_str_eq(code_name(codes[i]), "UNKNOWN");
	}
}
END_TEST

START_TEST(a_fault_has_its_code_and_its_text)
{
	struct fault f;

	ck_assert_int_eq(fault(&f, CODE_EXISTS, "buffer \"%s\": the name is taken", "m/a"),
			 -EEXIST);
	ck_assert_int_eq(f.code, CODE_EXISTS);
	ck_assert_str_eq(f.text, "buffer \"m/a\": the name is taken");
}
END_TEST

START_TEST(a_long_fault_is_cut_between_characters)
{
	struct fault f;
	char text[1024];

	for (size_t shift = 0; shift < 4; shift++) {
		memset(text, 'x', shift);
		for (size_t i = shift; i + 4 < sizeof(text); i += 4)
			memcpy(text + i, "\xf0\x9f\x98\x80", 5);
		fault(&f, CODE_NAME, "%s", text);
		ck_assert_uint_ge(strlen(f.text), sizeof(f.text) - 4);
		ck_assert_ptr_null(name_check_text(f.text, strlen(f.text)));
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("code");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, each_code_of_the_protocol_has_a_name_and_an_errno);
	tcase_add_test(tc, the_errno_is_what_the_protocol_says);
	tcase_add_test(tc, a_code_of_a_later_version_is_unknown);
	tcase_add_test(tc, a_fault_has_its_code_and_its_text);
	tcase_add_test(tc, a_long_fault_is_cut_between_characters);
	return suite_run("code", tc, NULL);
}
