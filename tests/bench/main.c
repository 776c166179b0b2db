/* SPDX-License-Identifier: MIT
 *
 * gpushm-bench: the cost of gpushm above the calls that any program must make. It uses the tests'
 * helpers, and so runs inside of a Check test. Everything must run; no bound on time decides.
 */
#include "tests/bench/bench.h"

#include "proto/base/own.h"
#include "tests/lib/role.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct bench bench;

static void write_json(const struct bench *b)
{
	FILE *f = strcmp(b->o.json, "-") == 0 ? stdout : fopen(b->o.json, "we");

	if (!f)
		ck_abort_msg("%s: %s", b->o.json, strerror(errno));
	json_write(b, f);
	if (f != stdout)
		fclose(f);
}

static void write_all(const struct bench *b)
{
	if (!b->o.json || strcmp(b->o.json, "-") != 0)
		text_write(b, stdout);
	if (b->o.json)
		write_json(b);
}

START_TEST(everything_runs)
{
	bench_begin(&bench);
	ask_run(&bench);
	count_run(&bench);
	attach_run(&bench);
	create_run(&bench);
	rate_run(&bench);
	kernel_run(&bench);
	death_run(&bench);
	start_run(&bench);
	scale_run(&bench);
	write_all(&bench);
	bench_end(&bench);
}
END_TEST

int main(int argc, char **argv)
{
	const struct role roles[] = { floor_role, holder_role };
	Suite *s = suite_create("bench");
	TCase *t = tcase_create("bench");
	SRunner *runner;
	int failed;

	role_dispatch(argc, argv, roles, array_size(roles));
	options_parse(argc, argv, &bench.o);
	tcase_add_test(t, everything_runs);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_SILENT);
	srunner_print(runner, bench.o.json ? CK_SILENT : CK_MINIMAL);
	failed = srunner_ntests_failed(runner);
	if (failed)
		srunner_print(runner, CK_NORMAL);
	srunner_free(runner);
	return failed != 0;
}
