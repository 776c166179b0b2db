/* SPDX-License-Identifier: MIT
 *
 * Planned restarts of a daemon with an fd store, and deaths before and after them: the two ways to
 * a successor do not disturb each other. The test's supervisor stands for any supervisor with the
 * same protocol.
 */
#include "client/gpushm.h"
#include "tests/lib/kept.h"
#include "tests/lib/suite.h"

#include <signal.h>
#include <stdio.h>

static struct gpushm_buffer *make(const char *name)
{
	struct gpushm_attr attr = { sizeof(attr), "made", name, 1 };
	struct gpushm_create_options o = { .struct_size = sizeof(o), .attrs = &attr, .n_attrs = 1 };
	struct gpushm_buffer *b = client_create(name, 1, &o);

	ck_assert_int_eq(gpushm_write(b, 0, name, 1), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	return b;
}

static void check(struct gpushm_buffer *b, const char *name)
{
	struct gpushm_stat *st = NULL;
	char byte = 0;

	ck_assert_msg(gpushm_stat(c, name, 0, 0, &st) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(st->id, gpushm_buffer_id(b));
	ck_assert_uint_eq(st->writers, 1);
	ck_assert_uint_eq(st->suspects, 0);
	ck_assert_uint_eq(st->n_attrs, 1);
	gpushm_free(st);
	ck_assert_int_eq(gpushm_read(b, 0, &byte, 1), 0);
	ck_assert_int_eq(byte, name[0]);
}

static void restart(void)
{
	pid_t pid = k.pid;

	ck_assert_msg(gpushm_restart(c) == 0, "%s", gpushm_error());
	ck_assert_int_eq(client_status().pid, pid);
}

static void die(void)
{
	supervisor_end(&k, SIGKILL);
	supervisor_start(&k);
}

static void restart_twice(void)
{
	restart();
	restart();
}

static void restart_and_die(void)
{
	restart();
	die();
}

static void die_and_restart(void)
{
	die();
	restart();
}

/* At once, before the successor has its driver. */
static void restart_and_die_twice(void)
{
	restart();
	supervisor_end(&k, SIGKILL);
	supervisor_spawn(&k);
	ck_assert_msg(gpushm_restart(c) == 0, "%s", gpushm_error());
	supervisor_end(&k, SIGKILL);
	supervisor_start(&k);
}

static void (*const ways[])(void) = { restart, restart_twice, restart_and_die, die_and_restart,
				      restart_and_die_twice };

START_TEST(a_death_around_a_planned_restart_loses_nothing)
{
	struct gpushm_buffer *a = make("a"), *b, *e;

	ways[_i]();
	b = make("b");
	ck_assert_int_eq(gpushm_close(make("closed")), 0);
	ways[_i]();
	e = make("e");
	ways[_i]();
	check(a, "a");
	check(b, "b");
	check(e, "e");
	ck_assert_int_eq(gpushm_wait(c, "closed", 0), 0);
	/* One journal is stored, and each fd that it names, once. */
	ck_assert_uint_eq(supervisor_count(&k, 'j'), 1);
	ck_assert_uint_eq(supervisor_count(&k, 'm'), 4);
	ck_assert_uint_eq(supervisor_count(&k, 't'), 4);
	ck_assert_int_eq(gpushm_unlink(c, "closed"), 0);
	client_close_and_unlink(a, "a");
	client_close_and_unlink(b, "b");
	client_close_and_unlink(e, "e");
}
END_TEST

/* What systemd expects: RELOADING=1, then READY=1. */
START_TEST(a_planned_restart_notifies_the_supervisor)
{
	unsigned ready = k.ready;

	restart();
	client_await(k.ready == ready + 1);
	ck_assert_uint_eq(k.reloading, 1);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("reexec kept");

	tcase_add_checked_fixture(t, kept_setup, kept_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, a_death_around_a_planned_restart_loses_nothing, 0,
			    (int)(sizeof(ways) / sizeof(ways[0])));
	tcase_add_test(t, a_planned_restart_notifies_the_supervisor);
	return suite_run("reexec kept", t, NULL);
}
