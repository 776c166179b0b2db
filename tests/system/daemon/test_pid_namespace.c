/* SPDX-License-Identifier: MIT
 *
 * Clients in a PID namespace that the daemon does not see, as in a container, and the daemon's
 * successor: a pid would not identify these clients again, so the daemon passes their pidfds on.
 */
#include "proto/base/own.h"
#include "proto/status_page.h"
#include "tests/lib/actor.h"
#include "tests/lib/client.h"
#include "tests/lib/raw.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/supervisor.h"
#include "tests/lib/user.h"

#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define STRANGER 65529
#define PIDFS 0x50494446 /* PID_FS_MAGIC of linux/magic.h */

static struct supervisor k;
static bool kept;

/* socket name: opens for writing, prints ok, and lives until its input ends. */
static int holder_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	char line[8];

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], GPUSHM_WRITE, 0, NULL, &b) < 0)
		return 1;
	puts("ok");
	_exit(fgets(line, sizeof(line), stdin) ? 3 : 0);
}

static void start(void)
{
	struct daemon_options o = { .isolated = true };

	if (kept) {
		supervisor_init(&k, "");
		k.isolated = true;
		supervisor_start(&k);
	} else {
		daemon_start_with(&d, "", &o);
	}
	ck_assert_msg(gpushm_connect(kept ? k.socket : d.socket, &c) == 0, "%s", gpushm_error());
}

static void stop(void)
{
	if (!kept) {
		client_teardown();
		return;
	}
	ck_assert_uint_eq(client_used_bytes(), 0);
	c = gpushm_disconnect(c);
	client_await(supervisor_count(&k, 'k') == 0);
	supervisor_end(&k, SIGTERM);
	supervisor_done(&k);
}

static void replace_program(void)
{
	ck_assert_msg(gpushm_restart(c) == 0, "%s", gpushm_error());
}

static void die(void)
{
	supervisor_end(&k, SIGKILL);
	supervisor_start(&k);
}

static void restart_and_die(void)
{
	replace_program();
	die();
}

static const struct {
	bool kept;
	void (*next)(void);
} ways[] = { { false, replace_program },
	     { true, replace_program },
	     { true, die },
	     { true, restart_and_die } };

/* Since Linux 6.9. Before, a process of another namespace that reconnects is not recognised, and
 * its lease lasts until the process ends. */
static bool pidfds_are_told_apart(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct statfs fs;
	bool told = fstatfs(fd, &fs) == 0 && fs.f_type == PIDFS;

	close(fd);
	if (!told)
		puts("skipped: this kernel's pidfds are all one to fstat(2)");
	return told;
}

static bool setup(int way)
{
	kept = ways[way].kept;
	if (!daemon_may_be_isolated() || !pidfds_are_told_apart())
		return false;
	start();
	return true;
}

static void expect(uint32_t writers, uint32_t suspects)
{
	struct gpushm_stat *st = NULL;

	ck_assert_msg(gpushm_stat(c, "x", 0, GPUSHM_HOLDERS, &st) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(st->writers, writers);
	ck_assert_uint_eq(st->suspects, suspects);
	ck_assert_int_eq(st->holders[0]->pid, 0);
	gpushm_free(st);
}

static bool is_dirty(void)
{
	struct gpushm_stat *st = NULL;
	bool dirty;

	ck_assert_int_eq(gpushm_stat(c, "x", 0, 0, &st), 0);
	dirty = st->dirty;
	gpushm_free(st);
	return dirty;
}

START_TEST(a_process_in_another_namespace_keeps_its_lease_while_it_lives)
{
	struct role_process holder;
	struct gpushm_buffer *b;
	char line[8];

	if (!setup(_i))
		return;
	b = client_create("x", 100, NULL);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	role_start(&holder, "holder", (const char *[]){ kept ? k.socket : d.socket, "x", NULL });
	role_read_line(&holder, line, sizeof(line));
	ways[_i].next();
	/* We have reconnected; the other process has sent nothing. */
	expect(2, 1);
	ck_assert_int_eq(gpushm_buffer_lost(b), 0);
	ways[_i].next();
	expect(2, 1);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(is_dirty(), 0);
	role_finish(&holder);
	client_await(is_dirty());
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	client_await(client_used_bytes() == 0);
	stop();
}
END_TEST

/* The process ends while there is no daemon. */
START_TEST(a_process_in_another_namespace_loses_its_lease_at_its_end)
{
	struct role_process holder;
	struct gpushm_buffer *b;
	char line[8];

	if (!setup(2))
		return;
	b = client_create("x", 100, NULL);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	role_start(&holder, "holder", (const char *[]){ k.socket, "x", NULL });
	role_read_line(&holder, line, sizeof(line));
	supervisor_end(&k, SIGKILL);
	role_finish(&holder);
	supervisor_start(&k);
	ck_assert_int_eq(is_dirty(), 1);
	expect(1, 0);
	client_close_and_unlink(b, "x");
	stop();
}
END_TEST

static void greet(struct raw *r, struct actor *a)
{
	*r = (struct raw){ .socket = actor_connect(a) };
	ck_assert_int_eq(raw_call(r, REQUEST(HELLO, Hello, hello, SET(version_min, 1),
					     SET(version_max, 1))),
			 0);
}

/* The process opens on one connection and watches on another. */
START_TEST(a_holder_in_another_namespace_is_known_on_each_connection)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0644 };
	Gpushm__Proto__Watched what = MESSAGE(Watched, watched), *all[] = { &what };
	struct actor a;
	struct gpushm_buffer *b;
	struct raw one, other;

	if (!user_may_change() || !setup(0))
		return;
	b = client_create("x", 100, &o);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	actor_start(&a, d.socket, STRANGER, STRANGER);
	greet(&one, &a);
	greet(&other, &a);
	raw_open(&one, "x");
	what.has_buffer = 1;
	what.buffer = one.reply->attach->buffer;
	client_close_and_unlink(b, "x");
	ck_assert_int_eq(raw_call(&other,
				  REQUEST(WATCH, Watch, watch, .n_watched = 1, .watched = all)),
			 0);
	ck_assert_uint_eq(other.reply->watched->n_changed, 1);
	ck_assert_uint_eq(other.reply->watched->changed[0]->word &
				  (STATUS_PAGE_UNLINKED | STATUS_PAGE_GONE),
			  STATUS_PAGE_UNLINKED);
	actor_kill(&a);
	raw_close(&other);
	raw_close(&one);
	client_await(client_used_bytes() == 0);
	stop();
}
END_TEST

static const struct role roles[] = { { "holder", holder_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("pid_namespace");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, a_process_in_another_namespace_keeps_its_lease_while_it_lives, 0,
			    (int)array_size(ways));
	tcase_add_test(t, a_process_in_another_namespace_loses_its_lease_at_its_end);
	tcase_add_test(t, a_holder_in_another_namespace_is_known_on_each_connection);
	return suite_run("pid_namespace", t, NULL);
}
