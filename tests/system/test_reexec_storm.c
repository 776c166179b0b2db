/* SPDX-License-Identifier: MIT
 *
 * A storm over a daemon that nobody keeps anything for: it restarts at random moments, asked by
 * SIGUSR2 or by a client, while processes create, publish, open, check, close and unlink, and are
 * killed. Nothing that was published may be lost, changed, doubled or left behind. STORM_SECONDS
 * says how long; STORM_SEED, printed by each run, makes the same choices again.
 */
#include "client/gpushm.h"
#include "proto/own.h"
#include "tests/lib/client.h"
#include "tests/lib/role.h"
#include "tests/lib/stormer.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define CLIENTS 10

static struct role_process clients[CLIENTS];
static unsigned ids[CLIENTS], next_id, n_restarts, n_killed;
static char pool_names[512];
static uint64_t state;

static unsigned number_of(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);

	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static unsigned choose(unsigned n)
{
	return (unsigned)(stormer_random(&state) % n);
}

static void name_pools(void)
{
	_cleanup_(free_ptr) struct gpushm_pool *pools = NULL;
	size_t n = 0, len = 0;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		if (!pools[i].failed)
			len += (size_t)snprintf(pool_names + len, sizeof(pool_names) - len, "%s%s",
						len ? "," : "", pools[i].name);
	ck_assert(len > 0 && len < sizeof(pool_names));
}

/* The one in place i comes after the one that was there, if there was one. */
static void start_client(unsigned i)
{
	char id[16], heir[16], seed[32];

	snprintf(heir, sizeof(heir), "%u", ids[i]);
	ids[i] = ++next_id;
	snprintf(id, sizeof(id), "%u", ids[i]);
	snprintf(seed, sizeof(seed), "%lu", (unsigned long)stormer_random(&state));
	role_start(&clients[i], "stormer",
		   (const char *[]){ d.socket, id, heir, seed, pool_names, NULL });
}

static void replace_client(unsigned i)
{
	int status;

	kill(clients[i].pid, SIGKILL);
	status = role_wait(&clients[i]);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "client %u ended with status 0x%x", ids[i], status);
	n_killed++;
	start_client(i);
}

static void restart(void)
{
	/* It would wait for a supervisor that does not read. */
	daemon_forget_notifications(&d);
	if (choose(2))
		ck_assert_msg(gpushm_restart(c) == 0, "%s", gpushm_error());
	else
		ck_assert_int_eq(kill(d.pid, SIGUSR2), 0);
	n_restarts++;
}

static void expect_all_alive(void)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		siginfo_t info = { 0 };

		ck_assert_int_eq(waitid(P_PID, (id_t)clients[i].pid, &info,
					WEXITED | WNOHANG | WNOWAIT),
				 0);
		ck_assert_msg(info.si_pid == 0, "client %u ended by itself: %s %d", ids[i],
			      info.si_code == CLD_EXITED ? "status" : "signal", info.si_status);
	}
}

static void rage(unsigned seconds)
{
	time_t end = time(NULL) + seconds;

	while (time(NULL) < end) {
		poll(NULL, 0, (int)choose(150));
		expect_all_alive();
		restart();
		if (choose(4) == 0)
			replace_client(choose(CLIENTS));
	}
}

static void check_all(void)
{
	struct gpushm_stat *all = NULL;
	char why[256];
	size_t n = 0;

	ck_assert_msg(gpushm_list(c, "", 0, &all, &n) == 0, "%s", gpushm_error());
	printf("storm: %u restarts, %u SIGKILLs of clients, %zu buffers at the end\n", n_restarts,
	       n_killed, n);
	for (size_t i = 0; i < n; i++) {
		ck_assert_msg(stormer_verify_name(c, all[i].name, why, sizeof(why)) == 0, "%s: %s",
			      all[i].name, why);
		ck_assert_int_eq(gpushm_unlink(c, all[i].name), 0);
	}
	gpushm_stat_free(all, n);
}

static bool only_we_are_left(void)
{
	struct gpushm_status *s = NULL;
	bool ok;

	ck_assert_int_eq(gpushm_status(c, &s), 0);
	ok = s->buffers == 0 && s->leases == 0 && s->suspects == 0 && s->waiting == 0 &&
	     s->peers == 1 && s->n_usage == 1 && s->usage[0].bytes == 0 &&
	     s->usage[0].buffers == 0 && s->usage[0].leases == 0 && s->usage[0].peers == 1;
	gpushm_status_free(s);
	return ok;
}

START_TEST(a_storm_of_restarts_loses_or_leaks_something)
{
	unsigned seed = number_of("STORM_SEED", (unsigned)time(NULL));

	state = seed;
	name_pools();
	printf("storm: STORM_SEED=%u, pools %s\n", seed, pool_names);
	fflush(stdout);
	for (unsigned i = 0; i < CLIENTS; i++)
		start_client(i);
	rage(number_of("STORM_SECONDS", 10));
	for (unsigned i = 0; i < CLIENTS; i++)
		role_finish(&clients[i]);
	daemon_forget_notifications(&d);
	/* Of those that were killed the daemon hears by itself. */
	client_await(stormer_suspects(c) == 0);
	check_all();
	client_await(client_used_bytes() == 0 && only_we_are_left());
	ck_assert_uint_eq(daemon_log_count(&d, "no restart"), 0);
	ck_assert_uint_eq(daemon_log_count(&d, "is lost"), 0);
}
END_TEST

static const struct role roles[] = { { "stormer", stormer_run } };

int main(int argc, char **argv)
{
	Suite *s = suite_create("reexec storm");
	TCase *t = tcase_create("reexec storm");
	SRunner *sr = srunner_create(s);
	int failed;

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, number_of("STORM_SECONDS", 10) + 120);
	tcase_add_test(t, a_storm_of_restarts_loses_or_leaks_something);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
