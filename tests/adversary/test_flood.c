/* SPDX-License-Identifier: MIT
 *
 * Clients that send too much, read too little, or die in the middle. The daemon's memory and fds
 * stay bounded, another client is served meanwhile, and at the end nothing is left.
 */
#include "proto/base/own.h"
#include "tests/lib/counted.h"
#include "tests/lib/raw.h"
#include "tests/lib/result.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MANY 10000
#define GROWTH_MAX 32768 /* KiB; includes freed memory that a sanitizer keeps */

#define GPU(kind) "[pool " kind "]\nkind=" kind "\npending-max-age=0\n"
/* Without a driver the last three pools have failed. */
#define CONFIG "[daemon]\ndefault-pool=host\n" CENSUS_CONFIG GPU("vmm") GPU("mempool") GPU("pinned")

static void setup(void)
{
	counted_setup(CONFIG);
}

/* c is the honest client. */
static void honest_client_is_served(void)
{
	ck_assert_int_eq(gpushm_wait(c, "nobody's", 0), -ENOENT);
}

/* ---- floods ---- */

START_TEST(a_client_that_floods_the_daemon_is_disconnected)
{
	unsigned char frame[FRAME_MAX];
	size_t len = raw_pack(REQUEST(STATUS, Status, status), frame);
	struct raw r;
	int answers, sent = 0;

	raw_greet(&r, d.socket);
	while (sent < 200 && raw_send(&r, frame, len) == 0)
		sent++;
	honest_client_is_served();
	/* The client does not read before the daemon has logged that. */
	while (daemon_log_count(&d, "before it had read the last answer") == 0)
		honest_client_is_served();
	answers = raw_await_end(&r);
	ck_assert_int_lt(answers, sent);
	ck_assert_uint_eq(census_violations(&d, c), 1);
	ck_assert_uint_eq(daemon_log_count(&d, "before it had read the last answer"), 1);
	raw_close(&r);
}
END_TEST

START_TEST(others_are_served_beside_unread_replies)
{
	enum { N = 50 };
	struct raw all[N];

	for (int i = 0; i < N; i++) {
		raw_greet(&all[i], d.socket);
		ck_assert_int_eq(raw_request(&all[i], REQUEST(POOLS, Pools, pools)), 0);
	}
	for (int i = 0; i < N; i++)
		honest_client_is_served();
	for (int i = 0; i < N; i++)
		raw_close(&all[i]);
}
END_TEST

START_TEST(a_client_that_hangs_up_before_a_reply_leaks_no_fds)
{
	struct gpushm_buffer *b = NULL;
	struct raw r;

	ck_assert_int_eq(gpushm_create(c, "x", 100, NULL, &b), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	for (int i = 0; i < 300; i++) {
		raw_greet(&r, d.socket);
		raw_open(&r, "x");
		ck_assert_int_eq(raw_request(&r, REQUEST(CLOSE, Close, close,
							 SET(lease, r.reply->attach->lease))),
				 0);
		raw_close(&r);
	}
	honest_client_is_served();
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

START_TEST(others_are_served_beside_silent_connections)
{
	enum { N = 200 };
	static struct raw all[N];
	struct gpushm *other = NULL;

	for (int i = 0; i < N; i++)
		raw_connect(&all[i], d.socket);
	honest_client_is_served();
	ck_assert_int_eq(gpushm_connect(d.socket, &other), 0);
	gpushm_disconnect(other);
	for (int i = 0; i < N; i++)
		raw_close(&all[i]);
}
END_TEST

/* Sends each request that changes nothing or is refused MANY times; the daemon's RSS must not grow.
 */
static void repeat(struct raw *r, const Gpushm__Proto__Request *q, int code)
{
	long rss = 0;

	for (int i = 0; i < MANY; i++) {
		ck_assert_int_eq(raw_call(r, q), code);
		if (i == MANY / 2)
			rss = census_rss(&d);
		if (i % 1000 == 0)
			honest_client_is_served();
	}
	ck_assert_int_lt(census_rss(&d) - rss, GROWTH_MAX);
}

START_TEST(ten_thousand_requests_cost_no_memory)
{
	const uint64_t no_lease = 1;
	struct raw r;

	raw_greet(&r, d.socket);
	repeat(&r, REQUEST(HELLO, Hello, hello, SET(version_min, 1), SET(version_max, 1)),
	       CODE_BAD_REQUEST);
	repeat(&r, REQUEST(CREATE, Create, create, BYTES(name, "x"), SET(size_bytes, UINT64_MAX)),
	       CODE_TOO_LARGE);
	repeat(&r, REQUEST(DESCRIBE, Describe, describe, SET(lease, no_lease)), CODE_NO_LEASE);
	repeat(&r, REQUEST(PUBLISH, Publish, publish, SET(lease, no_lease), SET(state, 2)),
	       CODE_NO_LEASE);
	repeat(&r, REQUEST(OPEN, Open, open, BYTES(name, "x")), CODE_NOT_FOUND);
	repeat(&r, REQUEST(CLOSE, Close, close, SET(lease, no_lease)), CODE_NO_LEASE);
	repeat(&r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x")), CODE_NOT_FOUND);
	repeat(&r, REQUEST(STAT, Stat, stat, BYTES(name, "x")), CODE_NOT_FOUND);
	repeat(&r, REQUEST(LIST, List, list), 0);
	repeat(&r, REQUEST(POOLS, Pools, pools), 0);
	repeat(&r, REQUEST(STATUS, Status, status), 0);
	raw_close(&r);
}
END_TEST

START_TEST(ten_thousand_buffer_lives_leave_nothing)
{
	struct census with_us;
	struct raw r;
	uint64_t lease;
	long rss = 0;

	raw_greet(&r, d.socket);
	census_take(&d, c, &with_us);
	for (int i = 0; i < MANY; i++) {
		lease = raw_create(&r, "x", 5000);
		raw_publish(&r, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
		ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
		lease = raw_open(&r, "x");
		ck_assert_int_eq(raw_call(&r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x"))),
				 0);
		ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
		if (i == MANY / 2)
			rss = census_rss(&d);
		if (i % 1000 == 0)
			honest_client_is_served();
	}
	ck_assert_int_lt(census_rss(&d) - rss, GROWTH_MAX);
	census_await(&d, c, &with_us);
	raw_close(&r);
}
END_TEST

/* ---- deaths ---- */

/* socket step: plays the session up to this step, prints ok, waits to be killed. */
static int dying_role(char **args)
{
	int step = atoi(args[1]);
	struct raw r;
	uint64_t lease;

	raw_connect(&r, args[0]);
	if (step >= 1)
		raw_request(&r,
			    REQUEST(HELLO, Hello, hello, SET(version_min, 1), SET(version_max, 1)));
	if (step >= 2)
		raw_receive(&r);
	if (step == 3)
		raw_request(&r, REQUEST(CREATE, Create, create, BYTES(name, "dying"),
					SET(size_bytes, 100)));
	if (step == 4)
		raw_create(&r, "dying", 100);
	if (step == 5)
		raw_request(&r, REQUEST(OPEN, Open, open, BYTES(name, "never"),
					SET(wait_ms, UINT64_MAX)));
	if (step == 6)
		raw_request(&r, REQUEST(STAT, Stat, stat, BYTES(name, "never"),
					SET(wait_ms, UINT64_MAX)));
	if (step == 7)
		raw_request(&r, REQUEST(OPEN, Open, open, BYTES(name, "there")));
	if (step == 8)
		raw_open(&r, "there");
	if (step == 9) {
		lease = raw_create(&r, "dying", 100);
		raw_request(&r, REQUEST(PUBLISH, Publish, publish, SET(lease, lease),
					SET(state, GPUSHM__PROTO__STATE__STATE_SHARED)));
	}
	puts("ok");
	return getchar();
}

enum { STEPS = 10 };

/* socket pool: closes its receiving side while its memory is being allocated, and waits until the
 * daemon has noticed; or closes the connection, where it is a race whether the reply comes first.
 */
static int late_role(char **args)
{
	struct pollfd p = { 0 };
	char name[32];
	struct raw r;

	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "late/%d", i);
		raw_greet(&r, args[0]);
		if (i % 2)
			shutdown(r.socket, SHUT_RD);
		raw_request(&r, REQUEST(CREATE, Create, create, BYTES(name, name),
					BYTES(pool, args[1]), SET(size_bytes, 100)));
		p.fd = r.socket;
		if (i % 2 && poll(&p, 1, 60000) != 1)
			return 1;
		raw_close(&r);
	}
	puts("ok");
	return 0;
}

static const struct role roles[] = { { "dying", dying_role }, { "late", late_role } };

static void die_at(int step)
{
	struct role_process p;
	char text[12], line[16];

	snprintf(text, sizeof(text), "%d", step);
	role_start(&p, "dying", (const char *[]){ d.socket, text, NULL });
	role_read_line(&p, line, sizeof(line));
	ck_assert_int_eq(kill(p.pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(&p)));
}

START_TEST(a_dead_client_leaves_nothing)
{
	struct gpushm_buffer *b = NULL;
	struct census ours;

	ck_assert_int_eq(gpushm_create(c, "there", 100, NULL, &b), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	census_take(&d, c, &ours);
	for (int round = 0; round < 5; round++) {
		for (int step = 0; step < STEPS; step++) {
			die_at(step);
			/* At the last step the buffer may be published already. */
			if (step == STEPS - 1)
				gpushm_unlink(c, "dying");
			census_await(&d, c, &ours);
			honest_client_is_served();
		}
	}
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "there"), 0);
}
END_TEST

static uint64_t used_bytes(void)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	uint64_t sum = 0;
	size_t n = 0;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		sum += pools[i]->used_bytes;
	return sum;
}

START_TEST(a_buffer_for_a_closed_connection_is_freed)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	struct role_process p;
	char line[16];
	size_t n = 0;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++) {
		if (pools[i]->failed)
			continue;
		role_start(&p, "late", (const char *[]){ d.socket, pools[i]->name, NULL });
		role_read_line(&p, line, sizeof(line));
		honest_client_is_served();
		role_finish(&p);
		while (used_bytes() != 0)
			honest_client_is_served();
	}
	/* What a pool allocates at its first use and keeps is not lost. */
	if (n > 1 && !pools[1]->failed)
		before.fds = 0;
}
END_TEST

START_TEST(waiting_clients_are_served_unless_they_disconnect)
{
	enum { N = 100 };
	static struct raw all[N];
	struct gpushm_buffer *b = NULL;
	struct census now;

	for (int i = 0; i < N; i++) {
		raw_greet(&all[i], d.socket);
		raw_request(&all[i], REQUEST(OPEN, Open, open, BYTES(name, "late"),
					     SET(wait_ms, i % 2 ? UINT64_MAX : UINT64_MAX - 1)));
	}
	do
		census_take(&d, c, &now);
	while (now.waiting < N);
	/* Every other client disconnects, and the rest are served. */
	for (int i = 0; i < N; i += 2)
		raw_close(&all[i]);
	ck_assert_int_eq(gpushm_create(c, "late", 100, NULL, &b), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	for (int i = 1; i < N; i += 2) {
		ck_assert_int_eq(raw_receive(&all[i]), 0);
		ck_assert_int_eq(raw_call(&all[i],
					  REQUEST(CLOSE, Close, close,
						  SET(lease, all[i].reply->attach->lease))),
				 0);
		raw_close(&all[i]);
	}
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "late"), 0);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("too much"), *u = tcase_create("deaths");

	role_dispatch(argc, argv, roles, array_size(roles));
	suite_alone();
	tcase_add_checked_fixture(t, setup, counted_teardown);
	tcase_add_checked_fixture(u, setup, counted_teardown);
	tcase_set_timeout(t, 300);
	tcase_set_timeout(u, 300);
	tcase_add_test(t, a_client_that_floods_the_daemon_is_disconnected);
	tcase_add_test(t, others_are_served_beside_unread_replies);
	tcase_add_test(t, a_client_that_hangs_up_before_a_reply_leaks_no_fds);
	tcase_add_test(t, others_are_served_beside_silent_connections);
	tcase_add_test(t, ten_thousand_requests_cost_no_memory);
	tcase_add_test(t, ten_thousand_buffer_lives_leave_nothing);
	tcase_add_test(u, a_dead_client_leaves_nothing);
	tcase_add_test(u, a_buffer_for_a_closed_connection_is_freed);
	tcase_add_test(u, waiting_clients_are_served_unless_they_disconnect);
	return suite_run("flood", t, u, NULL);
}
