/* SPDX-License-Identifier: MIT
 *
 * One user takes all that it can get of what all users share. Another user and an administrator are
 * still served, and what was taken comes back. Needs root, to become other users.
 */
#include "proto/base/own.h"
#include "tests/lib/actor.h"
#include "tests/lib/counted.h"
#include "tests/lib/fds.h"
#include "tests/lib/raw_stream.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { HOSTILE = 65521, HONEST = 65531, FDS = 300, SOCKETS = 400 };

/* c is root's connection. */
static struct actor hostile, honest;
static int sockets[SOCKETS], watching[SOCKETS + 100];

static void setup_with(const struct daemon_options *o)
{
	struct rlimit limit;

	/* This process has both ends of what the hostile user does. */
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	fds_mark();
	daemon_start_with(&d, CENSUS_CONFIG, o);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
	actor_start(&hostile, d.socket, HOSTILE, HOSTILE);
	actor_start(&honest, d.socket, HONEST, HONEST);
	census_take(&d, c, &before);
	for (int i = 0; i < SOCKETS; i++)
		sockets[i] = -1;
}

static void setup(void)
{
	setup_with(&(struct daemon_options){ .max_fds = FDS, .ordinary_limits = true });
}

static void setup_large(void)
{
	setup_with(&(struct daemon_options){ 0 });
}

static void teardown(void)
{
	for (int i = 0; i < SOCKETS; i++)
		close_fd(&sockets[i]);
	actor_kill(&hostile);
	actor_kill(&honest);
	counted_teardown();
	fds_check();
}

/* Sends it and reads nothing; the daemon may have hung up. */
static void send_on(int socket, const Gpushm__Proto__Request *q)
{
	static struct raw r;

	r.socket = socket;
	raw_request(&r, q);
}

static void send_hello(int socket)
{
	send_on(socket, REQUEST(HELLO, Hello, hello, SET(version_min, 1), SET(version_max, 1),
				SET(board, 1)));
}

static void greet(struct raw *r, struct actor *a)
{
	*r = (struct raw){ .socket = actor_connect(a) };
	raw_call(r, REQUEST(HELLO, Hello, hello, SET(version_min, 1), SET(version_max, 1)));
	ck_assert_msg(r->code == 0, "%s", r->text);
}

/* Both of them connect, create, publish, open and close. */
static void others_are_served(void)
{
	static struct raw r;
	struct gpushm_buffer *b = NULL;
	struct gpushm *late = NULL;

	greet(&r, &honest);
	raw_publish(&r, raw_create(&r, "honest", 100), GPUSHM__PROTO__STATE__STATE_SHARED);
	raw_open(&r, "honest");
	ck_assert_int_eq(raw_call(&r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "honest"))), 0);
	raw_close(&r);
	ck_assert_msg(gpushm_connect(d.socket, &late) == 0, "%s", gpushm_error());
	ck_assert_msg(gpushm_create(late, "admin", 100, NULL, &b) == 0, "%s", gpushm_error());
	ck_assert_msg(gpushm_publish(b, GPUSHM_SEALED) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(late, "admin"), 0);
	gpushm_disconnect(late);
}

static void make_bait(void)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0644 };
	struct gpushm_buffer *b = client_create("bait", 100, &o);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
}

/* The kernel lets a user have RLIMIT_NOFILE descriptors in flight, and those in unread replies are
 * the daemon's, also when it has hung up. */
START_TEST(unread_replies_of_one_user_leave_room_for_others)
{
	make_bait();
	for (int i = 0; i < SOCKETS; i++) {
		sockets[i] = actor_connect(&hostile);
		send_hello(sockets[i]);
		for (int n = 0; n < 3; n++)
			send_on(sockets[i], REQUEST(OPEN, Open, open, BYTES(name, "bait")));
		if (_i) /* The daemon hangs up. */
			shutdown(sockets[i], SHUT_WR);
	}
	for (int i = 0; i < 10; i++)
		others_are_served();
	ck_assert_int_eq(gpushm_unlink(c, "bait"), 0);
}
END_TEST

/* A user that reads all replies has nothing in flight, with any number of connections. */
START_TEST(replies_that_are_read_use_up_no_share)
{
	enum { N = 60 };
	static struct raw all[N];

	make_bait();
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < N; i++) {
			if (round == 0)
				greet(&all[i], &hostile);
			raw_open(&all[i], "bait");
		}
	}
	for (int i = 0; i < N; i++)
		raw_close(&all[i]);
	ck_assert_int_eq(gpushm_unlink(c, "bait"), 0);
}
END_TEST

START_TEST(connections_of_one_user_leave_room_for_others)
{
	for (int i = 0; i < SOCKETS; i++) {
		sockets[i] = actor_connect(&hostile);
		send_hello(sockets[i]);
	}
	for (int i = 0; i < 10; i++)
		others_are_served();
}
END_TEST

START_TEST(buffers_of_one_user_leave_room_for_others)
{
	static struct raw r;
	char name[16];
	int code = 0, n = 0;

	greet(&r, &hostile);
	while (code == 0 && n < FDS) {
		snprintf(name, sizeof(name), "b%d", n++);
		code = raw_call(&r, REQUEST(CREATE, Create, create, BYTES(name, name),
					    SET(size_bytes, 100)));
	}
	ck_assert_int_eq(code, CODE_LIMIT);
	ck_assert_msg(strstr(r.text, "max-share"), "%s", r.text);
	for (int i = 0; i < 10; i++)
		others_are_served();
	raw_close(&r);
}
END_TEST

/* A stream of another user, too. */
static void a_stream_is_served(void)
{
	static struct raw p, q;
	uint64_t producer, reader;

	greet(&p, &honest);
	greet(&q, &honest);
	producer = raw_produce(&p, "theirs");
	reader = raw_open(&q, "theirs");
	raw_join(&q, reader, STREAM_EVERY);
	ck_assert_int_eq(raw_page(&q, reader, STREAM_PAGE_HEAD), 0);
	raw_close_lease(&q, reader);
	raw_close_lease(&p, producer);
	ck_assert_int_eq(gpushm_unlink(c, "theirs"), 0);
	raw_close(&p);
	raw_close(&q);
}

START_TEST(streams_of_one_user_leave_room_for_others)
{
	static struct raw r;
	uint64_t lease = 0;
	char name[16];
	int code = 0;

	greet(&r, &hostile);
	for (int n = 0; code == 0; n++) {
		ck_assert_int_lt(n, FDS);
		snprintf(name, sizeof(name), "s%d", n);
		code = raw_call(&r, REQUEST(CREATE, Create, create, BYTES(name, name),
					    SET(size_bytes, 4096)));
		if (code == 0)
			lease = r.reply->attach->lease;
		if (code == 0)
			code = raw_make_stream(&r, lease, 2, 64, 64);
	}
	ck_assert_int_eq(code, CODE_LIMIT);
	for (int i = 0; i < 3; i++) {
		others_are_served();
		a_stream_is_served();
	}
	raw_close(&r);
}
END_TEST

/* It follows another user's stream, leaves, and keeps the page mapped, again and again. */
START_TEST(pages_that_one_user_keeps_leave_room_for_others)
{
	static struct raw p, q;
	static void *maps[FDS];
	uint64_t producer, lease;
	int code = 0, n = 0;

	greet(&p, &honest);
	greet(&q, &hostile);
	producer = raw_produce(&p, "bait");
	for (; code == 0 && n < FDS; n++) {
		code = raw_call(&q, REQUEST(OPEN, Open, open, BYTES(name, "bait")));
		lease = code ? 0 : q.reply->attach->lease;
		if (code == 0)
			code = raw_join_as(&q, lease, STREAM_LATEST, 1);
		if (code == 0)
			maps[n] = raw_map_page(&q, lease, STREAM_PAGE_READER);
		ck_assert_msg(code == 0 || strstr(q.text, "max-share"), "%s", q.text);
		if (lease)
			ck_assert_int_eq(raw_close_lease(&q, lease), 0);
	}
	ck_assert_int_eq(code, CODE_LIMIT);
	for (int i = 0; i < 3; i++) {
		others_are_served();
		a_stream_is_served();
	}
	raw_close_lease(&p, producer);
	ck_assert_int_eq(gpushm_unlink(c, "bait"), 0);
	raw_close(&p);
	raw_close(&q);
	while (n-- > 0)
		if (maps[n])
			munmap(maps[n], stream_reader_bytes(RAW_SLOTS));
}
END_TEST

/* Each closed connection has left a lease, and its process lives. */
START_TEST(closed_connections_of_one_process_keep_few_descriptors)
{
	static struct raw r;
	struct census now;

	make_bait();
	for (int i = 0; i < FDS; i++) {
		greet(&r, &hostile);
		raw_open(&r, "bait");
		raw_close(&r);
	}
	do
		census_take(&d, c, &now);
	while (now.peers > before.peers);
	ck_assert_uint_eq(now.suspects, FDS);
	ck_assert_uint_le(now.fds, before.fds + 4);
	for (int i = 0; i < 10; i++)
		others_are_served();
	ck_assert_int_eq(gpushm_unlink(c, "bait"), 0);
}
END_TEST

/* Together they get more than half, and another user still finds something. */
START_TEST(three_users_leave_room_for_others)
{
	enum { USERS = 3 };
	struct actor more[USERS];

	for (int i = 0; i < USERS; i++)
		actor_start(&more[i], d.socket, HOSTILE + 1 + i, HOSTILE);
	for (int i = 0; i < SOCKETS; i++) {
		sockets[i] = actor_connect(&more[i * USERS / SOCKETS]);
		send_hello(sockets[i]);
	}
	others_are_served();
	for (int i = 0; i < USERS; i++)
		actor_kill(&more[i]);
}
END_TEST

/* Sends a WATCH of 256 names; returns the code of the reply, or 0 if the daemon waits. */
static int watch_many(struct raw *r)
{
	enum { N = 256 };
	static Gpushm__Proto__Watched all[N], *pointers[N];
	static char names[N][16];
	struct pollfd p = { .fd = r->socket, .events = POLLIN };
	uint32_t waiting = client_waiting();

	for (int i = 0; i < N; i++) {
		snprintf(names[i], sizeof(names[i]), "name%d", i);
		all[i] = MESSAGE(Watched, watched, BYTES(name, names[i]));
		pointers[i] = &all[i];
	}
	raw_request(r, REQUEST(WATCH, Watch, watch, .n_watched = N, .watched = pointers,
			       SET(wait_ms, UINT64_MAX)));
	while (poll(&p, 1, 0) == 0)
		if (client_waiting() > waiting)
			return 0;
	return raw_receive(r);
}

START_TEST(watches_of_one_user_leave_room_for_others)
{
	static struct raw r;
	int n = 0, code = 0;

	while (code == 0 && n < SOCKETS + 100) {
		greet(&r, &hostile);
		code = watch_many(&r);
		if (code == 0)
			watching[n++] = take_fd(&r.socket);
		raw_close(&r);
	}
	ck_assert_int_eq(code, CODE_LIMIT);
	greet(&r, &honest);
	ck_assert_int_eq(watch_many(&r), 0);
	raw_close(&r);
	while (n > 0)
		close_fd(&watching[--n]);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("shares"), *u = tcase_create("large");

	if (!user_may_change())
		return 0;
	suite_alone();
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, unread_replies_of_one_user_leave_room_for_others, 0, 2);
	tcase_add_test(t, replies_that_are_read_use_up_no_share);
	tcase_add_test(t, connections_of_one_user_leave_room_for_others);
	tcase_add_test(t, buffers_of_one_user_leave_room_for_others);
	tcase_add_test(t, streams_of_one_user_leave_room_for_others);
	tcase_add_test(t, pages_that_one_user_keeps_leave_room_for_others);
	tcase_add_test(t, closed_connections_of_one_process_keep_few_descriptors);
	tcase_add_test(t, three_users_leave_room_for_others);
	tcase_add_checked_fixture(u, setup_large, teardown);
	tcase_set_timeout(u, 120);
	tcase_add_test(u, watches_of_one_user_leave_room_for_others);
	return suite_run("shares", t, u, NULL);
}
