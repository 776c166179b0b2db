/* SPDX-License-Identifier: MIT
 *
 * A daemon that ends before it is ready fails its test at once, with the reason, instead of after a
 * minute without one. Each case is a whole Check run of its own that must fail.
 */
#include "tests/lib/daemon.h"
#include "tests/lib/suite.h"
#include "tests/lib/supervisor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The forked test fills it, and its folders are removed here. */
static struct {
	struct daemon daemon;
	struct supervisor supervisor;
} * shared;

START_TEST(starts_with_a_wrong_configuration)
{
	daemon_start(&shared->daemon, "[nonsense]\n", NULL);
}
END_TEST

START_TEST(starts_a_program_that_is_not_there)
{
	daemon_start_with(&shared->daemon, "", &(struct daemon_options){ .program = "nonsense" });
}
END_TEST

START_TEST(is_supervised_with_a_wrong_configuration)
{
	supervisor_init(&shared->supervisor, "[nonsense]\n");
	supervisor_start(&shared->supervisor);
}
END_TEST

static void remove_folder(const char *folder)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	if (folder[0] && system(command) != 0)
		printf("%s is left\n", folder);
}

/* Whether the test failed because the daemon has ended, and says why. */
static bool fails_well(const TTest *test, const char *said)
{
	Suite *s = suite_create("inner");
	TCase *tc = tcase_create("inner");
	SRunner *sr = srunner_create(s);
	TestResult **failures;
	bool well;

	tcase_add_test(tc, test);
	tcase_set_timeout(tc, 100);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_SILENT);
	failures = srunner_failures(sr);
	well = srunner_ntests_failed(sr) == 1 && strstr(tr_msg(failures[0]), "has ended") &&
	       strstr(tr_msg(failures[0]), said);
	if (!well)
		printf("%s\n", srunner_ntests_failed(sr) ? tr_msg(failures[0]) : "no failure");
	free(failures);
	srunner_free(sr);
	remove_folder(shared->daemon.folder);
	remove_folder(shared->supervisor.folder);
	memset(shared, 0, sizeof(*shared));
	return well;
}

START_TEST(each_daemon_that_dies_is_noticed)
{
	ck_assert_int_eq(_i, 1);
}
END_TEST

/* Outside of a test, because a Check run does not nest. */
int main(void)
{
	TCase *tc = tcase_create("daemon_dies");
	bool well = true;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	well = fails_well(starts_with_a_wrong_configuration, "[nonsense]") && well;
	well = fails_well(starts_a_program_that_is_not_there, "No such file or directory") && well;
	well = fails_well(is_supervised_with_a_wrong_configuration, "before it was ready") && well;
	munmap(shared, sizeof(*shared));
	tcase_add_loop_test(tc, each_daemon_that_dies_is_noticed, well, well + 1);
	return suite_run("daemon_dies", tc, NULL);
}
