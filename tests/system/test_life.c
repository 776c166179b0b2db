/* SPDX-License-Identifier: MIT
 *
 * A buffer's life, as several processes see it: names, states, waiting, and what is left when
 * somebody dies. On the default pool: host, or a GPU's where there is one.
 */
#include "client/gpushm.h"
#include "proto/own.h"
#include "tests/lib/daemon.h"
#include "tests/lib/role.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

static struct daemon d;
static struct gpushm *c;

static void setup(void)
{
	daemon_start(&d, "", NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

static uint64_t used_bytes(void)
{
	_cleanup_(free_ptr) struct gpushm_pool *pools = NULL;
	uint64_t sum = 0;
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		sum += pools[i].used_bytes;
	return sum;
}

static void teardown(void)
{
	ck_assert_uint_eq(used_bytes(), 0);
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}

static struct gpushm_buffer *create(const char *name, uint64_t bytes,
				    const struct gpushm_options *o)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_create(c, name, bytes, o, &b) == 0, "%s", gpushm_error());
	return b;
}

static void close_and_unlink(struct gpushm_buffer *b, const char *name)
{
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, name), 0);
}

/* Until the daemon has noticed something that it can only notice by itself (a process that is
 * gone). */
#define await(condition)                               \
	for (int tries_ = 0; !(condition); tries_++) { \
		ck_assert_int_lt(tries_, 6000);        \
		poll(NULL, 0, 10);                     \
	}

/* ---- roles ---- */

/* socket name state: creates, publishes unless state is "filling", says ok, waits. */
static int maker_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	char word[8];

	if (gpushm_connect(args[0], &conn) < 0 || gpushm_create(conn, args[1], 5000, NULL, &b) < 0)
		return 1;
	if (strcmp(args[2], "filling") != 0 &&
	    gpushm_publish(b, args[2][1] == 'e' ? GPUSHM_SEALED : GPUSHM_SHARED) < 0)
		return 2;
	puts("ok");
	return fgets(word, sizeof(word), stdin) == NULL ? 0 : 3;
}

/* socket name how: opens, says ok, waits; "hang-up" closes the socket under the library first. */
static int holder_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	char word[8];

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], GPUSHM_READ, 5000, NULL, &b) < 0)
		return 1;
	if (strcmp(args[2], "hang-up") == 0)
		shutdown(gpushm_fd(conn), SHUT_RDWR);
	puts("ok");
	return fgets(word, sizeof(word), stdin) == NULL ? 0 : 3;
}

static const struct role roles[] = { { "maker", maker_role }, { "holder", holder_role } };

static void start(struct role_process *p, const char *role, const char *name, const char *how)
{
	char line[16];

	role_start(p, role, (const char *[]){ d.socket, name, how, NULL });
	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, "ok");
}

static void kill_role(struct role_process *p)
{
	ck_assert_int_eq(kill(p->pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(p)));
}

/* ---- names and states ---- */

START_TEST(a_taken_name_is_given_again)
{
	struct gpushm_buffer *a = create("x", 100, NULL), *b = NULL;
	uint64_t id = gpushm_buffer_id(a);

	ck_assert_int_eq(gpushm_create(c, "x", 100, NULL, &b), -EEXIST);
	ck_assert_str_eq(gpushm_error_code(), "EXISTS");
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_create(c, "x", 100, NULL, &b), -EEXIST);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	b = create("x", 100, NULL);
	ck_assert_uint_ne(gpushm_buffer_id(b), id);
	ck_assert_int_eq(gpushm_close(a), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), -ENOENT);
}
END_TEST

START_TEST(a_bad_name_is_taken)
{
	static const char *const bad[] = {
		"", "/", "a//b", "../x", "a/.", "~bob/x", "a\nb", "\xff"
	};
	struct gpushm_buffer *b = NULL;

	for (size_t i = 0; i < array_size(bad); i++) {
		ck_assert_int_eq(gpushm_create(c, bad[i], 100, NULL, &b), -EINVAL);
		ck_assert_str_ne(gpushm_error(), "");
	}
}
END_TEST

START_TEST(an_unpublished_buffer_is_opened)
{
	struct gpushm_buffer *a = create("x", 100, NULL), *b = NULL;

	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), -EAGAIN);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 20, NULL, &b), -ETIMEDOUT);
	ck_assert_int_eq(gpushm_wait(c, "x", 20), -ETIMEDOUT);
	ck_assert_int_eq(gpushm_wait(c, "never", 20), -ETIMEDOUT);
	ck_assert_int_eq(gpushm_open(c, "never", GPUSHM_READ, 0, NULL, &b), -ENOENT);
	ck_assert_int_eq(gpushm_close(a), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), -ENOENT);
}
END_TEST

START_TEST(a_sealed_buffer_is_opened_for_writing)
{
	struct gpushm_buffer *a = create("x", 100, NULL), *b = NULL, *w = NULL;

	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_buffer_access(a), GPUSHM_READ);
	ck_assert_int_eq(gpushm_write(a, 0, "x", 1), -EROFS);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_WRITE, 0, NULL, &w), -EROFS);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SHARED), -EBUSY);
	ck_assert_int_eq(gpushm_close(b), 0);
	close_and_unlink(a, "x");
}
END_TEST

START_TEST(memory_goes_before_the_last_lease)
{
	struct gpushm_buffer *a = create("x", 100, NULL), *b = NULL;
	char got[4];

	ck_assert_int_eq(gpushm_write(a, 50, "abc", 4), 0);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	close_and_unlink(a, "x");
	ck_assert_uint_ne(used_bytes(), 0);
	ck_assert_int_eq(gpushm_read(b, 50, got, 4), 0);
	ck_assert_str_eq(got, "abc");
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_uint_eq(used_bytes(), 0);
}
END_TEST

START_TEST(a_transient_buffer_outlives_its_last_lease)
{
	struct gpushm_options o = { .struct_size = sizeof(o), .flags = GPUSHM_TRANSIENT };
	struct gpushm_buffer *a = create("x", 100, &o), *b = NULL;

	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_WRITE, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_close(a), 0);
	ck_assert_int_eq(gpushm_wait(c, "x", 0), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_wait(c, "x", 0), -ENOENT);
}
END_TEST

START_TEST(a_private_name_is_everybodys)
{
	struct gpushm_buffer *a = create("~/x", 100, NULL), *b = NULL;
	struct gpushm_stat *st = NULL;
	char full[32];

	snprintf(full, sizeof(full), "~%u/x", getuid());
	ck_assert_int_eq(gpushm_create(c, full, 100, NULL, &b), -EEXIST);
	ck_assert_int_eq(gpushm_stat(c, full, 0, 0, &st), 0);
	ck_assert_str_eq(st->name, "~/x");
	gpushm_stat_free(st, 1);
	ck_assert_int_eq(gpushm_close(a), 0);
}
END_TEST

START_TEST(attributes_or_the_digest_are_lost)
{
	static const struct gpushm_attr attrs[] = { { "step", "1200", 4 }, { "nul", "\0x", 2 } };
	struct gpushm_options o = { .struct_size = sizeof(o), .attrs = attrs, .n_attrs = 2 };
	const int64_t shape[] = { 3, 4 };
	struct gpushm_array_spec spec = { .name = "", .ndim = 2, .shape = shape };
	struct gpushm_buffer *a = NULL, *b = NULL;
	struct gpushm_stat *st = NULL;
	const void *value;
	size_t size;

	ck_assert_int_eq(gpushm_dtype_parse("bfloat16", &spec.dtype), 0);
	ck_assert_int_eq(gpushm_create_arrays(c, "x", &spec, 1, &o, &a), 0);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_buffer_attr(b, "step", &value, &size), 0);
	ck_assert(size == 4 && memcmp(value, "1200", 4) == 0);
	ck_assert_int_eq(gpushm_buffer_attr(b, "nul", &value, &size), 0);
	ck_assert(size == 2 && memcmp(value, "\0x", 2) == 0);
	ck_assert_int_eq(gpushm_stat(c, "x", 0, 0, &st), 0);
	ck_assert_uint_eq(st->n_attrs, 2);
	ck_assert_uint_eq(st->digest, gpushm_buffer_digest(b));
	ck_assert_uint_eq(gpushm_buffer_digest(a), gpushm_buffer_digest(b));
	ck_assert_uint_eq(st->arrays, 1);
	gpushm_stat_free(st, 1);
	ck_assert_int_eq(gpushm_close(b), 0);
	close_and_unlink(a, "x");
}
END_TEST

START_TEST(a_list_loses_or_repeats_a_name)
{
	enum { N = 1500 };
	static struct gpushm_buffer *all[N];
	struct gpushm_stat *stats = NULL;
	size_t n = 0;
	char name[32];

	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "list/%04d", i);
		all[i] = create(name, 1, NULL);
	}
	ck_assert_int_eq(gpushm_list(c, "list/", 0, &stats, &n), 0);
	ck_assert_uint_eq(n, N);
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "list/%04d", i);
		ck_assert_str_eq(stats[i].name, name);
	}
	stats = gpushm_stat_free(stats, n);
	ck_assert_int_eq(gpushm_list(c, "list/12", 0, &stats, &n), 0);
	ck_assert_uint_eq(n, 100);
	stats = gpushm_stat_free(stats, n);
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(gpushm_close(all[i]), 0);
}
END_TEST

/* ---- deaths ---- */

START_TEST(a_dead_creators_buffer_stays)
{
	struct role_process maker;
	struct gpushm_buffer *b = NULL;

	start(&maker, "maker", "x", "filling");
	ck_assert_int_eq(gpushm_create(c, "x", 100, NULL, &b), -EEXIST);
	kill_role(&maker);
	await(used_bytes() == 0);
	b = create("x", 100, NULL);
	ck_assert_int_eq(gpushm_close(b), 0);
}
END_TEST

START_TEST(a_published_buffer_dies_with_its_maker)
{
	struct role_process maker;
	struct gpushm_buffer *b = NULL;

	start(&maker, "maker", "x", "sealed");
	kill_role(&maker);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	close_and_unlink(b, "x");
	await(used_bytes() == 0);
}
END_TEST

START_TEST(a_killed_readers_lease_never_ends)
{
	struct role_process holder;
	struct gpushm_buffer *b = create("x", 100, NULL);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	start(&holder, "holder", "x", "stay");
	close_and_unlink(b, "x");
	ck_assert_uint_ne(used_bytes(), 0);
	kill_role(&holder);
	await(used_bytes() == 0);
}
END_TEST

static uint32_t suspects_of(const char *name)
{
	struct gpushm_stat *st = NULL;
	uint32_t n;

	ck_assert_int_eq(gpushm_stat(c, name, 0, 0, &st), 0);
	n = st->suspects;
	gpushm_stat_free(st, 1);
	return n;
}

START_TEST(a_closed_socket_ends_a_lease)
{
	struct role_process holder;
	struct gpushm_buffer *b = create("x", 100, NULL);
	struct gpushm_stat *st = NULL;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	start(&holder, "holder", "x", "hang-up");
	await(suspects_of("x") == 1);
	ck_assert_int_eq(gpushm_stat(c, "x", 0, GPUSHM_HOLDERS, &st), 0);
	ck_assert_uint_eq(st->readers, 2);
	ck_assert_uint_eq(st->n_holders, 2);
	ck_assert_int_eq(st->holders[1].suspect, 1);
	ck_assert_int_eq(st->holders[1].pid, holder.pid);
	gpushm_stat_free(st, 1);
	close_and_unlink(b, "x");
	ck_assert_uint_ne(used_bytes(), 0);
	role_finish(&holder);
	await(used_bytes() == 0);
}
END_TEST

struct waiting {
	struct gpushm *conn;
	struct gpushm_buffer *b;
	int result;
};

static void *open_when_published(void *arg)
{
	struct waiting *w = arg;

	w->result = gpushm_open(w->conn, "late", GPUSHM_READ, GPUSHM_WAIT_FOREVER, NULL, &w->b);
	return NULL;
}

static uint32_t waiting_now(void)
{
	struct gpushm_status *st = NULL;
	uint32_t n;

	ck_assert_int_eq(gpushm_status(c, &st), 0);
	n = st->waiting;
	gpushm_status_free(st);
	return n;
}

START_TEST(a_waiting_open_misses_the_publication)
{
	struct waiting w = { 0 };
	struct role_process maker;
	struct gpushm_buffer *b;
	pthread_t thread;

	ck_assert_int_eq(gpushm_connect(d.socket, &w.conn), 0);
	pthread_create(&thread, NULL, open_when_published, &w);
	await(waiting_now() == 1);
	/* Somebody starts to make it, and dies: the waiting one waits on. */
	start(&maker, "maker", "late", "filling");
	kill_role(&maker);
	await(used_bytes() == 0);
	ck_assert_uint_eq(waiting_now(), 1);
	b = create("late", 100, NULL);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(w.result, 0);
	ck_assert_uint_eq(gpushm_buffer_id(w.b), gpushm_buffer_id(b));
	ck_assert_int_eq(gpushm_close(w.b), 0);
	gpushm_disconnect(w.conn);
	close_and_unlink(b, "late");
}
END_TEST

START_TEST(a_forked_child_speaks_on_its_parents_connection)
{
	struct gpushm_buffer *b = create("x", 100, NULL), *other = NULL;
	pid_t child = fork();
	int status;

	if (child == 0) {
		int ok = gpushm_wait(c, "x", 0) == -ECHILD &&
			 gpushm_create(c, "y", 1, NULL, &other) == -ECHILD &&
			 gpushm_close(b) == -ECHILD && gpushm_disconnect(c) == NULL;

		_exit(ok ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	close_and_unlink(b, "x");
}
END_TEST

int main(int argc, char **argv)
{
	Suite *s = suite_create("life");
	TCase *t = tcase_create("names and states"), *u = tcase_create("deaths");
	SRunner *sr = srunner_create(s);
	int failed;

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_checked_fixture(u, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_set_timeout(u, 120);
	tcase_add_test(t, a_taken_name_is_given_again);
	tcase_add_test(t, a_bad_name_is_taken);
	tcase_add_test(t, an_unpublished_buffer_is_opened);
	tcase_add_test(t, a_sealed_buffer_is_opened_for_writing);
	tcase_add_test(t, memory_goes_before_the_last_lease);
	tcase_add_test(t, a_transient_buffer_outlives_its_last_lease);
	tcase_add_test(t, a_private_name_is_everybodys);
	tcase_add_test(t, attributes_or_the_digest_are_lost);
	tcase_add_test(t, a_list_loses_or_repeats_a_name);
	tcase_add_test(u, a_dead_creators_buffer_stays);
	tcase_add_test(u, a_published_buffer_dies_with_its_maker);
	tcase_add_test(u, a_killed_readers_lease_never_ends);
	tcase_add_test(u, a_closed_socket_ends_a_lease);
	tcase_add_test(u, a_waiting_open_misses_the_publication);
	tcase_add_test(u, a_forked_child_speaks_on_its_parents_connection);
	suite_add_tcase(s, t);
	suite_add_tcase(s, u);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
