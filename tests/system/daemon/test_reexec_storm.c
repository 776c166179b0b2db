/* SPDX-License-Identifier: MIT
 *
 * A storm over a daemon without a supervisor: it restarts at random moments, by SIGUSR2 or by a
 * client's request, while processes create, publish, open, check, close and unlink buffers, and are
 * killed. Nothing published may be lost, changed, doubled or left behind.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/storm.h"
#include "tests/lib/stormer.h"
#include "tests/lib/suite.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

#define SECONDS 10u

static struct storm storm;
static unsigned n_restarts;

static void restart(void)
{
	/* The daemon would wait for a supervisor that does not read. */
	daemon_forget_notifications(&d);
	if (storm_choose(&storm, 2))
		ck_assert_msg(gpushm_restart(c) == 0, "%s", gpushm_error());
	else
		ck_assert_int_eq(kill(d.pid, SIGUSR2), 0);
	n_restarts++;
}

static void rage(unsigned seconds)
{
	time_t end = time(NULL) + seconds;

	while (time(NULL) < end) {
		poll(NULL, 0, (int)storm_choose(&storm, 150));
		storm_expect_all_alive(&storm);
		restart();
		if (storm_choose(&storm, 4) == 0)
			storm_kill_client(&storm);
	}
}

START_TEST(a_storm_of_restarts_loses_and_leaks_nothing)
{
	storm_begin(&storm, d.socket, c);
	rage(storm_seconds(SECONDS));
	daemon_forget_notifications(&d);
	storm_end(&storm, c);
	printf("storm: %u restarts\n", n_restarts);
	ck_assert_uint_eq(daemon_log_count(&d, "no restart"), 0);
	ck_assert_uint_eq(daemon_log_count(&d, "is lost"), 0);
}
END_TEST

static const struct role roles[] = { { "stormer", stormer_run } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("reexec storm");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, storm_seconds(SECONDS) + 120);
	tcase_add_test(t, a_storm_of_restarts_loses_and_leaks_nothing);
	return suite_run("reexec storm", t, NULL);
}
