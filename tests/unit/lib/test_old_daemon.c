/* SPDX-License-Identifier: MIT
 *
 * The library with a gpushmd that does not know RENAME and the fields that came with it, and would
 * ignore those fields in silence. The library says so, or does without.
 */
#include "client/gpushm_stream.h"
#include "tests/lib/suite.h"
#include "tests/unit/lib/buffer_fixture.h"

static void expect_too_old(int r)
{
	ck_assert_int_eq(r, -ENOSYS);
	says("gpushmd is too old");
	says("upgrade");
}

START_TEST(what_an_old_daemon_would_ignore_is_refused)
{
	const struct gpushm_attr attr = { "key", "value", 5 };
	const void *value;
	size_t n;

	canned_old_hello(server);
	reply_to_create();
	canned_error(server, CODE_NOT_FOUND, "");
	canned_done(server);
	created(NULL);
	expect_too_old(gpushm_rename(c, "a", "b", 0));
	expect_too_old(gpushm_set_attrs(b, &attr, 1));
	ck_assert_int_eq(gpushm_buffer_attr(b, "key", &value, &n), -ENOENT);
	expect_too_old(gpushm_publish_as(b, GPUSHM_SEALED, "b", 0));
	ck_assert_int_eq(gpushm_buffer_state(b), GPUSHM_FILLING);
	ck_assert_str_eq(gpushm_buffer_name(b), "a");
	closed();
	c = gpushm_disconnect(c);
	canned_join(server);
	/* HELLO, CREATE, STAT and CLOSE. */
	ck_assert_uint_eq(canned_requests(server), 4);
}
END_TEST

static const Gpushm__Proto__Open *asked_to_open(size_t i)
{
	const Gpushm__Proto__Request *q = canned_request(server, i);

	ck_assert_int_eq(q->verb_case, GPUSHM__PROTO__REQUEST__VERB_OPEN);
	ck_assert(!q->open->has_while_filling);
	return q->open;
}

/* Another process fills the buffer, and dies; a third one is faster to create it; then this one
 * does. */
START_TEST(open_or_create_waits_for_a_free_name_at_an_old_daemon)
{
	canned_old_hello(server);
	canned_error(server, CODE_NOT_PUBLISHED, "");
	canned_error(server, CODE_TIMED_OUT, "");
	canned_error(server, CODE_NOT_FOUND, "");
	canned_error(server, CODE_EXISTS, "");
	canned_error(server, CODE_NOT_PUBLISHED, "");
	canned_error(server, CODE_TIMED_OUT, "");
	canned_error(server, CODE_NOT_FOUND, "");
	reply_to_create();
	canned_done(server);
	connected();
	ck_assert_int_eq(gpushm_open_or_create(c, "a", GPUSHM_READ, GPUSHM_WAIT_FOREVER, SIZE, NULL,
					       &b),
			 GPUSHM_CREATED);
	closed();
	c = gpushm_disconnect(c);
	canned_join(server);
	ck_assert_uint_eq(canned_requests(server), 10);
	for (size_t i = 1; i <= 5; i += 4) {
		ck_assert_uint_eq(asked_to_open(i)->wait_ms, 0);
		ck_assert_uint_gt(asked_to_open(i + 1)->wait_ms, 0);
		ck_assert_uint_lt(asked_to_open(i + 1)->wait_ms, 1000);
		ck_assert_uint_eq(asked_to_open(i + 2)->wait_ms, 0);
		ck_assert_int_eq(canned_request(server, i + 3)->verb_case,
				 GPUSHM__PROTO__REQUEST__VERB_CREATE);
	}
}
END_TEST

START_TEST(open_or_create_ends_in_time_at_an_old_daemon)
{
	canned_old_hello(server);
	canned_error(server, CODE_NOT_PUBLISHED, "");
	canned_error(server, CODE_NOT_PUBLISHED, "");
	canned_error(server, CODE_TIMED_OUT, "not published in time");
	connected();
	ck_assert_int_eq(gpushm_open_or_create(c, "a", GPUSHM_READ, 0, SIZE, NULL, &b), -EAGAIN);
	ck_assert_int_eq(gpushm_open_or_create(c, "a", GPUSHM_READ, 1, SIZE, NULL, &b), -ETIMEDOUT);
	says("not published in time");
}
END_TEST

START_TEST(streams_are_refused_at_an_old_daemon)
{
	const struct gpushm_array_spec array = { .name = "a", .dtype = { 1, 8, 1, 0 } };
	const struct gpushm_stream_spec spec = { .struct_size = sizeof(spec),
						 .arrays = &array,
						 .n_arrays = 1 };
	struct gpushm_stream_info *all;
	struct gpushm_stream *s;
	size_t n;

	canned_hello(server);
	connected();
	expect_too_old(gpushm_stream_create(c, "a", &spec, NULL, &s));
	expect_too_old(gpushm_stream_open(c, "a", GPUSHM_LATEST, 1, 0, NULL, &s));
	expect_too_old(gpushm_streams(c, NULL, &all, &n));
	c = gpushm_disconnect(c);
	canned_join(server);
	/* HELLO alone. */
	ck_assert_uint_eq(canned_requests(server), 1);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("old_daemon");

	tcase_add_checked_fixture(t, setup_buffer, teardown_buffer);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_an_old_daemon_would_ignore_is_refused);
	tcase_add_test(t, open_or_create_waits_for_a_free_name_at_an_old_daemon);
	tcase_add_test(t, open_or_create_ends_in_time_at_an_old_daemon);
	tcase_add_test(t, streams_are_refused_at_an_old_daemon);
	return suite_run("old_daemon", t, NULL);
}
