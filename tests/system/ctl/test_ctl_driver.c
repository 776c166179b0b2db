/* SPDX-License-Identifier: MIT
 *
 * gpushmctl doctor --driver, over a driver with which a fact of proto/facts.h does not hold. No
 * daemon runs here; tests/unit/daemon/test_cuda_pools.c has what the daemon says.
 */
#include "proto/facts.h"
#include "proto/words.h"
#include "tests/lib/fake.h"
#include "tests/lib/fds.h"
#include "tests/lib/shell.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static const struct fact facts[] = { FACTS(FACT_ROW) };
static struct shell sh;

static void setup(void)
{
	fds_mark();
	shell_open(&sh);
}

static void teardown(void)
{
	shell_close(&sh);
	fds_check();
}

/* All processes of the doctor see one small GPU. */
static void run_doctor(const char *broken, int status)
{
	shell_expect(&sh, status,
		     "FAKECUDA_STATE=$PWD/gpus FAKECUDA_MEMORY=64M FAKECUDA_BREAK=%s "
		     "$ctl doctor --driver",
		     broken);
}

/* Of each kind of memory that relies on the fact; returns how many there are. */
static int expect_finding(const char *finding, const struct fact *f)
{
	char line[64];
	int n = 0;

	for (unsigned int kind = 0; kind < KIND_END; kind++) {
		if (!(f->kinds & FACT_OF(kind)))
			continue;
		snprintf(line, sizeof(line), "%-4s  %s-%s ", finding, kind_word(kind), f->name);
		ck_assert_msg(strstr(sh.out, line), "no \"%s\" in: %s", line, sh.out);
		n++;
	}
	return n;
}

static int count(const char *word)
{
	int n = 0;

	for (const char *p = sh.out; (p = strstr(p, word)); p += strlen(word))
		n++;
	return n;
}

START_TEST(each_fact_holds_for_each_kind)
{
	if (!fake_is_here())
		return;
	run_doctor("", 0);
	for (int i = 0; i < FACT_COUNT; i++)
		expect_finding("ok", &facts[i]);
	ck_assert_int_eq(count("not tried"), 0);
}
END_TEST

START_TEST(a_fact_that_does_not_hold_fails_and_no_other)
{
	int n;

	if (!fake_is_here())
		return;
	run_doctor(facts[_i].name, 1);
	n = expect_finding("fail", &facts[_i]);
	ck_assert_int_eq(count(facts[_i].relies), n);
	ck_assert_int_eq(count("fail  "), n);
}
END_TEST

START_TEST(a_driver_that_does_not_start_leaves_facts_untried)
{
	if (!fake_is_here())
		return;
	shell_expect(&sh, 0, "FAKECUDA_DEVICES=0 $ctl doctor --driver");
	for (int i = 0; i < FACT_COUNT; i++)
		expect_finding("warn", &facts[i]);
	ck_assert_int_gt(count("cuInit: CUDA_ERROR_NO_DEVICE"), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ctl_driver");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, each_fact_holds_for_each_kind);
	tcase_add_loop_test(tc, a_fact_that_does_not_hold_fails_and_no_other, 0, FACT_COUNT);
	tcase_add_test(tc, a_driver_that_does_not_start_leaves_facts_untried);
	return suite_run("ctl_driver", tc, NULL);
}
