/* SPDX-License-Identifier: MIT
 *
 * What is left of a buffer, and for which processes, when its creator, its reader or a connection
 * dies.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- roles ---- */

/* socket name state: creates, publishes unless state is "filling", prints ok, waits. */
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

/* socket name how: opens, prints ok, waits; "hang-up" closes the socket without the library first.
 */
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
	/* The process ends as by a crash: nothing is closed, and no exit handler runs. */
	_exit(fgets(word, sizeof(word), stdin) == NULL ? 0 : 3);
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

/* ---- deaths ---- */

START_TEST(an_unpublished_buffer_ends_with_its_creator)
{
	struct role_process maker;
	struct gpushm_buffer *b = NULL;

	start(&maker, "maker", "x", "filling");
	ck_assert_int_eq(gpushm_create(c, "x", 100, NULL, &b), -EEXIST);
	kill_role(&maker);
	client_await(client_used_bytes() == 0);
	b = client_create("x", 100, NULL);
	ck_assert_int_eq(gpushm_discard(b), 0);
}
END_TEST

START_TEST(a_published_buffer_outlives_its_creator)
{
	struct role_process maker;
	struct gpushm_buffer *b = NULL;

	start(&maker, "maker", "x", "sealed");
	kill_role(&maker);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	client_close_and_unlink(b, "x");
	client_await(client_used_bytes() == 0);
}
END_TEST

START_TEST(a_lease_ends_when_its_reader_is_killed)
{
	struct role_process holder;
	struct gpushm_buffer *b = client_create("x", 100, NULL);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	start(&holder, "holder", "x", "stay");
	client_close_and_unlink(b, "x");
	ck_assert_uint_ne(client_used_bytes(), 0);
	kill_role(&holder);
	client_await(client_used_bytes() == 0);
}
END_TEST

static uint32_t suspects_of(const char *name)
{
	struct gpushm_stat *st = NULL;
	uint32_t n;

	ck_assert_int_eq(gpushm_stat(c, name, 0, 0, &st), 0);
	n = st->suspects;
	gpushm_free(st);
	return n;
}

START_TEST(a_lease_outlives_its_connection_until_the_process_ends)
{
	struct role_process holder;
	struct gpushm_buffer *b = client_create("x", 100, NULL);
	struct gpushm_stat *st = NULL;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	start(&holder, "holder", "x", "hang-up");
	client_await(suspects_of("x") == 1);
	ck_assert_int_eq(gpushm_stat(c, "x", 0, GPUSHM_HOLDERS, &st), 0);
	ck_assert_uint_eq(st->readers, 2);
	ck_assert_uint_eq(st->n_holders, 2);
	ck_assert_int_eq(st->holders[1]->suspect, 1);
	ck_assert_int_eq(st->holders[1]->pid, holder.pid);
	gpushm_free(st);
	client_close_and_unlink(b, "x");
	ck_assert_uint_ne(client_used_bytes(), 0);
	role_finish(&holder);
	client_await(client_used_bytes() == 0);
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

START_TEST(a_waiting_open_waits_past_a_dead_creator_for_publication)
{
	struct waiting w = { 0 };
	struct role_process maker;
	struct gpushm_buffer *b;
	pthread_t thread;

	ck_assert_int_eq(gpushm_connect(d.socket, &w.conn), 0);
	pthread_create(&thread, NULL, open_when_published, &w);
	client_await(client_waiting() == 1);
	/* Another process starts to make the buffer and dies: the open continues to wait. */
	start(&maker, "maker", "late", "filling");
	kill_role(&maker);
	client_await(client_used_bytes() == 0);
	ck_assert_uint_eq(client_waiting(), 1);
	b = client_create("late", 100, NULL);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(w.result, 0);
	ck_assert_uint_eq(gpushm_buffer_id(w.b), gpushm_buffer_id(b));
	ck_assert_int_eq(gpushm_close(w.b), 0);
	gpushm_disconnect(w.conn);
	client_close_and_unlink(b, "late");
}
END_TEST

START_TEST(a_forked_child_may_not_use_its_parents_connection)
{
	struct gpushm_buffer *b = client_create("x", 100, NULL), *other = NULL;
	pid_t child = fork();
	int status;

	if (child == 0) {
		int ok = gpushm_wait(c, "x", 0) == -ECHILD &&
			 gpushm_create(c, "y", 1, NULL, &other) == -ECHILD &&
			 gpushm_publish(b, GPUSHM_SEALED) == -ECHILD && gpushm_close(b) == 0 &&
			 gpushm_disconnect(c) == NULL;

		_exit(ok ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("deaths");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, an_unpublished_buffer_ends_with_its_creator);
	tcase_add_test(t, a_published_buffer_outlives_its_creator);
	tcase_add_test(t, a_lease_ends_when_its_reader_is_killed);
	tcase_add_test(t, a_lease_outlives_its_connection_until_the_process_ends);
	tcase_add_test(t, a_waiting_open_waits_past_a_dead_creator_for_publication);
	tcase_add_test(t, a_forked_child_may_not_use_its_parents_connection);
	return suite_run("deaths", t, NULL);
}
