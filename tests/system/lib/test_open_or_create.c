/* SPDX-License-Identifier: MIT
 *
 * gpushm_open_or_create(): of many processes that want one name, one creates it at a time, and the
 * others wait. Whatever becomes of the creators, each of the others is served in the end.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/result.h"
#include "tests/lib/role.h"
#include "tests/lib/stormer.h"
#include "tests/lib/suite.h"
#include "tests/lib/watcher.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define RACERS 50
#define ENDS 24 /* creators that do not publish, and processes that are killed while they wait */
#define BYTES 100000u

/* ---- a racer, in a process of its own ---- */

struct racer {
	struct gpushm *conn;
	struct gpushm_create_options options;
};

static int trouble(const char *what)
{
	printf("%s: %s\n", what, gpushm_error());
	return 1;
}

static int check(struct gpushm_buffer *b)
{
	static char got[BYTES];

	if (gpushm_read(b, 0, got, BYTES) < 0)
		return trouble("read");
	for (size_t i = 0; i < BYTES; i++)
		if (got[i] != 'w')
			return trouble("the contents are wrong");
	return gpushm_close(b) == 0 ? 0 : trouble("close");
}

/* Fills half, and then does what the test says: it publishes, discards or closes the buffer.
 * Returns 1: it has not published. */
static int create(struct gpushm_buffer *b)
{
	static char data[BYTES];
	char line[16] = "";

	memset(data, 'w', BYTES);
	gpushm_write(b, 0, data, BYTES / 2);
	puts("creating");
	if (!fgets(line, sizeof(line), stdin))
		return trouble("no word");
	if (line[0] == 'p') {
		gpushm_write(b, 0, data, BYTES);
		return gpushm_publish(b, GPUSHM_SEALED) == 0 && gpushm_close(b) == 0
			       ? 0
			       : trouble("publish");
	}
	if (line[0] == 'd' ? gpushm_discard(b) != 0 : gpushm_close(b) != GPUSHM_UNPUBLISHED)
		return trouble("discard or close");
	return 1;
}

static int race(struct racer *r)
{
	for (;;) {
		struct gpushm_buffer *b = NULL;
		int got = gpushm_open_or_create(r->conn, "m", GPUSHM_READ, WATCHER_LONG_MS, NULL,
						BYTES, &r->options, &b);

		if (got < 0)
			return trouble("open_or_create");
		if (got == 0)
			return check(b);
		got = create(b);
		if (got == 0)
			puts("published");
		if (got != 1 || puts("dropped") < 0)
			return got;
	}
}

/* socket pool */
static int racer_role(char **args)
{
	struct racer r = { .options = { .struct_size = sizeof(r.options), .pool = args[1] } };
	char line[8];

	if (gpushm_connect(args[0], &r.conn) < 0)
		return trouble("connect");
	puts("ready");
	if (!fgets(line, sizeof(line), stdin) || race(&r) != 0)
		return 1;
	gpushm_disconnect(r.conn);
	puts("done");
	return 0;
}

/* ---- the test ---- */

static struct role_process racers[RACERS];
static bool ended[RACERS];
static uint64_t seed;

static unsigned choose(unsigned n)
{
	return (unsigned)(stormer_random(&seed) % n);
}

static void kill_racer(unsigned i)
{
	ck_assert_int_eq(kill(racers[i].pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(&racers[i])));
	ended[i] = true;
}

/* One of those that wait; or nobody. */
static void kill_waiter(unsigned creator)
{
	unsigned i = choose(RACERS);

	if (!ended[i] && i != creator)
		kill_racer(i);
}

/* Reads a line of some racer; returns RACERS if none has said anything in that time. */
static unsigned hear(int timeout_ms, char *line, size_t size)
{
	struct pollfd fds[RACERS];

	for (unsigned i = 0; i < RACERS; i++)
		fds[i] = (struct pollfd){ .fd = ended[i] ? -1 : racers[i].from, .events = POLLIN };
	if (poll(fds, RACERS, timeout_ms) <= 0)
		return RACERS;
	for (unsigned i = 0, n = choose(RACERS);; i++) {
		unsigned at = (i + n) % RACERS;

		if (!fds[at].revents)
			continue;
		role_read_line(&racers[at], line, size);
		return at;
	}
}

/* A racer has created, and does not go on before the test says so: nobody else may create. */
static void expect_no_other(unsigned creator)
{
	char line[512];
	unsigned i;

	nanosleep(&(struct timespec){ .tv_nsec = choose(2000000) }, NULL);
	while ((i = hear(0, line, sizeof(line))) < RACERS)
		ck_assert_msg(i != creator && strcmp(line, "dropped") == 0,
			      "racer %u creates, and racer %u says: %s", creator, i, line);
}

static void end_creator(unsigned i)
{
	unsigned how = choose(5);

	kill_waiter(i);
	if (how < 3)
		kill_racer(i);
	else
		role_write_line(&racers[i], how == 3 ? "discard" : "close");
}

static unsigned count_alive(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < RACERS; i++)
		n += !ended[i];
	return n;
}

/* Returns the number of creators that published. */
static unsigned run_race(unsigned ends)
{
	unsigned published = 0;
	char line[512];

	while (count_alive() > 0) {
		unsigned i = hear((int)WATCHER_LONG_MS, line, sizeof(line));

		ck_assert_msg(i < RACERS, "%u racers wait for ever", count_alive());
		if (strcmp(line, "creating") == 0) {
			expect_no_other(i);
			if (ends == 0)
				role_write_line(&racers[i], "publish");
			else
				end_creator(i);
			ends -= ends > 0;
		} else if (strcmp(line, "published") == 0) {
			published++;
		} else if (strcmp(line, "done") == 0) {
			role_finish(&racers[i]);
			ended[i] = true;
		} else {
			ck_assert_msg(strcmp(line, "dropped") == 0, "racer %u: %s", i, line);
		}
	}
	ck_assert_uint_eq(ends, 0);
	return published;
}

static void race_in(const char *pool)
{
	char line[512];

	for (unsigned i = 0; i < RACERS; i++) {
		ended[i] = false;
		role_start(&racers[i], "racer", (const char *[]){ d.socket, pool, NULL });
	}
	for (unsigned i = 0; i < RACERS; i++) {
		role_read_line(&racers[i], line, sizeof(line));
		ck_assert_str_eq(line, "ready");
	}
	for (unsigned i = 0; i < RACERS; i++)
		role_write_line(&racers[i], "go");
	ck_assert_uint_eq(run_race(ENDS), 1);
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
	client_await(client_used_bytes() == 0);
}

START_TEST(one_racer_creates_at_a_time_and_each_is_served)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n = 0;

	seed = (uint64_t)time(NULL);
	printf("open_or_create: seed %lu\n", (unsigned long)seed);
	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		if (!pools[i]->failed)
			race_in(pools[i]->name);
}
END_TEST

/* ---- one process ---- */

static int open_or_create(uint64_t timeout_ms, const struct gpushm_create_options *o,
			  struct gpushm_buffer **ret)
{
	return gpushm_open_or_create(c, "m", GPUSHM_READ, timeout_ms, NULL, BYTES, o, ret);
}

START_TEST(a_free_name_is_created_without_waiting)
{
	struct gpushm_buffer *a = NULL, *b = NULL;

	/* With a timeout that ends the test. */
	ck_assert_int_eq(open_or_create(GPUSHM_WAIT_FOREVER, NULL, &a), GPUSHM_CREATED);
	ck_assert_int_eq(gpushm_buffer_state(a), GPUSHM_FILLING);
	ck_assert_int_eq(gpushm_buffer_access(a), GPUSHM_WRITE);
	ck_assert_int_eq(open_or_create(0, NULL, &b), -EAGAIN);
	ck_assert_int_eq(open_or_create(20, NULL, &b), -ETIMEDOUT);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(open_or_create(0, NULL, &b), 0);
	ck_assert_uint_eq(gpushm_buffer_id(a), gpushm_buffer_id(b));
	ck_assert_int_eq(gpushm_close(b), 0);
	client_close_and_unlink(a, "m");
}
END_TEST

START_TEST(each_mistake_of_open_or_create_has_its_error)
{
	struct gpushm_create_options nowhere = { .struct_size = sizeof(nowhere), .pool = "never" },
				     old = { .struct_size = 1 };
	struct gpushm_buffer *a = NULL, *b = NULL;

	ck_assert_int_eq(open_or_create(0, &nowhere, &a), -ENOENT);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "no pool \"never\""));
	ck_assert_int_eq(open_or_create(0, &old, &a), -EINVAL);
	ck_assert_int_eq(gpushm_open_or_create(c, "a//b", GPUSHM_READ, 0, NULL, 1, NULL, &a),
			 -EINVAL);
	ck_assert_int_eq(gpushm_open_or_create(c, NULL, GPUSHM_READ, 0, NULL, 1, NULL, &a),
			 -EINVAL);
	ck_assert_int_eq(gpushm_open_or_create(NULL, "m", GPUSHM_READ, 0, NULL, 1, NULL, &a),
			 -EINVAL);
	ck_assert_int_eq(gpushm_open_or_create(c, "m", 7, 0, NULL, 1, NULL, &a), -EINVAL);
	ck_assert_int_eq(gpushm_open_or_create(c, "m", GPUSHM_READ, 0, NULL, 0, NULL, &a), -EINVAL);
	ck_assert_int_eq(gpushm_open_or_create(c, "m", GPUSHM_WRITE, 0, NULL, 1, NULL, &a),
			 GPUSHM_CREATED);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_open_or_create(c, "m", GPUSHM_WRITE, 0, NULL, 1, NULL, &b), -EROFS);
	client_close_and_unlink(a, "m");
}
END_TEST

START_TEST(options_for_opening_are_used_where_the_name_exists)
{
	const struct gpushm_open_options opening = {
		.struct_size = sizeof(opening), .flags = GPUSHM_COPY_ON_WRITE | GPUSHM_REFUSE_DIRTY
	};
	struct gpushm_create_options creating = { .struct_size = sizeof(creating), .pool = "host" };
	struct gpushm_buffer *a = NULL, *b = NULL;

	ck_assert_int_eq(gpushm_open_or_create(c, "m", GPUSHM_READ, 0, &opening, BYTES, &creating,
					       &a),
			 GPUSHM_CREATED);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_open_or_create(c, "m", GPUSHM_READ, 0, &opening, BYTES, &creating,
					       &b),
			 0);
	ck_assert_int_eq(gpushm_buffer_copy_on_write(b), 1);
	ck_assert_int_eq(gpushm_close(b), 0);
	creating.flags = GPUSHM_COPY_ON_WRITE;
	ck_assert_int_eq(open_or_create(0, &creating, &b), -EINVAL);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "another function"));
	client_close_and_unlink(a, "m");
}
END_TEST

static const struct role roles[] = { { "racer", racer_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("open_or_create");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 300);
	tcase_add_test(t, one_racer_creates_at_a_time_and_each_is_served);
	tcase_add_test(t, a_free_name_is_created_without_waiting);
	tcase_add_test(t, each_mistake_of_open_or_create_has_its_error);
	tcase_add_test(t, options_for_opening_are_used_where_the_name_exists);
	return suite_run("open_or_create", t, NULL);
}
