/* SPDX-License-Identifier: MIT
 *
 * A storm: the daemon is killed or told to end at random moments and starts again with the fds that
 * a stand-in for systemd keeps, while client processes use it and are killed, too. Nothing
 * published may be lost, changed, doubled or left behind. tests/system/RESULTS.md has long runs.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/fds.h"
#include "tests/lib/storm.h"
#include "tests/lib/stormer.h"
#include "tests/lib/suite.h"
#include "tests/lib/supervisor.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

/* Two minutes in CI: one with a driver, one without. */
#define SECONDS 60u

static struct supervisor k;
static struct storm storm;
static unsigned n_crashes, n_stops;

static void connect_now(void)
{
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
}

static void replace_daemon(void)
{
	int signal = storm_choose(&storm, 5) == 0 ? SIGTERM : SIGKILL;

	/* Before this message it may not have its signal handler. */
	if (signal == SIGTERM)
		supervisor_await(&k);
	n_crashes += signal == SIGKILL;
	n_stops += signal == SIGTERM;
	supervisor_end(&k, signal);
	supervisor_spawn(&k);
}

static void rage(unsigned seconds)
{
	time_t end = time(NULL) + seconds;

	while (time(NULL) < end) {
		poll(NULL, 0, 50 + (int)storm_choose(&storm, 450));
		storm_expect_all_alive(&storm);
		if (storm_choose(&storm, 3) > 0)
			replace_daemon();
		if (storm_choose(&storm, 3) > 0)
			storm_kill_client(&storm);
	}
}

/* The daemon is a successor here, like all that come later. */
static void begin(void)
{
	supervisor_init(&k, "");
	k.never_held = true;
	supervisor_start(&k);
	supervisor_end(&k, SIGKILL);
	supervisor_start(&k);
	connect_now();
	storm_measure(&storm, c);
	storm_begin(&storm, k.socket, c);
	c = gpushm_disconnect(c);
}

START_TEST(a_storm_loses_and_leaks_nothing)
{
	size_t pools;

	begin();
	pools = supervisor_count(&k, 'p');
	rage(storm_seconds(SECONDS));
	supervisor_await(&k);
	connect_now();
	storm_end(&storm, c);
	printf("storm: %u SIGKILLs and %u SIGTERMs of the daemon\n", n_crashes, n_stops);
	client_await(supervisor_count(&k, 'm') == 0 && supervisor_count(&k, 't') == 0);
	ck_assert_uint_eq(supervisor_count(&k, 'j'), 1);
	client_await(supervisor_count(&k, 'p') == pools);
	c = gpushm_disconnect(c);
	supervisor_end(&k, SIGTERM);
	supervisor_done(&k);
	/* No process is left. */
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
}
END_TEST

static const struct role roles[] = { { "stormer", stormer_run } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("storm");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, fds_mark, fds_check);
	tcase_set_timeout(t, storm_seconds(SECONDS) + 240);
	tcase_add_test(t, a_storm_loses_and_leaks_nothing);
	return suite_run("storm", t, NULL);
}
