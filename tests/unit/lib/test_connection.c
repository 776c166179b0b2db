/* SPDX-License-Identifier: MIT
 *
 * The library against servers that are not gpushmd: replies that are cut, garbage, for another
 * request, with fds that they do not announce, without fds that they announce, or missing. Each
 * must end in an error with a text, and with every fd closed.
 */
#include "client/gpushm_query.h"
#include "proto/code.h"
#include "tests/lib/forked.h"
#include "tests/lib/suite.h"
#include "tests/unit/lib/canned_fixture.h"

START_TEST(a_refusal_keeps_its_words_and_the_connection)
{
	canned_hello(server);
	canned_error(server, CODE_NOT_FOUND, "no buffer \"a\"\033[2J");
	canned_error(server, 1000, "");
	canned_done(server);
	connected();
	ck_assert_int_eq(gpushm_unlink(c, "a"), -ENOENT);
	ck_assert_str_eq(gpushm_error(), "no buffer \"a\"?[2J");
	ck_assert_str_eq(gpushm_error_code(), "NOT_FOUND");
	ck_assert_int_eq(gpushm_unlink(c, "a"), -EIO);
	says("refused");
	ck_assert_int_eq(gpushm_unlink(c, "a"), 0);
}
END_TEST

START_TEST(a_refusal_with_an_fd_ends_the_connection_and_leaks_nothing)
{
	_cleanup_(close_fd) int fd = null_fd();
	Gpushm__Proto__Error error = GPUSHM__PROTO__ERROR__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_ERROR;
	reply.error = &error;
	canned_hello(server);
	canned_reply(server, &reply, &fd, 1);
	connected();
	refuses_for_good(gpushm_unlink(c, "a"), EPROTO, "file descriptors");
}
END_TEST

START_TEST(garbage_is_refused_and_its_fds_are_closed)
{
	int fds[2] = { null_fd(), null_fd() };

	canned_hello(server);
	canned_raw(server, "\xff\xff\xff\xff garbage", 12, fds, 2);
	close_fd(&fds[0]);
	close_fd(&fds[1]);
	connected();
	refuses_for_good(gpushm_unlink(c, "a"), EPROTO, "can't be decoded");
}
END_TEST

START_TEST(a_reply_cut_short_is_refused_and_its_fds_are_closed)
{
	static unsigned char long_one[FRAME_MAX + 1];
	int fds[2] = { null_fd(), null_fd() };

	canned_hello(server);
	canned_raw(server, long_one, sizeof(long_one), fds, 2);
	close_fd(&fds[0]);
	close_fd(&fds[1]);
	connected();
	refuses_for_good(gpushm_unlink(c, "a"), EPROTO, "cut");
}
END_TEST

START_TEST(a_reply_to_another_request_is_refused)
{
	canned_hello(server);
	canned_hello(server);
	connected();
	refuses_for_good(gpushm_unlink(c, "a"), EPROTO, "answers another request");
}
END_TEST

START_TEST(a_reply_without_a_known_result_is_refused)
{
	/* Field 200, a varint: a result that only a later daemon has. */
	canned_hello(server);
	canned_raw(server, "\xc0\x0c\x01", 3, NULL, 0);
	connected();
	refuses_for_good(gpushm_unlink(c, "a"), EPROTO, "answers another request");
}
END_TEST

START_TEST(fds_that_the_reply_does_not_announce_are_closed)
{
	int fds[3] = { null_fd(), null_fd(), null_fd() };
	Gpushm__Proto__Done done = GPUSHM__PROTO__DONE__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_DONE;
	reply.done = &done;
	canned_hello(server);
	canned_reply(server, &reply, fds, (size_t)_i);
	for (int i = 0; i < 3; i++)
		close_fd(&fds[i]);
	connected();
	refuses_for_good(gpushm_unlink(c, "a"), EPROTO, "file descriptors");
}
END_TEST

/* Wrong counts: the number in the reply, the flags, and the fds that really arrive. */
static const struct {
	uint32_t fds;
	bool memory, pool, table;
	size_t brought;
} counts[] = {
	{ 1, true, false, false, 0 },	{ 1, true, false, false, 2 }, { 0, false, false, false, 1 },
	{ 2, true, false, true, 1 },	{ 2, true, false, false, 2 }, { 1, true, false, true, 2 },
	{ 2, true, true, false, 2 },	{ 2, true, false, true, 3 },  { 0, true, false, false, 1 },
	{ 100, true, false, false, 1 },
};

START_TEST(an_attach_that_miscounts_its_fds_is_refused)
{
	int fds[3] = { null_fd(), null_fd(), null_fd() };
	Gpushm__Proto__Attach attach = GPUSHM__PROTO__ATTACH__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;
	struct gpushm_buffer *b = NULL;

	attach.has_fds = attach.has_memory_fd = attach.has_pool_fd = attach.has_table_fd = true;
	attach.fds = counts[_i].fds;
	attach.memory_fd = counts[_i].memory;
	attach.pool_fd = counts[_i].pool;
	attach.table_fd = counts[_i].table;
	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_ATTACH;
	reply.attach = &attach;
	canned_hello(server);
	canned_reply(server, &reply, fds, counts[_i].brought);
	for (int i = 0; i < 3; i++)
		close_fd(&fds[i]);
	connected();
	refuses_for_good(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b), EPROTO, "file descriptors");
	ck_assert_ptr_null(b);
}
END_TEST

START_TEST(a_call_fails_when_the_daemon_has_died)
{
	canned_hello(server);
	connected();
	refuses_for_good(gpushm_unlink(c, "a"), ECONNRESET, "has gone");
}
END_TEST

START_TEST(a_name_too_long_for_a_frame_is_refused)
{
	static char name[2 * FRAME_MAX];

	memset(name, 'x', sizeof(name) - 1);
	canned_hello(server);
	canned_done(server);
	connected();
	ck_assert_int_eq(gpushm_unlink(c, name), -EINVAL);
	says("255");
	ck_assert_int_eq(gpushm_unlink(c, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_unlink(c, "short"), 0);
}
END_TEST

#define THREADS 4
#define CALLS 100
_Static_assert(THREADS *CALLS < CANNED_MAX, "there are answers for all");

static void reply_by_name(const Gpushm__Proto__Request *request, Gpushm__Proto__Reply *reply)
{
	static Gpushm__Proto__Error error;

	gpushm__proto__error__init(&error);
	error.has_message = true;
	error.message = request->unlink->name;
	reply->result_case = GPUSHM__PROTO__REPLY__RESULT_ERROR;
	reply->error = &error;
}

static void *ask_often(void *arg)
{
	char name[16];

	for (int i = 0; i < CALLS; i++) {
		snprintf(name, sizeof(name), "t%ld/%d", (long)(intptr_t)arg, i);
		if (gpushm_unlink(c, name) != -EIO || strcmp(gpushm_error(), name) != 0)
			return (void *)"got another's reply";
	}
	return NULL;
}

START_TEST(threads_get_their_own_replies)
{
	pthread_t threads[THREADS];
	void *wrong;

	canned_hello(server);
	canned_respond(server, reply_by_name, THREADS * CALLS);
	connected();
	for (long i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, ask_often, (void *)(intptr_t)i),
				 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &wrong);
		ck_assert_msg(!wrong, "%s", (char *)wrong);
	}
}
END_TEST

/* ---- fork ---- */

static int in_the_child(void *arg)
{
	struct gpushm_stat **stats;
	size_t n;

	if (gpushm_unlink(c, "a") != -ECHILD || gpushm_fd(c) != -ECHILD ||
	    gpushm_list(c, NULL, 0, &stats, &n) != -ECHILD)
		return 1;
	if (!strstr(gpushm_error(), "connect() in the child"))
		return 2;
	gpushm_disconnect(c);
	/* The socket is still the parent's. */
	return fcntl(c->socket, F_GETFD) < 0 ? 3 : 0;
}

START_TEST(a_forked_child_leaves_its_parents_socket_alone)
{
	canned_hello(server);
	canned_done(server);
	connected();
	ck_assert_int_eq(forked(in_the_child, NULL), 0);
	ck_assert_int_eq(gpushm_unlink(c, "a"), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("connection");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_refusal_keeps_its_words_and_the_connection);
	tcase_add_test(tc, a_refusal_with_an_fd_ends_the_connection_and_leaks_nothing);
	tcase_add_test(tc, garbage_is_refused_and_its_fds_are_closed);
	tcase_add_test(tc, a_reply_cut_short_is_refused_and_its_fds_are_closed);
	tcase_add_test(tc, a_reply_to_another_request_is_refused);
	tcase_add_test(tc, a_reply_without_a_known_result_is_refused);
	tcase_add_loop_test(tc, fds_that_the_reply_does_not_announce_are_closed, 1, 4);
	tcase_add_loop_test(tc, an_attach_that_miscounts_its_fds_is_refused, 0,
			    (int)array_size(counts));
	tcase_add_test(tc, a_call_fails_when_the_daemon_has_died);
	tcase_add_test(tc, a_name_too_long_for_a_frame_is_refused);
	tcase_add_test(tc, threads_get_their_own_replies);
	tcase_add_test(tc, a_forked_child_leaves_its_parents_socket_alone);
	return suite_run("connection", tc, NULL);
}
