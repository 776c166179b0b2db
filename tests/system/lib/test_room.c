/* SPDX-License-Identifier: MIT
 *
 * A pool that is smaller than what is published in it: whose memory goes, in which order, and who
 * is asked.
 */
#include "client/gpushm_async.h"
#include "client/gpushm_memory.h"
#include "client/gpushm_metrics.h"
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define BYTES MIB
#define ROOM 4 /* buffers */

#define POOLS                                                    \
	"[pool models]\nkind=host\nsize=4M\npending-max-age=0\n" \
	"[pool twins]\nkind=host\nsize=64M\n"

static void setup(void)
{
	client_setup_with("[daemon]\nyield-timeout=1\n" POOLS);
}

#define ck_works(call) ck_assert_msg((call) == 0, "%s", gpushm_error())

static const char *name_of(int i)
{
	static char name[16];

	snprintf(name, sizeof(name), "~/%d", i);
	return name;
}

static struct gpushm_buffer *make(int i)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "models" };
	struct gpushm_buffer *b = client_create(name_of(i), BYTES, &o);
	_cleanup_(free_ptr) unsigned char *bytes = malloc(BYTES);

	memset(bytes, i, BYTES);
	ck_works(gpushm_write(b, 0, bytes, BYTES));
	ck_works(gpushm_publish(b, GPUSHM_SEALED));
	ck_works(gpushm_make_twin(c, name_of(i), "twins"));
	return b;
}

static void make_unused(int i)
{
	ck_works(gpushm_close(make(i)));
}

static struct gpushm_buffer *open_it(int i)
{
	struct gpushm_buffer *b = NULL;
	_cleanup_(free_ptr) unsigned char *bytes = malloc(BYTES);

	ck_works(gpushm_open(c, name_of(i), GPUSHM_READ, 0, NULL, &b));
	ck_works(gpushm_read(b, 0, bytes, BYTES));
	ck_assert_uint_eq(bytes[0], i);
	ck_assert_uint_eq(bytes[BYTES - 1], i);
	return b;
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

static struct gpushm_pool_metrics counted(void)
{
	struct gpushm_pool_metrics found = { 0 };
	struct gpushm_metrics *m = NULL;

	ck_works(gpushm_metrics(c, &m));
	for (size_t i = 0; i < m->n_pools; i++)
		if (strcmp(m->pools[i]->pool->name, "models") == 0)
			found = *m->pools[i];
	gpushm_free(m);
	return found;
}

static void unlink_all(int n)
{
	for (int i = 0; i < n; i++)
		ck_works(gpushm_unlink(c, name_of(i)));
}

START_TEST(the_longest_unused_goes_first_and_nothing_while_there_is_room)
{
	for (int i = 0; i < ROOM; i++)
		make_unused(i);
	for (int i = 0; i < ROOM; i++)
		ck_assert(is_resident(i));
	ck_works(gpushm_close(open_it(0))); /* a use: 1 is the oldest now */
	make_unused(ROOM);
	ck_assert(is_resident(0) && !is_resident(1) && is_resident(2));
	ck_works(gpushm_close(open_it(1)));
	ck_assert(!is_resident(2) && is_resident(1));
	unlink_all(ROOM + 1);
}
END_TEST

START_TEST(what_is_suspended_goes_after_what_nobody_has)
{
	struct gpushm_buffer *b = make(0);

	ck_works(gpushm_suspend(b, 0));
	for (int i = 1; i < ROOM; i++)
		make_unused(i);
	make_unused(ROOM);
	ck_assert(is_resident(0) && !is_resident(1));
	ck_works(gpushm_close(b));
	unlink_all(ROOM + 1);
}
END_TEST

START_TEST(a_buffer_that_is_kept_stays)
{
	for (int i = 0; i < ROOM; i++)
		make_unused(i);
	ck_works(gpushm_set_keep(c, name_of(0), GPUSHM_WAIT_FOREVER, 0));
	ck_works(gpushm_set_keep(c, name_of(1), (uint64_t)1 << 58, 0));
	make_unused(ROOM);
	ck_assert(is_resident(0) && is_resident(1) && !is_resident(2));
	unlink_all(ROOM + 1);
}
END_TEST

START_TEST(the_configuration_says_how_long_all_others_stay)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "models" };
	struct gpushm_buffer *more = NULL;

	for (int i = 0; i < ROOM; i++)
		make_unused(i);
	daemon_write_config(&d, "[daemon]\nkeep=3600\nyield-timeout=0\n" POOLS);
	daemon_reload(&d, "configuration reloaded");
	ck_assert_int_eq(gpushm_create(c, "~/more", BYTES, &o, &more), -ENOSPC);
	ck_works(gpushm_set_keep(c, name_of(2), 0, 0));
	make_unused(ROOM);
	ck_assert(is_resident(0) && is_resident(1) && !is_resident(2) && is_resident(3));
	unlink_all(ROOM + 1);
}
END_TEST

START_TEST(a_buffer_without_a_twin_has_nothing_to_keep)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "models" };
	struct gpushm_buffer *b = client_create("~/0", BYTES, &o);

	ck_works(gpushm_publish(b, GPUSHM_SEALED));
	ck_assert_int_eq(gpushm_set_keep(c, "~/0", 0, 0), -EBUSY);
	ck_assert_msg(strstr(gpushm_error(), "demote"), "%s", gpushm_error());
	client_close_and_unlink(b, "~/0");
}
END_TEST

/* Suspends the buffer when it is wanted. */
static void *yield(void *arg)
{
	struct gpushm *own = NULL;
	struct gpushm_buffer *b = NULL;
	uint32_t notice;

	ck_works(gpushm_connect(d.socket, &own));
	ck_works(gpushm_open(own, arg, GPUSHM_READ, 0, NULL, &b));
	while (!gpushm_wanted(b)) {
		notice = gpushm_buffer_notice(b);
		if (!(notice & GPUSHM_NOTICE_WANTED))
			ck_works(gpushm_buffer_wait(b, notice, 10000, &notice));
	}
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_close(b));
	gpushm_disconnect(own);
	return NULL;
}

START_TEST(who_uses_it_is_asked_and_the_create_waits)
{
	struct gpushm_buffer *b[ROOM];
	pthread_t thread;

	for (int i = 0; i < ROOM; i++)
		b[i] = make(i);
	ck_works(gpushm_set_keep(c, "~/2", 0, -1));
	ck_works(gpushm_close(b[2]));
	b[2] = open_it(2);
	pthread_create(&thread, NULL, yield, (char *)"~/2");
	while (!({
		struct gpushm_stat *st = NULL;
		uint32_t readers;

		ck_works(gpushm_stat(c, "~/2", 0, 0, &st));
		readers = st->readers;
		gpushm_free(st);
		readers == 2;
	}))
		;
	ck_works(gpushm_suspend(b[2], 0));
	make_unused(ROOM);
	pthread_join(thread, NULL);
	ck_assert(!is_resident(2));
	for (int i = 0; i < ROOM; i++) {
		ck_assert_int_eq(gpushm_wanted(b[i]), 0);
		ck_works(gpushm_close(b[i]));
	}
	unlink_all(ROOM + 1);
}
END_TEST

static void *create_on_same_connection(void *unused)
{
	make_unused(ROOM);
	return NULL;
}

START_TEST(a_create_that_waits_does_not_block_the_suspend_that_it_waits_for)
{
	struct gpushm_buffer *b[ROOM];
	pthread_t thread;

	for (int i = 0; i < ROOM; i++)
		b[i] = make(i);
	pthread_create(&thread, NULL, create_on_same_connection, NULL);
	while (!gpushm_wanted(b[0]))
		;
	ck_works(gpushm_suspend(b[0], 0));
	pthread_join(thread, NULL);
	ck_assert(!is_resident(0));
	for (int i = 0; i < ROOM; i++)
		ck_works(gpushm_close(b[i]));
	unlink_all(ROOM + 1);
}
END_TEST

START_TEST(nobody_is_asked_for_what_is_not_enough)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "models" };
	struct gpushm_buffer *b = make(0), *other = client_create("~/other", 3 * BYTES, &o);
	struct gpushm_buffer *more = NULL;

	ck_assert_int_eq(gpushm_create(c, "~/more", 2 * BYTES, &o, &more), -ENOSPC);
	ck_assert_int_eq(gpushm_wanted(b), 0);
	ck_works(gpushm_discard(other));
	ck_works(gpushm_close(b));
	unlink_all(1);
}
END_TEST

START_TEST(nothing_goes_for_what_the_pool_can_never_hold)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "models" };
	struct gpushm_buffer *more = NULL;

	make_unused(0);
	ck_assert_int_eq(gpushm_create(c, "~/more", (ROOM + 1) * BYTES, &o, &more), -EFBIG);
	ck_assert(is_resident(0));
	unlink_all(1);
}
END_TEST

START_TEST(nobody_is_forced)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "models" };
	struct gpushm_buffer *b[ROOM], *more = NULL;

	for (int i = 0; i < ROOM; i++)
		b[i] = make(i);
	ck_assert_int_eq(gpushm_create(c, "~/more", BYTES, &o, &more), -ENOSPC);
	ck_assert_msg(strstr(gpushm_error(), "models"), "%s", gpushm_error());
	ck_assert_uint_eq(counted().not_yielded, 1);
	for (int i = 0; i < ROOM; i++)
		ck_assert_int_eq(gpushm_wanted(b[i]), 0); /* by nobody any more */
	ck_works(gpushm_suspend(b[0], 0));
	ck_assert(is_resident(0));
	more = client_create("~/more", BYTES, &o);
	ck_assert(!is_resident(0));
	ck_works(gpushm_discard(more));
	for (int i = 0; i < ROOM; i++)
		ck_works(gpushm_close(b[i]));
	unlink_all(ROOM);
}
END_TEST

START_TEST(a_full_pool_says_who_holds_what_and_who_was_asked)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "models" };
	struct gpushm_buffer *b = make(0), *dirty = client_create("~/dirty", 2 * BYTES, &o);
	struct gpushm_buffer *kept, *more = NULL;
	char asked[64];

	make_unused(1);
	kept = open_it(1);
	ck_works(gpushm_set_keep(c, "~/1", GPUSHM_WAIT_FOREVER, 0));
	ck_works(gpushm_close(kept));
	ck_assert_int_eq(gpushm_create(c, "~/more", BYTES, &o, &more), -ENOSPC);
	snprintf(asked, sizeof(asked), "1.0 MiB (pid %d test_room, asked 1 s ago)", getpid());
	ck_assert_msg(strstr(gpushm_error(), asked), "%s", gpushm_error());
	ck_assert_msg(strstr(gpushm_error(), "/dirty\" 2.0 MiB (pid "), "%s", gpushm_error());
	ck_assert_msg(strstr(gpushm_error(), "test_room, no twin)"), "%s", gpushm_error());
	ck_assert_msg(strstr(gpushm_error(), "/1\" 1.0 MiB (kept)"), "%s", gpushm_error());
	ck_works(gpushm_discard(dirty));
	ck_works(gpushm_close(b));
	unlink_all(2);
}
END_TEST

static bool exists(const char *name)
{
	struct gpushm_stat *st = NULL;
	int r = gpushm_stat(c, name, 0, 0, &st);

	gpushm_free(st);
	return r != -ENOENT;
}

START_TEST(a_create_that_waits_gets_what_is_let_go_of_later)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "models" };
	struct gpushm_buffer *b = make(0), *first = client_create("~/first", BYTES, &o);
	struct gpushm_buffer *other = client_create("~/other", 2 * BYTES, &o);
	struct gpushm *own = NULL;
	struct gpushm_call *call = NULL;
	int r;

	o.wait_ms = 20000;
	ck_works(gpushm_connect(d.socket, &own));
	ck_works(gpushm_send_create(own, "~/more", 2 * BYTES, &o, &call));
	while (!exists("~/more"))
		;
	ck_assert_int_eq(gpushm_wanted(b), 0); /* it would not be enough */
	ck_works(gpushm_discard(first));
	ck_assert(is_resident(0));
	ck_works(gpushm_suspend(b, 0));
	while ((r = gpushm_call_process(call)) == GPUSHM_PENDING)
		poll(&(struct pollfd){ .fd = gpushm_call_fd(call), .events = POLLIN }, 1, -1);
	ck_works(r);
	ck_assert(!is_resident(0));
	ck_works(gpushm_discard(gpushm_call_buffer(call)));
	gpushm_call_free(call);
	gpushm_disconnect(own);
	ck_works(gpushm_discard(other));
	ck_works(gpushm_close(b));
	unlink_all(1);
}
END_TEST

static _Atomic bool opened;

static void *open_and_close(void *arg)
{
	struct gpushm *own = NULL;
	struct gpushm_buffer *b = NULL;
	intptr_t r;

	ck_works(gpushm_connect(d.socket, &own));
	r = gpushm_open(own, "~/0", GPUSHM_READ, 20000, NULL, &b);
	opened = true;
	gpushm_close(b);
	gpushm_disconnect(own);
	return (void *)r;
}

START_TEST(a_restore_waits_for_room_as_long_as_its_open)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "models" };
	struct gpushm_stat *st = NULL;
	struct gpushm_buffer *other;
	char restore[64];
	pthread_t thread;
	void *result;

	make_unused(0);
	ck_works(gpushm_stat(c, "~/0", 0, 0, &st));
	snprintf(restore, sizeof(restore), "~/.restore-%llu", (unsigned long long)st->id);
	gpushm_free(st);
	other = client_create("~/other", ROOM * BYTES, &o);
	opened = false;
	pthread_create(&thread, NULL, open_and_close, NULL);
	while (!opened && !exists(restore))
		;
	ck_works(gpushm_discard(other));
	pthread_join(thread, &result);
	ck_assert_int_eq((intptr_t)result, 0);
	ck_assert(is_resident(0));
	unlink_all(1);
}
END_TEST

START_TEST(what_comes_and_goes_is_counted)
{
	struct gpushm_buffer *b[2];
	struct gpushm_pool_metrics m;

	for (int i = 0; i <= ROOM; i++)
		make_unused(i);
	m = counted();
	ck_assert_uint_eq(m.uses + m.restores + m.restored_ns, 0);
	b[0] = open_it(0);
	b[1] = open_it(0);
	ck_works(gpushm_set_keep(c, name_of(0), GPUSHM_WAIT_FOREVER, 0));
	m = counted();
	ck_assert_uint_eq(m.uses, 2);
	ck_assert_uint_eq(m.restores, 1);
	ck_assert_uint_gt(m.restored_ns, 0);
	ck_assert_uint_eq(m.kept_bytes, BYTES);
	ck_assert_uint_eq(m.evictable_bytes, (ROOM - 1) * BYTES);
	ck_works(gpushm_close(b[0]));
	ck_works(gpushm_close(b[1]));
	unlink_all(ROOM + 1);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("room");

	tcase_add_checked_fixture(t, setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, the_longest_unused_goes_first_and_nothing_while_there_is_room);
	tcase_add_test(t, what_is_suspended_goes_after_what_nobody_has);
	tcase_add_test(t, a_buffer_that_is_kept_stays);
	tcase_add_test(t, the_configuration_says_how_long_all_others_stay);
	tcase_add_test(t, a_buffer_without_a_twin_has_nothing_to_keep);
	tcase_add_test(t, who_uses_it_is_asked_and_the_create_waits);
	tcase_add_test(t, a_create_that_waits_does_not_block_the_suspend_that_it_waits_for);
	tcase_add_test(t, nobody_is_asked_for_what_is_not_enough);
	tcase_add_test(t, nothing_goes_for_what_the_pool_can_never_hold);
	tcase_add_test(t, nobody_is_forced);
	tcase_add_test(t, a_full_pool_says_who_holds_what_and_who_was_asked);
	tcase_add_test(t, a_create_that_waits_gets_what_is_let_go_of_later);
	tcase_add_test(t, a_restore_waits_for_room_as_long_as_its_open);
	tcase_add_test(t, what_comes_and_goes_is_counted);
	return suite_run("room", t, NULL);
}
