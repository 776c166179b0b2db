/* SPDX-License-Identifier: MIT
 *
 * A planned restart of a daemon without a supervisor: its program takes over in the same process.
 * Published buffers are there as before, on every kind of pool, and clients reconnect by
 * themselves.
 */
#include "client/gpushm.h"
#include "client/gpushm_stream.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "tests/lib/reexec.h"
#include "tests/lib/result.h"
#include "tests/lib/role.h"
#include "tests/lib/run.h"
#include "tests/lib/suite.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void check_stat(const char *name, uint64_t id, uint32_t readers, uint32_t writers)
{
	struct gpushm_stat *st = NULL;

	ck_assert_msg(gpushm_stat(c, name, 0, 0, &st) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(st->id, id);
	ck_assert_uint_eq(st->n_attrs, 1);
	ck_assert_uint_eq(st->readers, readers);
	ck_assert_uint_eq(st->writers, writers);
	ck_assert_uint_eq(st->suspects, 0);
	ck_assert_int_eq(st->dirty, 0);
	gpushm_free(st);
}

/* A restart does not change this user's account. */
static struct gpushm_usage usage(void)
{
	struct gpushm_status *st = reexec_status();
	struct gpushm_usage u = *st->usage[0];

	ck_assert_uint_eq(st->n_usage, 1);
	gpushm_free(st);
	return u;
}

static void survive(const char *pool, unsigned times)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *sealed = reexec_make(pool, "a", GPUSHM_SEALED), *again = NULL,
			     *fresh = NULL, *shared = reexec_make(pool, "b", GPUSHM_SHARED);
	struct gpushm_usage before = usage(), after;

	while (times--)
		reexec_restart();
	check_stat("a", gpushm_buffer_id(sealed), 1, 0);
	check_stat("b", gpushm_buffer_id(shared), 0, 1);
	reexec_check(sealed, "a");
	reexec_check(shared, "b");
	after = usage();
	ck_assert_uint_eq(after.bytes, before.bytes);
	ck_assert_uint_eq(after.buffers, before.buffers);
	ck_assert_uint_eq(after.leases, before.leases);
	ck_assert_uint_eq(after.peers, before.peers);
	ck_assert_int_eq(gpushm_buffer_lost(sealed), 0);
	ck_assert_msg(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &again) == 0, "%s: %s", pool,
		      gpushm_error());
	reexec_check(again, "a");
	ck_assert_msg(gpushm_create(c, "~/new", 100, &o, &fresh) == 0, "%s: %s", pool,
		      gpushm_error());
	ck_assert_int_eq(gpushm_discard(fresh), 0);
	ck_assert_int_eq(gpushm_close(again), 0);
	client_close_and_unlink(sealed, "a");
	client_close_and_unlink(shared, "b");
}

START_TEST(a_restart_keeps_contents_leases_and_charges)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++) {
		if (pools[i]->failed)
			continue;
		survive(pools[i]->name, 1);
		survive(pools[i]->name, 2);
	}
}
END_TEST

START_TEST(a_restart_stays_the_same_process_and_daemon)
{
	struct gpushm_status *before = reexec_status(), *after;

	ck_assert_int_eq(before->pid, d.pid);
	reexec_restart();
	after = reexec_status();
	ck_assert_int_eq(after->pid, d.pid);
	ck_assert_mem_eq(after->daemon, before->daemon, sizeof(after->daemon));
	/* Still it is a new program: its counters start again. */
	ck_assert_uint_lt(after->requests, 4);
	gpushm_free(before);
	gpushm_free(after);
}
END_TEST

static uint32_t open_fds(void)
{
	struct gpushm_status *st = reexec_status();
	uint32_t n = st->fds;

	gpushm_free(st);
	return n;
}

/* A successor has some fds twice for a moment, while it checks whether their memory still exists.
 */
START_TEST(the_number_of_fds_stays_the_same_over_restarts)
{
	struct gpushm_buffer *b = reexec_make(NULL, "a", GPUSHM_SEALED);
	uint32_t before;

	reexec_restart();
	before = open_fds();
	for (int i = 0; i < 5; i++)
		reexec_restart();
	client_await(open_fds() <= before);
	client_close_and_unlink(b, "a");
}
END_TEST

START_TEST(a_buffer_that_was_being_filled_must_be_created_again)
{
	struct gpushm_buffer *b = client_create("half", 100, NULL), *again;

	reexec_restart();
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "create it again"));
	again = client_create("half", 100, NULL);
	ck_assert_int_eq(gpushm_discard(b), 0);
	ck_assert_int_eq(gpushm_discard(again), 0);
}
END_TEST

START_TEST(a_buffer_of_an_earlier_daemon_can_not_be_described)
{
	int64_t shape[] = { 5 };
	struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "x", .ndim = 1, .shape = shape
	};
	struct gpushm_attr attr = {
		.struct_size = sizeof(attr), .key = "k", .value = "v", .size = 1
	};
	struct gpushm_buffer *b = client_create("half", 100, NULL);

	ck_assert_int_eq(gpushm_dtype_parse("float32", &spec.dtype), 0);
	reexec_restart();
	ck_assert_int_eq(gpushm_describe(b, &spec, 1), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "create it again"));
	ck_assert_int_eq(gpushm_set_attrs(b, &attr, 1), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "create it again"));
	ck_assert_int_eq(gpushm_discard(b), 0);
}
END_TEST

static int create_arrays(struct gpushm *own, struct gpushm_array_spec *spec)
{
	struct gpushm_buffer *b = NULL;
	int r = gpushm_create_arrays(own, "again", spec, 1, NULL, &b);

	return r < 0 ? r : gpushm_discard(b);
}

static int create_stream(struct gpushm *own, struct gpushm_array_spec *spec)
{
	struct gpushm_stream_spec wanted = {
		.struct_size = sizeof(wanted), .arrays = spec, .n_arrays = 1, .slots = 2
	};
	const struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	struct gpushm_stream *s = NULL;
	int r = gpushm_stream_create(own, "again", &wanted, &o, &s);

	gpushm_stream_close(s);
	return r;
}

struct creator {
	int (*create)(struct gpushm *own, struct gpushm_array_spec *spec);
	atomic_bool end;
};

/* Makes and drops a buffer until it is told to end. */
static void *keep_creating(void *arg)
{
	int64_t shape[] = { 5 };
	struct creator *it = arg;
	struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "x", .ndim = 1, .shape = shape
	};
	struct gpushm *own = NULL;
	int r = gpushm_connect(NULL, &own);

	if (r == 0)
		r = gpushm_dtype_parse("float32", &spec.dtype);
	while (r == 0 && !atomic_load(&it->end))
		r = it->create(own, &spec);
	if (r < 0)
		fprintf(stderr, "%s\n", gpushm_error());
	gpushm_disconnect(own);
	return r < 0 ? arg : NULL;
}

static void restart_under(struct creator it)
{
	pthread_t thread;
	void *failed;

	setenv("GPUSHM_SOCKET", d.socket, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, keep_creating, &it), 0);
	for (int i = 0; i < 40; i++)
		reexec_restart();
	atomic_store(&it.end, true);
	pthread_join(thread, &failed);
	ck_assert_ptr_null(failed);
}

START_TEST(a_restart_is_hidden_from_a_call_that_creates)
{
	restart_under((struct creator){ .create = create_arrays });
}
END_TEST

START_TEST(a_restart_is_hidden_from_a_call_that_creates_a_stream)
{
	restart_under((struct creator){ .create = create_stream });
}
END_TEST

/* ---- events during a restart ---- */

/* socket name: opens it with an unlimited wait, and prints what it found. */
static int waiter_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	int r = gpushm_connect(args[0], &conn);

	puts("waits");
	fflush(stdout);
	if (r == 0)
		r = gpushm_open(conn, args[1], GPUSHM_READ, GPUSHM_WAIT_FOREVER, NULL, &b);
	puts(r == 0 ? "ok" : gpushm_error());
	gpushm_close(b);
	gpushm_disconnect(conn);
	return 0;
}

static uint32_t waiting(void)
{
	struct gpushm_status *st = reexec_status();
	uint32_t n = st->waiting;

	gpushm_free(st);
	return n;
}

START_TEST(a_waiting_open_gets_a_publication_at_the_successor)
{
	struct role_process waiter;
	struct gpushm_buffer *b;
	char line[256];

	role_start(&waiter, "waiter", (const char *[]){ d.socket, "late", NULL });
	role_read_line(&waiter, line, sizeof(line));
	client_await(waiting() == 1);
	reexec_restart();
	client_await(waiting() == 1);
	reexec_restart();
	b = reexec_make(NULL, "late", GPUSHM_SEALED);
	role_read_line(&waiter, line, sizeof(line));
	ck_assert_str_eq(line, "ok");
	role_finish(&waiter);
	client_close_and_unlink(b, "late");
}
END_TEST

/* As often as a daemon may die of one request, and more. */
START_TEST(a_wait_continues_over_many_restarts)
{
	struct role_process waiter;
	struct gpushm_buffer *b;
	char line[256];

	role_start(&waiter, "waiter", (const char *[]){ d.socket, "late", NULL });
	role_read_line(&waiter, line, sizeof(line));
	for (int i = 0; i < 20; i++) {
		client_await(waiting() == 1);
		poll(NULL, 0, 150);
		reexec_restart();
	}
	client_await(waiting() == 1);
	b = reexec_make(NULL, "late", GPUSHM_SEALED);
	role_read_line(&waiter, line, sizeof(line));
	ck_assert_str_eq(line, "ok");
	role_finish(&waiter);
	client_close_and_unlink(b, "late");
}
END_TEST

#define WAIT_MS 4000u

static void *restart_late(void *arg)
{
	poll(NULL, 0, WAIT_MS - 1000);
	reexec_restart();
	return arg;
}

START_TEST(a_timeout_continues_with_the_next_daemon)
{
	uint64_t begun = clock_monotonic_ms();
	struct gpushm_stat *st = NULL;
	struct gpushm *own = NULL;
	pthread_t thread;

	ck_assert_int_eq(gpushm_connect(d.socket, &own), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, restart_late, NULL), 0);
	ck_assert_int_eq(gpushm_stat(own, "never", WAIT_MS, 0, &st), -ETIMEDOUT);
	ck_assert_uint_ge(clock_monotonic_ms() - begun, WAIT_MS);
	ck_assert_uint_lt(clock_monotonic_ms() - begun, WAIT_MS + 2500);
	pthread_join(thread, NULL);
	gpushm_disconnect(own);
}
END_TEST

START_TEST(a_holder_that_sends_no_request_keeps_its_lease)
{
	struct gpushm_buffer *b = reexec_make(NULL, "a", GPUSHM_SHARED);
	struct gpushm *other = NULL;
	struct gpushm_stat *st = NULL;

	/* The connection that holds the buffer sends nothing. */
	ck_assert_int_eq(gpushm_connect(d.socket, &other), 0);
	ck_assert_int_eq(kill(d.pid, SIGUSR2), 0);
	daemon_await(&d, "READY=1");
	ck_assert_int_eq(gpushm_stat(other, "a", 0, 0, &st), 0);
	ck_assert_uint_eq(st->writers, 1);
	ck_assert_uint_eq(st->suspects, 1);
	gpushm_free(st);
	gpushm_disconnect(other);
	client_close_and_unlink(b, "a");
}
END_TEST

/* Like some fds of a driver: open, in nobody's fd set, and without FD_CLOEXEC. */
START_TEST(an_fd_outside_the_fd_set_is_closed_by_the_exec)
{
	struct pollfd p = { .events = POLLIN };
	int pipe_fds[2], inherited;

	ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
	inherited = fcntl(pipe_fds[1], F_DUPFD, 100);
	ck_assert_int_ge(inherited, 100);
	close(pipe_fds[1]);
	reexec_setup();
	close(inherited);
	p.fd = pipe_fds[0];
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	reexec_restart();
	ck_assert_int_eq(poll(&p, 1, 0), 1);
	ck_assert_int_eq(p.revents, POLLHUP);
	close(pipe_fds[0]);
	client_teardown();
}
END_TEST

START_TEST(a_successor_keeps_the_socket_and_its_lock)
{
	char text[1024];
	struct stat before, after;

	ck_assert_int_eq(stat(d.socket, &before), 0);
	reexec_restart();
	ck_assert_int_eq(stat(d.socket, &after), 0);
	ck_assert_uint_eq(after.st_ino, before.st_ino);
	ck_assert_int_eq(run_program(d.copy,
				     (const char *[]){ "--config", d.config, "--socket", d.socket,
						       NULL },
				     text, sizeof(text)),
			 1);
	ck_assert_msg(strstr(text, "another gpushmd serves it"), "%s", text);
	/* The next restart closes the fd. */
	reexec_replace();
}
END_TEST

/* The signals may come at any moment: a signal without a handler would end the daemon. */
START_TEST(a_daemon_survives_signals_during_a_restart)
{
	static const int signals[] = { SIGHUP, SIGUSR2, SIGHUP };

	for (int i = 0; i < 40; i++) {
		/* The daemon waits for a supervisor that does not read. */
		daemon_forget_notifications(&d);
		ck_assert_int_eq(kill(d.pid, SIGUSR2), 0);
		for (int k = 0; k < 3; k++) {
			struct gpushm_status *st = i % 2 ? reexec_status() : NULL;

			poll(NULL, 0, i % 4);
			ck_assert_int_eq(kill(d.pid, signals[k]), 0);
			gpushm_free(st);
		}
	}
	gpushm_free(reexec_status());
	ck_assert_int_eq(kill(d.pid, SIGUSR2), 0);
	reexec_replace();
}
END_TEST

static const struct role roles[] = { { "waiter", waiter_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("reexec"), *alone = tcase_create("alone");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, reexec_setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_restart_keeps_contents_leases_and_charges);
	tcase_add_test(t, a_restart_stays_the_same_process_and_daemon);
	tcase_add_test(t, the_number_of_fds_stays_the_same_over_restarts);
	tcase_add_test(t, a_buffer_that_was_being_filled_must_be_created_again);
	tcase_add_test(t, a_buffer_of_an_earlier_daemon_can_not_be_described);
	tcase_add_test(t, a_restart_is_hidden_from_a_call_that_creates);
	tcase_add_test(t, a_restart_is_hidden_from_a_call_that_creates_a_stream);
	tcase_add_test(t, a_waiting_open_gets_a_publication_at_the_successor);
	tcase_add_test(t, a_wait_continues_over_many_restarts);
	tcase_add_test(t, a_timeout_continues_with_the_next_daemon);
	tcase_add_test(t, a_holder_that_sends_no_request_keeps_its_lease);
	tcase_add_test(t, a_successor_keeps_the_socket_and_its_lock);
	tcase_add_test(t, a_daemon_survives_signals_during_a_restart);
	tcase_set_timeout(alone, 120);
	tcase_add_test(alone, an_fd_outside_the_fd_set_is_closed_by_the_exec);
	return suite_run("reexec", t, alone, NULL);
}
