/* SPDX-License-Identifier: MIT
 *
 * One user publishes more buffers than its share of what systemd keeps. It learns which are not
 * kept, other users' buffers are, and a daemon that follows has exactly what was promised. Needs
 * root, to become other users.
 */
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "tests/lib/actor.h"
#include "tests/lib/raw.h"
#include "tests/lib/suite.h"
#include "tests/lib/supervisor.h"
#include "tests/lib/user.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { HOSTILE = 65521, HONEST = 65531 };

/* 5% of the 7,168 places that are not for administrators. */
enum { SHARE = 358, MORE = 20 };

static const char config[] = "[pool host]\nkind=host\nsize=1G\npending-max-age=0\n"
			     "[limits 65521]\nmax-share=5%\n";

static struct supervisor k;
static struct actor hostile, honest;
static struct raw by_hostile, by_honest, by_root;

static void greet(struct raw *r, struct actor *a)
{
	*r = (struct raw){ .socket = actor_connect(a) };
	ck_assert_int_eq(raw_call(r, REQUEST(HELLO, Hello, hello, SET(version_min, 1),
					     SET(version_max, 1))),
			 0);
}

static void connect_all(void)
{
	greet(&by_hostile, &hostile);
	greet(&by_honest, &honest);
	raw_greet(&by_root, k.socket);
}

static void close_all(void)
{
	raw_close(&by_hostile);
	raw_close(&by_honest);
	raw_close(&by_root);
}

static void setup(void)
{
	supervisor_init(&k, config);
	ck_assert_int_eq(chmod(k.folder, 0755), 0);
	supervisor_start(&k);
	ck_assert_int_eq(chmod(k.socket, 0666), 0);
	actor_start(&hostile, k.socket, HOSTILE, HOSTILE);
	actor_start(&honest, k.socket, HONEST, HONEST);
	connect_all();
}

static void teardown(void)
{
	close_all();
	actor_kill(&hostile);
	actor_kill(&honest);
	supervisor_end(&k, SIGTERM);
	supervisor_done(&k);
}

/* Returns whether the reply says that the buffer is kept. */
static bool publish(struct raw *r, const char *name)
{
	uint64_t lease = raw_create(r, name, 100);
	bool kept;

	raw_publish(r, lease, GPUSHM__PROTO__STATE__STATE_SEALED);
	kept = !r->reply->published->not_kept;
	ck_assert_int_eq(raw_call(r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
	ck_assert_int_eq(raw_call(r, REQUEST(STAT, Stat, stat, BYTES(name, name))), 0);
	ck_assert_int_eq(r->reply->stat->kept, kept);
	lease = raw_open(r, name);
	ck_assert_int_eq(r->reply->attach->not_kept, !kept);
	ck_assert_int_eq(raw_call(r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
	return kept;
}

static int publish_many(struct raw *r, int n)
{
	char name[16];
	int kept = 0;

	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "b%d", i);
		kept += publish(r, name);
	}
	return kept;
}

static int unlink_many(struct raw *r, int n)
{
	char name[16];
	int there = 0;

	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "b%d", i);
		there += raw_call(r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, name))) == 0;
	}
	return there;
}

static void unlink_one(struct raw *r, const char *name)
{
	ck_assert_int_eq(raw_call(r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, name))), 0);
}

static void crash(void)
{
	supervisor_end(&k, SIGKILL);
	close_all();
	supervisor_start(&k);
	connect_all();
}

START_TEST(buffers_of_one_user_leave_places_for_others)
{
	for (int round = 0; round < 2; round++) {
		ck_assert_int_eq(publish_many(&by_hostile, SHARE + MORE), SHARE);
		ck_assert(publish(&by_honest, "honest"));
		ck_assert(publish(&by_root, "root"));
		/* A place that is given back serves the next buffer. */
		unlink_one(&by_hostile, "b3");
		ck_assert(publish(&by_hostile, "b3"));
		crash();
		ck_assert_int_eq(unlink_many(&by_hostile, SHARE + MORE), SHARE);
		unlink_one(&by_honest, "honest");
		unlink_one(&by_root, "root");
	}
	ck_assert_uint_eq(supervisor_log_count(&k, "survive"), 0);
}
END_TEST

static void expect_empty(struct gpushm *conn)
{
	struct gpushm_status *st = NULL;
	struct gpushm_pool **pools = NULL;
	size_t n = 0;

	ck_assert_int_eq(gpushm_status(conn, &st), 0);
	ck_assert_uint_eq(st->retained, 0);
	gpushm_free(st);
	ck_assert_int_eq(gpushm_pools(conn, &pools, &n), 0);
	ck_assert_uint_eq(pools[0]->used_bytes, 0);
	gpushm_free(pools);
}

/* systemd has descriptors of a buffer, and closes them some time after it has ended. Nobody else
 * has it any more, so its memory is free at once. */
START_TEST(a_descriptor_at_systemd_retains_no_memory)
{
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec),
					  .name = "a",
					  .dtype = { .code = 1, .bits = 8, .lanes = 1 } };
	struct gpushm_buffer *b = NULL, *reader = NULL;
	struct gpushm *conn = NULL;

	ck_assert_int_eq(gpushm_connect(k.socket, &conn), 0);
	for (int i = 0; i < 40; i++) {
		ck_assert_msg(gpushm_create(conn, "x", 1 << 20, NULL, &b) == 0, "%s",
			      gpushm_error());
		ck_assert_int_eq(gpushm_describe(b, &spec, 1), 0);
		ck_assert_int_eq(gpushm_publish(b, i % 2 ? GPUSHM_SHARED : GPUSHM_SEALED), 0);
		ck_assert_int_eq(gpushm_buffer_kept(b), 1);
		ck_assert_int_eq(gpushm_close(b), 0);
		if (i % 10 == _i)
			crash();
		ck_assert_int_eq(gpushm_open(conn, "x", i % 2 ? GPUSHM_WRITE : GPUSHM_READ, 0, NULL,
					     &reader),
				 0);
		ck_assert_int_eq(gpushm_unlink(conn, "x"), 0);
		ck_assert_int_eq(gpushm_close(reader), 0);
		expect_empty(conn);
	}
	gpushm_disconnect(conn);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("places");

	if (!user_may_change())
		return 0;
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, buffers_of_one_user_leave_places_for_others);
	tcase_add_loop_test(t, a_descriptor_at_systemd_retains_no_memory, 0, 2);
	return suite_run("places", t, NULL);
}
