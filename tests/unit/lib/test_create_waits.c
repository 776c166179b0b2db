/* SPDX-License-Identifier: MIT
 *
 * How long a create waits for space if it asks for it more than once: CREATE after CREATE says what
 * is left of the caller's time. The canned server takes some of it.
 */
#include "client/gpushm_cleanup.h"
#include "client/gpushm_stream.h"
#include "client/lib/base/defer.h"
#include "tests/lib/suite.h"
#include "tests/unit/lib/buffer_fixture.h"

#include <poll.h>

#define WAIT_MS 100000u
#define TAKEN_MS 20 /* by the server, at least */

static const struct gpushm_create_options o = { .struct_size = sizeof(o), .wait_ms = WAIT_MS };

static void reply_error(enum code code, Gpushm__Proto__Reply *reply)
{
	static Gpushm__Proto__Error error;

	gpushm__proto__error__init(&error);
	error.has_code = true;
	error.code = (Gpushm__Proto__Code)code;
	reply->result_case = GPUSHM__PROTO__REPLY__RESULT_ERROR;
	reply->error = &error;
}

/* The buffer was lost: the reply to RECLAIM, and to the DESCRIBE that is sent again. */
static void lose(const Gpushm__Proto__Request *request, Gpushm__Proto__Reply *reply)
{
	static Gpushm__Proto__ReclaimReply reclaimed;
	static uint64_t lease = LEASE;

	if (request->verb_case != GPUSHM__PROTO__REQUEST__VERB_RECLAIM) {
		reply_error(CODE_NO_LEASE, reply);
		return;
	}
	poll(NULL, 0, TAKEN_MS);
	gpushm__proto__reclaim_reply__init(&reclaimed);
	reclaimed.lost = &lease;
	reclaimed.n_lost = 1;
	reply->result_case = GPUSHM__PROTO__REPLY__RESULT_RECLAIMED;
	reply->reclaimed = &reclaimed;
}

/* The first daemon makes the buffer and dies of DESCRIBE; the pool of the second one is full. */
static void begin_anew(uint64_t bytes)
{
	canned_hello(server);
	an_attach(GPUSHM_FILLING, GPUSHM_WRITE);
	attach.size_bytes = bytes;
	reply_attach(memory_fd(ALLOCATED, MEMORY_SEALS), -1);
	canned_hang_up(server);
	canned_hello(server);
	canned_respond(server, lose, 2);
	canned_error(server, CODE_POOL_FULL, "full");
	connected();
}

static uint64_t wait_of_create(size_t i)
{
	const Gpushm__Proto__Request *q = canned_request(server, i);

	ck_assert_int_eq(q->verb_case, GPUSHM__PROTO__REQUEST__VERB_CREATE);
	return q->create->wait_ms;
}

/* The first CREATE may say all of it, the second what is left. */
static void expect_less(size_t first, size_t second)
{
	c = gpushm_disconnect(c);
	canned_join(server);
	ck_assert_uint_eq(canned_requests(server), second + 1);
	ck_assert_uint_le(wait_of_create(first), WAIT_MS);
	ck_assert_uint_le(wait_of_create(second), WAIT_MS - TAKEN_MS);
	ck_assert_uint_gt(wait_of_create(second), 0);
}

START_TEST(a_create_that_lost_its_buffer_waits_only_the_time_left)
{
	struct gpushm_array_spec spec = float_spec("x");
	uint64_t size;

	ck_assert_int_eq(gpushm_layout(&spec, 1, &size), 0);
	begin_anew(size);
	ck_assert_int_eq(gpushm_create_arrays(c, "a", &spec, 1, &o, &b), -ENOSPC);
	expect_less(1, 6);
}
END_TEST

START_TEST(a_stream_that_lost_its_buffer_waits_only_the_time_left)
{
	const struct gpushm_array_spec array = float_spec("x");
	const struct gpushm_stream_spec spec = {
		.struct_size = sizeof(spec), .arrays = &array, .n_arrays = 1, .slots = 2
	};
	struct gpushm_stream *s;

	begin_anew(512);
	ck_assert_int_eq(gpushm_stream_create(c, "a", &spec, &o, &s), -ENOSPC);
	expect_less(1, 6);
}
END_TEST

/* Another process is always faster to create it, and dies or unlinks it. */
static void refuse_name(const Gpushm__Proto__Request *request, Gpushm__Proto__Reply *reply)
{
	poll(NULL, 0, TAKEN_MS);
	reply_error(request->verb_case == GPUSHM__PROTO__REQUEST__VERB_CREATE ? CODE_EXISTS
									      : CODE_NOT_FOUND,
		    reply);
}

START_TEST(open_or_create_waits_for_space_only_the_time_left)
{
	canned_hello(server);
	canned_respond(server, refuse_name, 3);
	canned_error(server, CODE_POOL_FULL, "full");
	connected();
	ck_assert_int_eq(gpushm_open_or_create(c, "a", GPUSHM_READ, 0, NULL, SIZE, &o, &b),
			 -ENOSPC);
	expect_less(2, 4);
}
END_TEST

START_TEST(a_stream_to_adopt_waits_only_the_time_left)
{
	const struct gpushm_array_spec array = float_spec("x");
	const struct gpushm_stream_spec spec = {
		.struct_size = sizeof(spec), .arrays = &array, .n_arrays = 1, .flags = GPUSHM_ADOPT
	};
	struct gpushm_stream *s;

	canned_hello(server);
	canned_respond(server, refuse_name, 3);
	canned_error(server, CODE_POOL_FULL, "full");
	connected();
	ck_assert_int_eq(gpushm_stream_create(c, "a", &spec, &o, &s), -ENOSPC);
	c = gpushm_disconnect(c);
	canned_join(server);
	ck_assert_uint_eq(canned_requests(server), 5);
	ck_assert_uint_le(wait_of_create(2), WAIT_MS - TAKEN_MS);
	ck_assert_uint_le(wait_of_create(4), WAIT_MS - 3 * TAKEN_MS);
	ck_assert_uint_gt(wait_of_create(4), 0);
}
END_TEST

static int run(struct deferred *d)
{
	return 0;
}

static uint64_t capacity(int device)
{
	return 1;
}

/* Meanwhile another thread closes a buffer in a section. */
static void refuse_space(const Gpushm__Proto__Request *request, Gpushm__Proto__Reply *reply)
{
	static struct deferred closed;

	poll(NULL, 0, TAKEN_MS);
	closed = (struct deferred){ .capacity = capacity, .run = run };
	defer_add(&closed);
	reply_error(CODE_POOL_FULL, reply);
}

START_TEST(a_create_waits_only_the_time_left_after_a_cleanup)
{
	canned_hello(server);
	canned_respond(server, refuse_space, 1);
	canned_error(server, CODE_POOL_FULL, "full");
	connected();
	gpushm_defer_cleanup();
	ck_assert_int_eq(gpushm_create(c, "a", SIZE, &o, &b), -ENOSPC);
	gpushm_resume_cleanup();
	expect_less(1, 2);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("create_waits");

	tcase_add_checked_fixture(t, setup_buffer, teardown_buffer);
	tcase_add_test(t, a_create_that_lost_its_buffer_waits_only_the_time_left);
	tcase_add_test(t, a_stream_that_lost_its_buffer_waits_only_the_time_left);
	tcase_add_test(t, open_or_create_waits_for_space_only_the_time_left);
	tcase_add_test(t, a_stream_to_adopt_waits_only_the_time_left);
	tcase_add_test(t, a_create_waits_only_the_time_left_after_a_cleanup);
	return suite_run("create_waits", t, NULL);
}
