/* SPDX-License-Identifier: MIT
 *
 * Writers that die: which processes get an error, which do not, and how a buffer becomes clean
 * again.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/role.h"
#include "tests/lib/shell.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define STRANGER 65529

/* ---- roles ---- */

/* socket name access end: opens, prints ok, waits for a line or to be killed; "closed" closes
 * first, "left" only exits. */
static int holder_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	char line[8];

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], args[2][0] == 'w' ? GPUSHM_WRITE : GPUSHM_READ, 5000, NULL,
			&b) < 0)
		return 1;
	puts("ok");
	if (!fgets(line, sizeof(line), stdin))
		return 2;
	if (strcmp(args[3], "closed") == 0 && gpushm_close(b) < 0)
		return 3;
	puts("ok");
	/* No exit handler runs: the process leaves its buffer open on purpose. */
	_exit(fgets(line, sizeof(line), stdin) ? 4 : 0);
}

/* socket name: creates it sealed, prints ok, waits to be killed. */
static int sealer_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	char line[8];

	if (gpushm_connect(args[0], &conn) < 0 || gpushm_create(conn, args[1], 100, NULL, &b) < 0 ||
	    gpushm_publish(b, GPUSHM_SEALED) < 0)
		return 1;
	puts("ok");
	return fgets(line, sizeof(line), stdin) ? 2 : 0;
}

static const struct role roles[] = { { "holder", holder_role },
				     { "sealer", sealer_role },
				     { "user", user_role } };

static void hear(struct role_process *p, const char *expected)
{
	char line[32];

	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, expected);
}

static void hold(struct role_process *p, const char *name, const char *access, const char *end)
{
	role_start(p, "holder", (const char *[]){ d.socket, name, access, end, NULL });
	hear(p, "ok");
}

static void kill_role(struct role_process *p)
{
	ck_assert_int_eq(kill(p->pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(p)));
}

/* ---- helpers ---- */

static struct gpushm_stat stat_of(const char *name)
{
	struct gpushm_stat *st = NULL, copy;

	ck_assert_msg(gpushm_stat(c, name, 0, 0, &st) == 0, "%s", gpushm_error());
	copy = *st;
	gpushm_free(st);
	return copy;
}

static uint32_t holders_of(const char *name)
{
	struct gpushm_stat st = stat_of(name);

	return st.readers + st.writers;
}

/* A shared buffer that everybody may open and nobody holds. */
static void make_shared(const char *name)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0666 };
	struct gpushm_buffer *b = client_create(name, 100, &o);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
}

/* A shared buffer that a process had open for writing until it was killed. Nobody holds it now. */
static pid_t make_dirty(const char *name)
{
	struct role_process writer;

	make_shared(name);
	hold(&writer, name, "write", "killed");
	ck_assert_int_eq(stat_of(name).dirty, 0);
	kill_role(&writer);
	client_await(holders_of(name) == 0);
	return writer.pid;
}

static int open_refusing(struct gpushm *conn, uint64_t timeout_ms, struct gpushm_buffer **ret)
{
	struct gpushm_open_options o = { .struct_size = sizeof(o), .flags = GPUSHM_REFUSE_DIRTY };

	return gpushm_open(conn, "x", GPUSHM_READ, timeout_ms, &o, ret);
}

/* ---- tests ---- */

START_TEST(a_dead_writer_leaves_a_dirty_buffer_until_it_is_cleaned)
{
	pid_t pid = make_dirty("x");
	struct gpushm_stat st = stat_of("x"), **list = NULL;
	struct gpushm_buffer *b = NULL;
	size_t n;

	ck_assert_int_eq(st.dirty, 1);
	ck_assert_int_eq(st.dirty_pid, pid);
	ck_assert_uint_eq(st.dirty_uid, getuid());
	ck_assert_uint_ge(st.dirty_ns, st.published_ns);
	ck_assert_uint_gt(strlen(st.dirty_command), 0);
	ck_assert_int_eq(gpushm_list(c, "x", 0, &list, &n), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(list[0]->dirty_pid, pid);
	gpushm_free(list);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_buffer_dirty(b), 1);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_clean(c, "x"), 0);
	st = stat_of("x");
	ck_assert_int_eq(st.dirty, 0);
	ck_assert_int_eq(st.dirty_pid, 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_buffer_dirty(b), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_writer_that_exits_without_a_close_leaves_a_dirty_buffer)
{
	struct role_process writer;

	make_shared("x");
	hold(&writer, "x", "write", "left");
	role_write_line(&writer, "go");
	hear(&writer, "ok");
	role_finish(&writer);
	client_await(holders_of("x") == 0);
	ck_assert_int_eq(stat_of("x").dirty, 1);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

START_TEST(the_first_dead_writer_stays_named_after_a_second)
{
	pid_t pid = make_dirty("x");
	struct role_process writer;

	hold(&writer, "x", "write", "killed");
	kill_role(&writer);
	client_await(holders_of("x") == 0);
	ck_assert_int_eq(stat_of("x").dirty_pid, pid);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

START_TEST(a_dead_reader_leaves_a_clean_buffer)
{
	struct gpushm_buffer *b = client_create("x", 100, NULL);
	struct role_process reader;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	hold(&reader, "x", "read", "killed");
	kill_role(&reader);
	client_await(holders_of("x") == 1);
	ck_assert_int_eq(stat_of("x").dirty, 0);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_writer_that_closed_leaves_a_clean_buffer_when_it_dies)
{
	struct role_process writer;

	make_shared("x");
	hold(&writer, "x", "write", "closed");
	role_write_line(&writer, "go");
	hear(&writer, "ok");
	ck_assert_uint_eq(holders_of("x"), 0);
	kill_role(&writer);
	ck_assert_int_eq(stat_of("x").dirty, 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

START_TEST(a_sealed_buffer_stays_clean_when_its_creator_dies)
{
	struct role_process sealer;

	role_start(&sealer, "sealer", (const char *[]){ d.socket, "x", NULL });
	hear(&sealer, "ok");
	kill_role(&sealer);
	client_await(holders_of("x") == 0);
	ck_assert_int_eq(stat_of("x").dirty, 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

START_TEST(an_open_can_refuse_a_dirty_buffer)
{
	struct gpushm_buffer *b = NULL;
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", make_dirty("x"));
	ck_assert_int_eq(open_refusing(c, 0, &b), -EUCLEAN);
	ck_assert_str_eq(gpushm_error_code(), "DIRTY");
	ck_assert_msg(strstr(gpushm_error(), pid), "%s", gpushm_error());
	ck_assert_int_eq(open_refusing(c, 1, &b), -ETIMEDOUT);
	ck_assert_msg(strstr(gpushm_error(), "cleaned"), "%s", gpushm_error());
	ck_assert_int_eq(gpushm_clean(c, "x"), 0);
	ck_assert_int_eq(open_refusing(c, 0, &b), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

struct waiting {
	struct gpushm *conn;
	struct gpushm_buffer *b;
	int result;
};

static void *open_when_clean(void *arg)
{
	struct waiting *w = arg;

	w->result = open_refusing(w->conn, GPUSHM_WAIT_FOREVER, &w->b);
	return NULL;
}

START_TEST(a_waiting_open_gets_the_cleaned_buffer)
{
	struct waiting w = { 0 };
	pthread_t thread;

	make_dirty("x");
	ck_assert_int_eq(gpushm_connect(d.socket, &w.conn), 0);
	pthread_create(&thread, NULL, open_when_clean, &w);
	client_await(client_waiting() == 1);
	ck_assert_int_eq(gpushm_clean(c, "x"), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(w.result, 0);
	ck_assert_int_eq(gpushm_buffer_dirty(w.b), 0);
	ck_assert_int_eq(gpushm_close(w.b), 0);
	gpushm_disconnect(w.conn);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

START_TEST(a_stranger_may_not_clean)
{
	struct role_process stranger;

	if (!user_may_change())
		return;
	make_dirty("x");
	user_start(&stranger, d.socket, STRANGER, STRANGER);
	user_does(&stranger, "clean x", "ACCESS");
	user_end(&stranger);
	ck_assert_int_eq(stat_of("x").dirty, 1);
	ck_assert_int_eq(gpushm_clean(c, "y"), -ENOENT);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

START_TEST(deaths_of_a_users_own_writers_are_rate_limited_in_the_log)
{
	char name[8];

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "x%d", i);
		make_dirty(name);
		ck_assert_int_eq(gpushm_unlink(c, name), 0);
	}
	ck_assert_uint_ge(daemon_log_count(&d, "is dirty: process"), 1);
	ck_assert_uint_le(daemon_log_count(&d, "is dirty: process"), 5);
	ck_assert_uint_le(daemon_log_count(&d, "its leases end"), 5);
}
END_TEST

START_TEST(an_orderly_end_of_the_daemon_marks_no_buffer_dirty)
{
	struct gpushm_buffer *b = client_create("x", 100, NULL);
	struct role_process writer;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	hold(&writer, "x", "write", "left");
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	ck_assert(WIFEXITED(daemon_wait(&d)));
	ck_assert_uint_eq(daemon_log_count(&d, "dirty"), 0);
	kill_role(&writer);
	ck_assert_int_eq(gpushm_close(b), 0);
	gpushm_disconnect(c);
	daemon_restart(&d);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
}
END_TEST

START_TEST(gpushmctl_shows_and_cleans_a_dirty_buffer)
{
	struct shell sh;
	pid_t pid = make_dirty("x");

	setenv("GPUSHM_SOCKET", d.socket, 1);
	shell_open(&sh);
	shell_expect(&sh, 0, "$ctl ls | grep -q 'shared, dirty .*(%d '", pid);
	shell_expect(&sh, 0, "$ctl stat x | grep -q '^dirty *%d .* died'", pid);
	shell_expect(&sh, 0, "$ctl ls --json | grep -q '\"dirty_by\":{\"pid\":%d,'", pid);
	shell_expect(&sh, 3, "$ctl clean y x");
	shell_expect(&sh, 1, "$ctl ls | grep dirty");
	shell_expect(&sh, 0, "$ctl rm x");
	shell_close(&sh);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("dirty");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_dead_writer_leaves_a_dirty_buffer_until_it_is_cleaned);
	tcase_add_test(t, a_writer_that_exits_without_a_close_leaves_a_dirty_buffer);
	tcase_add_test(t, the_first_dead_writer_stays_named_after_a_second);
	tcase_add_test(t, a_dead_reader_leaves_a_clean_buffer);
	tcase_add_test(t, a_writer_that_closed_leaves_a_clean_buffer_when_it_dies);
	tcase_add_test(t, a_sealed_buffer_stays_clean_when_its_creator_dies);
	tcase_add_test(t, an_open_can_refuse_a_dirty_buffer);
	tcase_add_test(t, a_waiting_open_gets_the_cleaned_buffer);
	tcase_add_test(t, a_stranger_may_not_clean);
	tcase_add_test(t, deaths_of_a_users_own_writers_are_rate_limited_in_the_log);
	tcase_add_test(t, an_orderly_end_of_the_daemon_marks_no_buffer_dirty);
	tcase_add_test(t, gpushmctl_shows_and_cleans_a_dirty_buffer);
	return suite_run("dirty", t, NULL);
}
