/* SPDX-License-Identifier: MIT
 *
 * The common part of the storms. What the daemon can only find out by itself, a death or a closed
 * socket, is waited for; everything else must be right at once.
 */
#include "tests/lib/storm.h"
#include "tests/lib/result.h"

#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/stormer.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

static unsigned number_of(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);

	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

unsigned storm_seconds(unsigned otherwise)
{
	return number_of("STORM_SECONDS", otherwise);
}

unsigned storm_choose(struct storm *s, unsigned n)
{
	return (unsigned)(stormer_random(&s->state) % n);
}

/* ---- clients ---- */

/* Replaces client i, and tells the new client the number of the old one. */
static void start_client(struct storm *s, unsigned i)
{
	char id[16], former[16], seed[32];

	snprintf(former, sizeof(former), "%u", s->ids[i]);
	s->ids[i] = ++s->next_id;
	snprintf(id, sizeof(id), "%u", s->ids[i]);
	snprintf(seed, sizeof(seed), "%lu", (unsigned long)stormer_random(&s->state));
	role_start(&s->clients[i], "stormer",
		   (const char *[]){ s->socket, id, former, seed, s->pools, NULL });
}

static void name_pools(struct storm *s, struct gpushm *conn)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n = 0, len = 0;

	ck_assert_int_eq(gpushm_pools(conn, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		if (!pools[i]->failed)
			len += (size_t)snprintf(s->pools + len, sizeof(s->pools) - len, "%s%s",
						len ? "," : "", pools[i]->name);
	ck_assert(len > 0 && len < sizeof(s->pools));
}

void storm_begin(struct storm *s, const char *socket, struct gpushm *conn)
{
	unsigned seed = number_of("STORM_SEED", (unsigned)time(NULL));

	s->socket = socket;
	s->state = seed;
	name_pools(s, conn);
	printf("storm: STORM_SEED=%u, pools %s\n", seed, s->pools);
	fflush(stdout);
	for (unsigned i = 0; i < STORM_CLIENTS; i++)
		start_client(s, i);
}

void storm_kill_client(struct storm *s)
{
	unsigned i = storm_choose(s, STORM_CLIENTS);
	int status;

	kill(s->clients[i].pid, SIGKILL);
	ck_assert_uint_lt(s->n_killed, STORM_KILLED_MAX);
	s->killed[s->n_killed++] = s->clients[i].pid;
	status = role_wait(&s->clients[i]);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "client %u ended with status 0x%x", s->ids[i], status);
	start_client(s, i);
}

void storm_expect_all_alive(struct storm *s)
{
	for (unsigned i = 0; i < STORM_CLIENTS; i++) {
		siginfo_t info = { 0 };

		ck_assert_int_eq(waitid(P_PID, (id_t)s->clients[i].pid, &info,
					WEXITED | WNOHANG | WNOWAIT),
				 0);
		ck_assert_msg(info.si_pid == 0, "client %u ended by itself: %s %d", s->ids[i],
			      info.si_code == CLD_EXITED ? "status" : "signal", info.si_status);
	}
}

/* ---- fds ---- */

static uint32_t count_fds(struct gpushm *conn)
{
	struct gpushm_status *st = NULL;
	uint32_t fds;

	ck_assert_int_eq(gpushm_flush(conn, NULL), 0);
	ck_assert_int_eq(gpushm_status(conn, &st), 0);
	fds = st->fds;
	gpushm_free(st);
	return fds;
}

void storm_measure(struct storm *s, struct gpushm *conn)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n = 0;

	ck_assert_int_eq(gpushm_pools(conn, &pools, &n), 0);
	for (size_t i = 0; i < n; i++) {
		struct gpushm_create_options o = { .struct_size = sizeof(o),
						   .pool = pools[i]->name };
		struct gpushm_buffer *b = NULL;

		if (!pools[i]->failed && gpushm_create(conn, "measured", 1, &o, &b) == 0)
			ck_assert_int_eq(gpushm_discard(b), 0);
	}
	s->fds = count_fds(conn);
}

/* ---- the end ---- */

static bool was_killed(const struct storm *s, pid_t pid)
{
	for (unsigned i = 0; i < s->n_killed; i++)
		if (s->killed[i] == pid)
			return true;
	return false;
}

static void check_contents(const struct storm *s, struct gpushm *conn,
			   struct gpushm_stat *const *all, size_t n)
{
	char why[256];

	for (size_t i = 0; i < n; i++) {
		if (!all[i]->name[0]) /* a twin */
			continue;
		ck_assert_msg(stormer_verify_name(conn, all[i]->name, why, sizeof(why)) == 0,
			      "%s: %s", all[i]->name, why);
		ck_assert_msg(!all[i]->dirty || was_killed(s, all[i]->dirty_pid),
			      "%s: process %d died as a writer, it is said", all[i]->name,
			      all[i]->dirty_pid);
	}
}

/* No client is active now, and all are one user. */
static void check_sums(struct gpushm *conn, struct gpushm_stat *const *all, size_t n)
{
	struct gpushm_status *st = NULL;
	uint64_t bytes = 0, allocated = 0, leases = 0;

	for (size_t i = 0; i < n; i++) {
		bytes += all[i]->residence == GPUSHM_RESIDENT ? all[i]->bytes : 0;
		allocated += all[i]->allocated_bytes;
		leases += all[i]->readers + all[i]->writers;
	}
	ck_assert_int_eq(gpushm_status(conn, &st), 0);
	ck_assert_uint_eq(st->n_usage, 1);
	ck_assert_uint_eq(st->usage[0]->bytes, bytes);
	ck_assert_uint_eq(st->usage[0]->buffers, n);
	ck_assert_uint_eq(st->usage[0]->leases, leases);
	ck_assert_uint_eq(st->buffers, n);
	ck_assert_uint_eq(st->leases, leases);
	ck_assert_uint_eq(client_used_bytes(), allocated);
	gpushm_free(st);
}

static void check_all(struct storm *s, struct gpushm *conn)
{
	struct gpushm_stat **all = NULL;
	unsigned evicted = 0;
	size_t n = 0;

	ck_assert_msg(gpushm_list(conn, "", 0, &all, &n) == 0, "%s", gpushm_error());
	for (size_t i = 0; i < n; i++)
		evicted += all[i]->residence != GPUSHM_RESIDENT;
	printf("storm: %u clients, %u SIGKILLs of them, %zu buffers at the end, %u of them "
	       "evicted\n",
	       s->next_id, s->n_killed, n, evicted);
	check_sums(conn, all, n);
	check_contents(s, conn, all, n);
	for (size_t i = 0; i < n; i++)
		if (all[i]->name[0])
			ck_assert_int_eq(gpushm_unlink(conn, all[i]->name), 0);
	gpushm_free(all);
}

static bool only_we_are_left(struct gpushm *conn)
{
	struct gpushm_status *st = NULL;
	bool ok;

	ck_assert_int_eq(gpushm_status(conn, &st), 0);
	ok = st->buffers == 0 && st->leases == 0 && st->suspects == 0 && st->waiting == 0 &&
	     st->peers == 1 && st->n_usage == 1 && st->usage[0]->bytes == 0 &&
	     st->usage[0]->buffers == 0 && st->usage[0]->leases == 0 && st->usage[0]->peers == 1;
	gpushm_free(st);
	return ok;
}

void storm_end(struct storm *s, struct gpushm *conn)
{
	for (unsigned i = 0; i < STORM_CLIENTS; i++)
		role_finish(&s->clients[i]);
	client_await(stormer_suspects(conn) == 0);
	check_all(s, conn);
	client_await(client_used_bytes() == 0 && only_we_are_left(conn));
	/* A mempool of an earlier daemon is closed when it is looked up the next time. */
	client_await(!s->fds || count_fds(conn) <= s->fds);
}
