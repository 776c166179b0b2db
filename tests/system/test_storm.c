/* SPDX-License-Identifier: MIT
 *
 * A storm: processes create, publish, open, check, close and unlink, while the daemon and they
 * themselves are killed at random moments. Nothing that was published may be lost, changed, doubled
 * or left behind. STORM_SECONDS says how long; STORM_SEED, printed by each run, makes the same
 * choices again.
 */
#include "client/gpushm.h"
#include "proto/own.h"
#include "tests/lib/client.h"
#include "tests/lib/keeper.h"
#include "tests/lib/role.h"
#include "tests/lib/stormer.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define CLIENTS 12
#define KILLED_MAX 65536

static struct keeper k;
static struct role_process clients[CLIENTS];
static unsigned ids[CLIENTS], next_id;
static char pool_names[512];
static pid_t killed[KILLED_MAX];
static unsigned n_killed, n_crashes, n_stops;
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
	printf("storm: pools %s\n", pool_names);
}

static void setup(void)
{
	keeper_init(&k, "");
	keeper_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
	name_pools();
	c = gpushm_disconnect(c);
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
		   (const char *[]){ k.socket, id, heir, seed, pool_names, NULL });
}

static void replace_client(unsigned i)
{
	int status;

	kill(clients[i].pid, SIGKILL);
	ck_assert_uint_lt(n_killed, KILLED_MAX);
	killed[n_killed++] = clients[i].pid;
	status = role_wait(&clients[i]);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "client %u ended with status 0x%x", ids[i], status);
	start_client(i);
}

static void replace_daemon(void)
{
	int signal = choose(5) == 0 ? SIGTERM : SIGKILL;

	/* Before that it may not yet have its handler. */
	if (signal == SIGTERM)
		keeper_await(&k);
	n_crashes += signal == SIGKILL;
	n_stops += signal == SIGTERM;
	keeper_end(&k, signal);
	keeper_spawn(&k);
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
		poll(NULL, 0, 50 + (int)choose(450));
		expect_all_alive();
		if (choose(3) > 0)
			replace_daemon();
		if (choose(3) > 0)
			replace_client(choose(CLIENTS));
	}
}

/* ---- the end ---- */

static bool was_killed(pid_t pid)
{
	for (unsigned i = 0; i < n_killed; i++)
		if (killed[i] == pid)
			return true;
	return false;
}

static void check_all(void)
{
	struct gpushm_stat *all = NULL;
	char why[256];
	size_t n = 0;

	ck_assert_msg(gpushm_list(c, "storm/", 0, &all, &n) == 0, "%s", gpushm_error());
	printf("storm: %u SIGKILLs and %u SIGTERMs of the daemon, %u SIGKILLs of clients, %zu "
	       "buffers at the end\n",
	       n_crashes, n_stops, n_killed, n);
	for (size_t i = 0; i < n; i++) {
		ck_assert_msg(stormer_verify_name(c, all[i].name, why, sizeof(why)) == 0, "%s: %s",
			      all[i].name, why);
		ck_assert_msg(!all[i].dirty || was_killed(all[i].dirty_pid),
			      "%s: process %d died as a writer, it is said", all[i].name,
			      all[i].dirty_pid);
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
	     s->peers == 1;
	for (size_t i = 0; i < s->n_usage; i++)
		ok = ok && s->usage[i].bytes == 0 && s->usage[i].buffers == 0 &&
		     s->usage[i].leases == 0 && s->usage[i].peers <= 1;
	gpushm_status_free(s);
	return ok;
}

START_TEST(a_storm_loses_or_leaks_something)
{
	unsigned seed = number_of("STORM_SEED", (unsigned)time(NULL));

	state = seed;
	printf("storm: STORM_SEED=%u\n", seed);
	fflush(stdout);
	for (unsigned i = 0; i < CLIENTS; i++)
		start_client(i);
	rage(number_of("STORM_SECONDS", 20));
	keeper_await(&k);
	for (unsigned i = 0; i < CLIENTS; i++)
		role_finish(&clients[i]);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
	/* Of those that were killed the daemon hears by itself. */
	client_await(stormer_suspects(c) == 0);
	check_all();
	client_await(client_used_bytes() == 0 && only_we_are_left());
	client_await(keeper_count(&k, 'm') == 0 && keeper_count(&k, 't') == 0);
	c = gpushm_disconnect(c);
	keeper_end(&k, SIGTERM);
	keeper_done(&k);
}
END_TEST

static const struct role roles[] = { { "stormer", stormer_run } };

int main(int argc, char **argv)
{
	Suite *s = suite_create("storm");
	TCase *t = tcase_create("storm");
	SRunner *sr = srunner_create(s);
	int failed;

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_set_timeout(t, number_of("STORM_SECONDS", 20) + 240);
	tcase_add_test(t, a_storm_loses_or_leaks_something);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
