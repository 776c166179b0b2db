/* SPDX-License-Identifier: MIT
 *
 * What a process says and hears about buffers whose memory may be needed: that it uses them, and
 * that somebody wants them.
 */
#include "client/gpushm_memory.h"
#include "client/gpushm_metrics.h"
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/forked.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define ROOM 4 /* buffers of 1 MiB */

#define POOLS                                                    \
	"[pool models]\nkind=host\nsize=4M\npending-max-age=0\n" \
	"[pool twins]\nkind=host\nsize=64M\n"

#define ck_works(call) ck_assert_msg((call) == 0, "%s", gpushm_error())

static const struct gpushm_create_options in_models = { .struct_size = sizeof(in_models),
							.pool = "models" };
static struct gpushm_buffer *all[ROOM];

static const char *name_of(int i)
{
	static char name[16];

	snprintf(name, sizeof(name), "~/%d", i);
	return name;
}

/* The pool is full of buffers that have twins, and that this process has open. */
static void setup(void)
{
	client_setup_with("[daemon]\nyield-timeout=1\n" POOLS);
	for (int i = 0; i < ROOM; i++) {
		all[i] = client_create(name_of(i), MIB, &in_models);
		ck_works(gpushm_publish(all[i], GPUSHM_SEALED));
		ck_works(gpushm_make_twin(c, name_of(i), "twins"));
	}
}

static void teardown(void)
{
	for (int i = 0; i < ROOM; i++)
		client_close_and_unlink(all[i], name_of(i));
	client_teardown();
}

static bool is_resident(int i)
{
	struct gpushm_stat *st = NULL;
	bool resident;

	ck_works(gpushm_stat(c, name_of(i), 0, 0, &st));
	resident = st->residence == GPUSHM_RESIDENT;
	gpushm_free(st);
	return resident;
}

static void *create_one(void *unused)
{
	struct gpushm *own = NULL;
	struct gpushm_buffer *b = NULL;

	ck_works(gpushm_connect(d.socket, &own));
	if (gpushm_create(own, "~/more", MIB, &in_models, &b) == 0)
		ck_works(gpushm_discard(b));
	gpushm_disconnect(own);
	return NULL;
}

/* ---- that it uses them ---- */

START_TEST(what_is_used_goes_last)
{
	for (int i = 0; i < ROOM; i++)
		ck_works(gpushm_suspend(all[i], 0));
	ck_works(gpushm_use(all[0]));
	create_one(NULL);
	ck_assert(is_resident(0) && !is_resident(1) && is_resident(2));
	ck_assert_int_eq(gpushm_buffer_suspended(all[0]), 1);
}
END_TEST

START_TEST(a_use_is_told_once_a_second)
{
	uint64_t before = client_status().requests, after;

	for (int i = 0; i < 100000; i++)
		ck_works(gpushm_use(all[0]));
	after = client_status().requests;
	ck_assert_uint_le(after - before, 1 + 3); /* the uses, and this STATUS */
	ck_assert_int_eq(gpushm_use(NULL), -EINVAL);
}
END_TEST

START_TEST(a_use_waits_for_no_daemon)
{
	daemon_kill(&d);
	ck_works(gpushm_use(all[0]));
	for (int i = 0; i < ROOM; i++)
		gpushm_close(all[i]);
	gpushm_disconnect(c);
	c = NULL;
}
END_TEST

/* ---- that somebody wants them ---- */

static int is_readable(int fd, int ms)
{
	return poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, ms);
}

/* Calls it until the replies of the daemon that it needs have come. */
static int wanted_fd(void)
{
	int fd;

	do {
		fd = gpushm_wanted_fd(c);
		ck_assert_msg(fd >= 0, "%s", gpushm_error());
	} while (is_readable(fd, 100));
	return fd;
}

START_TEST(an_fd_says_that_a_buffer_is_wanted)
{
	int fd = wanted_fd();
	pthread_t thread;

	pthread_create(&thread, NULL, create_one, NULL);
	ck_assert_int_eq(is_readable(fd, 10000), 1);
	ck_assert_int_eq(gpushm_wanted_fd(c), fd);
	ck_assert_int_eq(is_readable(fd, 0), 0);
	ck_assert_int_eq(gpushm_wanted(all[0]), 1);
	ck_works(gpushm_suspend(all[0], 0));
	pthread_join(thread, NULL);
	ck_assert(!is_resident(0));
}
END_TEST

static int hears(void *unused)
{
	struct gpushm *own = NULL;
	int fd = gpushm_connect(d.socket, &own) == 0 ? gpushm_wanted_fd(own) : -1;

	while (fd >= 0 && is_readable(fd, 100))
		fd = gpushm_wanted_fd(own);
	if (gpushm_ask_suspend(own, name_of(0), NULL) < 0)
		return 3;
	return fd < 0 ? 2 : is_readable(fd, 100);
}

START_TEST(a_process_hears_of_its_own_buffers_alone)
{
	ck_assert_int_eq(forked(hears, NULL), 0);
	ck_assert_int_eq(gpushm_wanted(all[0]), 1);
	ck_assert_int_eq(is_readable(wanted_fd(), 0), 0);
}
END_TEST

START_TEST(the_fd_stays_the_same_over_restarts)
{
	int fd = wanted_fd();

	daemon_crash(&d);
	ck_assert_int_eq(is_readable(fd, 10000), 1);
	daemon_restart(&d);
	ck_assert_int_eq(wanted_fd(), fd);
	for (int i = 0; i < ROOM; i++)
		gpushm_close(all[i]);
	gpushm_disconnect(c);
	ck_works(gpushm_connect(d.socket, &c));
}
END_TEST

/* ---- that somebody asks for them ---- */

START_TEST(a_buffer_without_a_twin_can_be_asked_for_and_keeps_its_memory)
{
	struct gpushm_buffer *b, *other;
	uint64_t yield_ms = 0, id;

	client_close_and_unlink(all[0], name_of(0));
	all[0] = b = client_create(name_of(0), MIB, &in_models);
	ck_assert_int_eq(gpushm_ask_suspend(c, name_of(0), NULL), -EBUSY); /* not published */
	ck_works(gpushm_publish(b, GPUSHM_SEALED));
	id = gpushm_buffer_id(b);
	ck_works(gpushm_ask_suspend(c, name_of(0), &yield_ms));
	ck_assert_uint_eq(yield_ms, 1000);
	ck_assert_int_eq(gpushm_wanted(b), 1);
	ck_works(gpushm_ask_suspend(c, name_of(0), NULL));
	ck_works(gpushm_suspend(b, 0));
	ck_assert_int_eq(gpushm_wanted(b), 1);
	ck_assert(is_resident(0));
	ck_works(gpushm_open(c, name_of(0), GPUSHM_READ, 0, NULL, &other));
	ck_assert_int_eq(gpushm_wanted(other), 1);
	ck_works(gpushm_close(other));
	ck_works(gpushm_ask_resume(c, name_of(0)));
	ck_assert_int_eq(gpushm_wanted(b), 0);
	ck_works(gpushm_ask_resume(c, name_of(0)));
	ck_works(gpushm_resume(b, 1000));
	ck_assert_uint_eq(gpushm_buffer_id(b), id);
	ck_assert_int_eq(gpushm_ask_suspend(c, "~/none", NULL), -ENOENT);
}
END_TEST

START_TEST(an_ask_ends_with_its_buffer_and_outlasts_a_create)
{
	struct gpushm_metrics *m = NULL;

	ck_works(gpushm_ask_suspend(c, name_of(0), NULL));
	create_one(NULL);
	ck_assert_int_eq(gpushm_wanted(all[0]), 1);
	client_close_and_unlink(all[0], name_of(0));
	ck_works(gpushm_metrics(c, &m));
	ck_assert_uint_eq(m->wanted, 0);
	gpushm_free(m);
	all[0] = client_create(name_of(0), MIB, &in_models);
	ck_works(gpushm_publish(all[0], GPUSHM_SEALED));
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("wanted"), *over = tcase_create("over");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_checked_fixture(over, setup, NULL);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_is_used_goes_last);
	tcase_add_test(t, a_use_is_told_once_a_second);
	tcase_add_test(t, an_fd_says_that_a_buffer_is_wanted);
	tcase_add_test(t, a_process_hears_of_its_own_buffers_alone);
	tcase_add_test(t, a_buffer_without_a_twin_can_be_asked_for_and_keeps_its_memory);
	tcase_add_test(t, an_ask_ends_with_its_buffer_and_outlasts_a_create);
	tcase_add_test(over, a_use_waits_for_no_daemon);
	tcase_add_test(over, the_fd_stays_the_same_over_restarts);
	return suite_run("wanted", t, over, NULL);
}
