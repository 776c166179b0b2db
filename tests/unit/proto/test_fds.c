/* SPDX-License-Identifier: MIT
 *
 * The counter of fds: the leaks that it must see. One test leaks on purpose inside a whole Check
 * run of its own, and that run must report a failure.
 */
#include "tests/lib/fds.h"

#include "proto/base/own.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>

START_TEST(an_fd_left_open_is_counted)
{
	int fd;

	fds_mark();
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(fds_leaked(), 1);
	close(fd);
	ck_assert_int_eq(fds_leaked(), 0);
}
END_TEST

START_TEST(an_fd_closed_by_mistake_is_counted)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	fds_mark();
	close(fd);
	ck_assert_int_eq(fds_leaked(), 1);
}
END_TEST

START_TEST(a_number_that_became_another_file_is_counted)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	fds_mark();
	close(fd);
	ck_assert_int_eq(open("/dev/zero", O_RDONLY | O_CLOEXEC), fd);
	ck_assert_int_eq(fds_leaked(), 1);
	close(fd);
}
END_TEST

START_TEST(leaks_on_purpose)
{
	ck_assert_int_ge(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
}
END_TEST

START_TEST(leaks_nothing)
{
	close(open("/dev/null", O_RDONLY | O_CLOEXEC));
}
END_TEST

/* How many of the given test's runs fail, with the fixture that every suite uses. */
static int failures_of(const TTest *test)
{
	Suite *s = suite_create("inner");
	TCase *tc = tcase_create("inner");
	SRunner *sr;
	int n;

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, test);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_SILENT);
	n = srunner_ntests_failed(sr);
	srunner_free(sr);
	return n;
}

int main(void)
{
	TCase *tc = tcase_create("fds");

	/* Outside of a test, because a Check run does not nest. */
	if (failures_of(leaks_on_purpose) != 1 || failures_of(leaks_nothing) != 0)
		return EXIT_FAILURE;

	tcase_add_test(tc, an_fd_left_open_is_counted);
	tcase_add_test(tc, an_fd_closed_by_mistake_is_counted);
	tcase_add_test(tc, a_number_that_became_another_file_is_counted);
	return suite_run("fds", tc, NULL);
}
