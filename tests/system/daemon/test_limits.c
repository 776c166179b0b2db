/* SPDX-License-Identifier: MIT
 *
 * Limits of a user, of a pool, and of the daemon's fds. Each limit that is reached gives an error
 * that names it, says how much is used, and what to do; and what is freed can be allocated again.
 */
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "tests/lib/census.h"
#include "tests/lib/raw.h"
#include "tests/lib/run.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define MIB (1u << 20)

static struct daemon d;
static struct gpushm *c;

static void start(const char *config)
{
	daemon_start(&d, config, NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

static void stop(void)
{
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}

static struct gpushm_buffer *create(const char *name, uint64_t bytes)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_create(c, name, bytes, NULL, &b) == 0, "%s", gpushm_error());
	return b;
}

/* The last error has this code, and each of the words in its text. */
static void expect_error(const char *code, const char *const *words)
{
	ck_assert_str_eq(gpushm_error_code(), code);
	for (; *words; words++)
		ck_assert_msg(strstr(gpushm_error(), *words), "\"%s\" does not say \"%s\"",
			      gpushm_error(), *words);
}
#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

#define HOST "[pool host]\nkind=host\nsize=64M\npending-max-age=0\n"

START_TEST(a_limit_of_buffers_is_enforced)
{
	struct gpushm_buffer *a, *b, *more = NULL;

	start(HOST "[limits]\nmax-buffers=2\n");
	a = create("a", 1);
	b = create("b", 1);
	ck_assert_int_eq(gpushm_create(c, "c", 1, NULL, &more), -EDQUOT);
	expect_error("LIMIT", WORDS("limit 2", "2 held", "max-buffers", "unlink"));
	ck_assert_int_eq(gpushm_discard(a), 0);
	ck_assert_int_eq(gpushm_discard(create("c", 1)), 0);
	ck_assert_int_eq(gpushm_discard(b), 0);
	stop();
}
END_TEST

START_TEST(a_limit_of_bytes_is_enforced)
{
	struct gpushm_buffer *a, *more = NULL;

	start(HOST "[limits]\nmax-bytes=1M\n");
	a = create("a", MIB - 100);
	ck_assert_int_eq(gpushm_create(c, "b", 101, NULL, &more), -EDQUOT);
	expect_error("LIMIT",
		     WORDS("101 B more memory", "1023.9 KiB held", "limit 1.0 MiB", "max-bytes"));
	ck_assert_int_eq(gpushm_discard(create("b", 100)), 0);
	ck_assert_int_eq(gpushm_discard(a), 0);
	stop();
}
END_TEST

START_TEST(a_limit_of_leases_is_enforced)
{
	struct gpushm_buffer *a, *b = NULL, *more = NULL;

	start(HOST "[limits]\nmax-leases=2\n");
	a = create("a", 1);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &more), -EDQUOT);
	expect_error("LIMIT", WORDS("limit 2", "max-leases", "close"));
	/* A buffer that could not be leased does not stay. */
	ck_assert_int_eq(gpushm_create(c, "b", 1, NULL, &more), -EDQUOT);
	ck_assert_int_eq(gpushm_wait(c, "b", 0), -ENOENT);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_close(a), 0);
	stop();
}
END_TEST

START_TEST(a_limit_of_connections_is_enforced)
{
	struct gpushm *second = NULL, *third = NULL;

	start(HOST "[limits]\nmax-connections=2\n");
	ck_assert_int_eq(gpushm_connect(d.socket, &second), 0);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(gpushm_connect(d.socket, &third), -EDQUOT);
		expect_error("LIMIT", WORDS("limit 2", "max-connections"));
	}
	gpushm_disconnect(second);
	/* The daemon sees the end of the connection in its next turn. */
	for (int tries = 0; gpushm_connect(d.socket, &third) < 0; tries++)
		ck_assert_int_lt(tries, 1000);
	gpushm_disconnect(third);
	stop();
}
END_TEST

START_TEST(each_refused_connection_gets_the_reason)
{
	enum { N = 20 };
	struct gpushm *second = NULL;
	struct raw all[N];

	start(HOST "[limits]\nmax-connections=2\n");
	ck_assert_int_eq(gpushm_connect(d.socket, &second), 0);
	ck_assert_int_eq(kill(d.pid, SIGSTOP), 0);
	for (int i = 0; i < N; i++) {
		raw_connect(&all[i], d.socket);
		raw_request(&all[i],
			    REQUEST(HELLO, Hello, hello, SET(version_min, 1), SET(version_max, 1)));
	}
	ck_assert_int_eq(kill(d.pid, SIGCONT), 0);
	for (int i = 0; i < N; i++) {
		ck_assert_int_eq(raw_receive(&all[i]), CODE_LIMIT);
		raw_close(&all[i]);
	}
	gpushm_disconnect(second);
	stop();
}
END_TEST

START_TEST(a_pool_gives_no_more_than_it_has)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "nowhere" };
	struct gpushm_buffer *a, *more = NULL;

	start(HOST);
	a = create("a", 60 * MIB);
	ck_assert_int_eq(gpushm_create(c, "b", 5 * MIB, NULL, &more), -ENOSPC);
	expect_error("POOL_FULL", WORDS("host", "5.0 MiB asked", "4.0 MiB of 64.0 MiB free"));
	ck_assert_int_eq(gpushm_create(c, "b", 65 * MIB, NULL, &more), -EFBIG);
	expect_error("TOO_LARGE", WORDS("host", "65.0 MiB asked", "64.0 MiB"));
	ck_assert_int_eq(gpushm_create(c, "b", 1, &o, &more), -ENOENT);
	expect_error("NOT_FOUND", WORDS("nowhere", "there are: host"));
	ck_assert_int_eq(gpushm_discard(a), 0);
	ck_assert_int_eq(gpushm_discard(create("b", 64 * MIB)), 0);
	stop();
}
END_TEST

/* Sizes whose sums, with what is held or after rounding up, overflow 64 bits. */
START_TEST(an_impossibly_large_size_is_refused)
{
	static const uint64_t sizes[] = { UINT64_MAX, UINT64_MAX - 4095, UINT64_MAX / 2 + 2,
					  UINT64_MAX / 2 };
	struct gpushm_buffer *a;
	struct raw r;

	start(HOST);
	a = create("a", 2 * MIB);
	raw_greet(&r, d.socket);
	for (size_t i = 0; i < array_size(sizes); i++) {
		ck_assert_int_eq(raw_call(&r, REQUEST(CREATE, Create, create, BYTES(name, "b"),
						      SET(size_bytes, sizes[i]))),
				 CODE_TOO_LARGE);
		ck_assert_int_eq(gpushm_wait(c, "b", 0), -ENOENT);
	}
	raw_close(&r);
	ck_assert_int_eq(gpushm_discard(create("b", MIB)), 0);
	ck_assert_int_eq(gpushm_discard(a), 0);
	stop();
}
END_TEST

static void expect_status(const char *needs_restart)
{
	struct gpushm_status *s = NULL;
	char text[4096];

	ck_assert_int_eq(gpushm_status(c, &s), 0);
	ck_assert_str_eq(s->needs_restart, needs_restart);
	gpushm_free(s);
	ck_assert_int_eq(run_program(build_path("gpushmctl"),
				     (const char *[]){ "--socket", d.socket, "status", NULL }, text,
				     sizeof(text)),
			 0);
	ck_assert_int_eq(strstr(text, "gpushmctl restart applies ") == NULL,
			 needs_restart[0] == '\0');
}

START_TEST(a_reload_applies_limits_and_logs_what_it_can_not_apply)
{
	struct gpushm_buffer *a, *more = NULL;
	char where[128];

	start(HOST "[limits]\nmax-buffers=1\n");
	a = create("a", 1);
	ck_assert_int_eq(gpushm_create(c, "b", 1, NULL, &more), -EDQUOT);
	daemon_write_config(&d, HOST "[limits]\nmax-buffers=2\n");
	daemon_reload(&d, "configuration reloaded");
	ck_assert_int_eq(gpushm_discard(create("b", 1)), 0);
	/* After a fault the old configuration stays in force, and the log names the line. */
	daemon_write_config(&d, HOST "[limits]\nmax-buffers=none\n");
	daemon_reload(&d, "not reloaded");
	snprintf(where, sizeof(where), "%s:6: ", d.config);
	ck_assert_uint_eq(daemon_log_count(&d, where), 1);
	ck_assert_int_eq(gpushm_discard(create("b", 1)), 0);
	/* The log names what can't be reloaded. */
	daemon_write_config(&d, "[pool host]\nkind=host\nsize=128M\n");
	daemon_reload(&d, "need a restart: ");
	expect_status("[pool host] size");
	/* Also after another reload, which changes nothing. */
	daemon_reload(&d, "need a restart: ");
	expect_status("[pool host] size");
	ck_assert_int_eq(gpushm_create(c, "b", 65 * MIB, NULL, &more), -EFBIG);
	/* Lowering a limit takes nothing away. */
	daemon_write_config(&d, HOST "[limits]\nmax-buffers=1\n");
	daemon_reload(&d, "configuration reloaded");
	expect_status("");
	ck_assert_int_eq(gpushm_create(c, "b", 1, NULL, &more), -EDQUOT);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_close(a), 0);
	stop();
}
END_TEST

/* ---- other users ---- */

enum { THEIRS = 65533, STRANGER = 65529 };

START_TEST(the_limits_of_a_user_apply_only_to_that_user)
{
	struct role_process p, q;
	char text[512];

	start(HOST "[limits]\nmax-buffers=3\n[limits 65529]\nmax-buffers=1\nmax-connections=1\n");
	user_start(&p, d.socket, STRANGER, STRANGER);
	user_start(&q, d.socket, THEIRS, THEIRS);
	user_does(&p, "create a 0600", "OK");
	user_does(&p, "create b 0600", "LIMIT");
	user_error(&p, text, sizeof(text));
	ck_assert_msg(strstr(text, "uid 65529") && strstr(text, "limit 1"), "%s", text);
	user_does(&p, "connect", "LIMIT");
	user_does(&q, "connect", "OK");
	user_does(&q, "create c 0600", "OK");
	user_does(&q, "create d 0600", "OK");
	user_end(&q);
	user_end(&p);
	stop();
}
END_TEST

START_TEST(a_pool_serves_only_users_and_groups_with_the_right)
{
	static const char config[] = "[pool host]\nkind=host\nsize=64M\n"
				     "[pool theirs]\nkind=host\nsize=64M\nallow-users=65533\n"
				     "[pool group]\nkind=host\nsize=64M\nallow-groups=65532\n";
	struct role_process p, q, r;
	char text[512];

	start(config);
	user_start(&p, d.socket, STRANGER, STRANGER);
	user_start(&q, d.socket, THEIRS, THEIRS);
	user_start(&r, d.socket, STRANGER, 65532);
	user_does(&p, "create-in a theirs", "ACCESS");
	user_error(&p, text, sizeof(text));
	ck_assert_msg(strstr(text, "theirs") && strstr(text, "65529") &&
			      strstr(text, "allow-users"),
		      "%s", text);
	user_does(&p, "create-in a group", "ACCESS");
	user_does(&q, "create-in a theirs", "OK");
	user_does(&q, "create-in b group", "ACCESS");
	user_does(&r, "create-in b group", "OK");
	user_does(&r, "create-in c theirs", "ACCESS");
	user_does(&p, "create-in c host", "OK");
	user_end(&r);
	user_end(&q);
	user_end(&p);
	stop();
}
END_TEST

/* ---- a share of each pool ---- */

static void create_of(struct role_process *p, const char *name, unsigned mib, const char *expected)
{
	char command[64];

	snprintf(command, sizeof(command), "create-of %s %u", name, mib * MIB);
	user_does(p, command, expected);
}

START_TEST(one_user_takes_at_most_its_share_of_a_pool)
{
	struct role_process p, q;
	struct gpushm_pool **pools = NULL;
	char text[512];
	size_t n;

	start(HOST);
	user_start(&p, d.socket, STRANGER, STRANGER);
	user_start(&q, d.socket, THEIRS, THEIRS);
	create_of(&p, "a", 33, "LIMIT");
	user_error(&p, text, sizeof(text));
	ck_assert_msg(strstr(text, "32.0 MiB of its 64.0 MiB") && strstr(text, "max-pool-share"),
		      "%s", text);
	create_of(&p, "a", 20, "OK");
	create_of(&p, "b", 13, "LIMIT");
	create_of(&p, "b", 12, "OK");
	/* Sizes are rounded up. */
	create_of(&p, "c", 0, "BAD_REQUEST");
	user_does(&p, "create c 0600", "LIMIT");
	user_does(&p, "close", "OK");
	create_of(&p, "c", 12, "OK");
	create_of(&q, "d", 20, "OK");
	/* Administrators have no share. */
	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	ck_assert_uint_eq(pools[0]->max_buffer_bytes, 64 * MIB);
	gpushm_free(pools);
	gpushm_discard(create("e", 12 * MIB));
	user_end(&q);
	user_end(&p);
	stop();
}
END_TEST

static const struct {
	const char *config, *expected;
} shares[] = {
	{ HOST "max-pool-share=100%\n", "OK" },
	{ HOST "max-pool-share=99%\n", "LIMIT" },
	{ HOST "max-pool-share=10%\n[limits]\nmax-pool-share=unlimited\n", "LIMIT" },
	{ HOST "[limits]\nmax-pool-share=unlimited\n", "OK" },
	{ HOST "[limits 65529]\nmax-pool-share=100%\n", "OK" },
	{ HOST "[limits 65533]\nmax-pool-share=100%\n", "LIMIT" },
};

START_TEST(a_share_is_what_the_file_says)
{
	struct role_process p;

	start(HOST);
	daemon_write_config(&d, shares[_i].config);
	daemon_reload(&d, "configuration reloaded");
	user_start(&p, d.socket, STRANGER, STRANGER);
	create_of(&p, "a", 64, shares[_i].expected);
	user_end(&p);
	stop();
}
END_TEST

static const struct {
	const char *config, *expected, *of_the_group;
} mempools[] = {
	{ "", "ACCESS", "OK" },
	{ "[pool gpu0-mempool]\nkind=mempool\n", "ACCESS", "OK" },
	{ "[pool gpu0-mempool]\nkind=mempool\nallow-users=65533\n", "ACCESS", "ACCESS" },
	{ "[pool gpu0-mempool]\nkind=mempool\nallow-users=*\n", "OK", "OK" },
};

static bool has_mempool(void)
{
	struct gpushm_pool **pools = NULL;
	bool found = false;
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		found = found || (pools[i]->kind == GPUSHM_MEMPOOL && !pools[i]->failed);
	gpushm_free(pools);
	return found;
}

START_TEST(a_mempool_serves_only_the_daemons_group_by_default)
{
	struct role_process p, q;
	char text[512];

	start(mempools[_i].config);
	if (!has_mempool()) {
		printf("skipped: there is no GPU\n");
		stop();
		return;
	}
	user_start(&p, d.socket, STRANGER, STRANGER);
	user_start(&q, d.socket, THEIRS + 1, getegid());
	user_does(&p, "create-in a gpu0-mempool", mempools[_i].expected);
	user_error(&p, text, sizeof(text));
	if (strcmp(mempools[_i].expected, "OK") != 0)
		ck_assert_msg(strstr(text, "its own group") != NULL, "%s", text);
	user_does(&q, "create-in b gpu0-mempool", mempools[_i].of_the_group);
	user_end(&q);
	user_end(&p);
	stop();
}
END_TEST

static int waiters_role(char **args)
{
	Gpushm__Proto__Request *ask = REQUEST(CREATE, Create, create, BYTES(name, "a"),
					      SET(size_bytes, 20 * MIB), SET(wait_ms, UINT64_MAX));
	struct raw a, b;

	if (!user_become(STRANGER, STRANGER))
		return 1;
	raw_greet(&a, args[0]);
	raw_greet(&b, args[0]);
	raw_request(&a, ask);
	while (raw_call(&b, REQUEST(STAT, Stat, stat, BYTES(name, "a"))) == CODE_NOT_FOUND)
		poll(NULL, 0, 10);
	ask->create->name.data = (uint8_t *)"b";
	puts(raw_call(&b, ask) == CODE_LIMIT ? "LIMIT" : b.text);
	raw_close(&b);
	raw_close(&a);
	return 0;
}

/* A CREATE that waits has no memory yet, but it counts. */
START_TEST(requests_that_wait_count_toward_the_share)
{
	struct gpushm_buffer *b;
	struct role_process p;
	char line[512];

	start(HOST);
	b = create("all", 60 * MIB);
	role_start(&p, "waiters", (const char *[]){ d.socket, NULL });
	role_read_line(&p, line, sizeof(line));
	ck_assert_str_eq(line, "LIMIT");
	role_finish(&p);
	ck_assert_int_eq(gpushm_discard(b), 0);
	stop();
}
END_TEST

/* ---- the daemon's fds ---- */

START_TEST(a_daemon_without_fds_serves_connected_clients)
{
	enum { N = 200 };
	static struct gpushm_buffer *all[N];
	struct gpushm *late = NULL;
	char name[16];
	int n = 0, r;

	daemon_start_with(&d, HOST, &(struct daemon_options){ .max_fds = 64 });
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	for (r = 0; n < N && r == 0; n += r == 0) {
		snprintf(name, sizeof(name), "b%d", n);
		r = gpushm_create(c, name, 100, NULL, &all[n]);
	}
	ck_assert_int_eq(r, -ENFILE);
	ck_assert_str_eq(gpushm_error_code(), "NO_FDS");
	ck_assert_int_gt(n, 5);
	/* Connected clients are still served, and failed requests leave nothing behind. */
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(gpushm_create(c, "more", 100, NULL, &all[n]), -ENFILE);
		ck_assert_int_eq(gpushm_wait(c, "more", 0), -ENOENT);
	}
	ck_assert_int_eq(gpushm_publish(all[0], GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_wait(c, "b0", 0), 0);
	while (n)
		ck_assert_int_ge(gpushm_close(all[--n]), 0);
	/* The pool's worker closes their fds; the flush waits for it. */
	ck_assert_int_eq(gpushm_flush(c, NULL), 0);
	ck_assert_int_eq(gpushm_connect(d.socket, &late), 0);
	gpushm_disconnect(late);
	all[0] = create("again", 100);
	ck_assert_int_eq(gpushm_discard(all[0]), 0);
	stop();
}
END_TEST

START_TEST(connections_without_fds_are_refused_with_the_reason)
{
	enum { N = 100 };
	static struct gpushm *all[N];
	struct gpushm_buffer *b;
	int n = 0;

	daemon_start_with(&d, HOST, &(struct daemon_options){ .max_fds = 40 });
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	b = create("b", 100);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	/* Each connection takes two fds of the daemon; if only one is left, the client gets an
	 * error with the reason. */
	while (n < N && gpushm_connect(d.socket, &all[n]) == 0)
		n++;
	ck_assert_int_lt(n, N);
	ck_assert_msg(strcmp(gpushm_error_code(), "NO_FDS") == 0, "%s", gpushm_error());
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(gpushm_wait(c, "b", 0), 0);
	gpushm_disconnect(all[--n]);
	for (int tries = 0; gpushm_connect(d.socket, &all[n]) < 0; tries++)
		ck_assert_int_lt(tries, 1000);
	n++;
	while (n)
		gpushm_disconnect(all[--n]);
	ck_assert_int_eq(gpushm_close(b), 0);
	stop();
}
END_TEST

/* A client that sends more than one datagram stands for one that sends its HELLO while the daemon
 * refuses it. */
START_TEST(a_reason_arrives_before_the_end_of_the_connection)
{
	enum { N = 100 };
	static struct gpushm *all[N];
	struct raw r;
	int n = 0;

	daemon_start_with(&d, HOST, &(struct daemon_options){ .max_fds = 40 });
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	while (n < N && gpushm_connect(d.socket, &all[n]) == 0)
		n++;
	ck_assert_int_lt(n, N);
	ck_assert_int_eq(kill(d.pid, SIGSTOP), 0);
	raw_connect(&r, d.socket);
	for (int i = 0; i < 3; i++)
		raw_request(&r,
			    REQUEST(HELLO, Hello, hello, SET(version_min, 1), SET(version_max, 1)));
	ck_assert_int_eq(kill(d.pid, SIGCONT), 0);
	ck_assert_int_eq(raw_receive(&r), CODE_NO_FDS);
	raw_close(&r);
	while (n)
		gpushm_disconnect(all[--n]);
	stop();
}
END_TEST

/* The spare fd, with which the daemon sends reasons, is lost when it may not even open that one
 * again. A connection takes two fds, a sealed buffer one: the last connection lacks one for its
 * socket or its pidfd. */
START_TEST(a_daemon_that_lost_its_spare_fd_sends_reasons_again)
{
	enum { N = 100 };
	static struct gpushm *all[N];
	struct gpushm_buffer *b = NULL;
	int n = 0;
	struct raw r;

	daemon_start_with(&d, HOST, &(struct daemon_options){ .max_fds = 40 });
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	if (_i)
		ck_assert_int_eq(gpushm_publish(b = create("b", 100), GPUSHM_SEALED), 0);
	ck_assert_int_eq(prlimit(d.pid, RLIMIT_NOFILE, &(struct rlimit){ 5, 40 }, NULL), 0);
	raw_connect(&r, d.socket);
	while (daemon_log_count(&d, "new connections are refused or wait") == 0)
		poll(NULL, 0, 10);
	ck_assert_int_eq(prlimit(d.pid, RLIMIT_NOFILE, &(struct rlimit){ 40, 40 }, NULL), 0);
	while (n < N && gpushm_connect(d.socket, &all[n]) == 0)
		n++;
	ck_assert_int_lt(n, N);
	ck_assert_msg(strcmp(gpushm_error_code(), "NO_FDS") == 0, "%s", gpushm_error());
	while (n)
		gpushm_disconnect(all[--n]);
	raw_close(&r);
	ck_assert_int_eq(gpushm_close(b), 0);
	stop();
}
END_TEST

static const struct role roles[] = { { "user", user_role }, { "waiters", waiters_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("limits"), *u = tcase_create("users"), *f = tcase_create("fds");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_set_timeout(t, 120);
	tcase_set_timeout(u, 120);
	tcase_set_timeout(f, 120);
	tcase_add_test(t, a_limit_of_buffers_is_enforced);
	tcase_add_test(t, a_limit_of_bytes_is_enforced);
	tcase_add_test(t, a_limit_of_leases_is_enforced);
	tcase_add_test(t, a_limit_of_connections_is_enforced);
	tcase_add_test(t, each_refused_connection_gets_the_reason);
	tcase_add_test(t, a_pool_gives_no_more_than_it_has);
	tcase_add_test(t, an_impossibly_large_size_is_refused);
	tcase_add_test(t, a_reload_applies_limits_and_logs_what_it_can_not_apply);
	tcase_add_test(u, the_limits_of_a_user_apply_only_to_that_user);
	tcase_add_test(u, a_pool_serves_only_users_and_groups_with_the_right);
	tcase_add_test(u, one_user_takes_at_most_its_share_of_a_pool);
	tcase_add_loop_test(u, a_share_is_what_the_file_says, 0, (int)array_size(shares));
	tcase_add_loop_test(u, a_mempool_serves_only_the_daemons_group_by_default, 0,
			    (int)array_size(mempools));
	tcase_add_test(u, requests_that_wait_count_toward_the_share);
	tcase_add_test(f, a_daemon_without_fds_serves_connected_clients);
	tcase_add_test(f, connections_without_fds_are_refused_with_the_reason);
	tcase_add_test(f, a_reason_arrives_before_the_end_of_the_connection);
	tcase_add_loop_test(f, a_daemon_that_lost_its_spare_fd_sends_reasons_again, 0, 2);
	if (user_may_change())
		return suite_run("limits", t, u, f, NULL);
}
