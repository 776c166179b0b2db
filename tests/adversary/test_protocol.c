/* SPDX-License-Identifier: MIT
 *
 * Frames that no honest client sends. Each costs its sender the connection and the log one line, or
 * gets an error; another client is served all the while, and at the end the daemon holds what it
 * held before.
 */
#include "proto/base/own.h"
#include "tests/lib/counted.h"
#include "tests/lib/raw.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static void setup(void)
{
	counted_setup(CENSUS_CONFIG);
}

/* c is the honest client. */
static void honest_client_is_served(void)
{
	ck_assert_int_eq(gpushm_wait(c, "nobody's", 0), -ENOENT);
}

/* Sends one datagram after HELLO: the connection ends without a reply. */
static void expect_end(const void *data, size_t len, unsigned violations)
{
	unsigned had = census_violations(&d, c);
	struct raw r;

	raw_greet(&r, d.socket);
	ck_assert_int_eq(raw_send(&r, data, len), 0);
	ck_assert_int_eq(raw_await_end(&r), 0);
	honest_client_is_served();
	ck_assert_uint_eq(census_violations(&d, c), had + violations);
	raw_close(&r);
}

/* A STATUS request of exactly len bytes: the rest is a field that no version knows. */
static void pad_status(unsigned char *data, size_t len)
{
	size_t n = raw_pack(REQUEST(STATUS, Status, status), data), rest = len - n - 5;

	data[n++] = 0xa2; /* field 100, length-delimited */
	data[n++] = 0x06;
	for (int i = 0; i < 3; i++, rest >>= 7)
		data[n++] = (unsigned char)((rest & 0x7f) | (i < 2 ? 0x80 : 0));
	memset(data + n, 'x', len - n);
}

START_TEST(an_empty_datagram_ends_the_connection)
{
	expect_end("", 0, 0);
}
END_TEST

START_TEST(garbage_ends_the_connection)
{
	static const size_t sizes[] = { 1, 2, 3, 7, 8, 64, 1000, 4096, 65535, 65536 };
	static unsigned char data[FRAME_MAX];

	memset(data, 0xff, sizeof(data));
	for (size_t i = 0; i < array_size(sizes); i++)
		expect_end(data, sizes[i], 1);
	/* A field with a length beyond the end of the frame. */
	expect_end("\x12\x7f\x0a", 3, 1);
	/* CREATE with a name of wire type 5. */
	expect_end("\x12\x05\x0d"
		   "abcd",
		   7, 1);
}
END_TEST

START_TEST(the_daemon_survives_random_bytes)
{
	static unsigned char data[2048];
	uint64_t x = 88172645463325252u; /* xorshift64, Marsaglia 2003 */
	struct raw r;

	for (int round = 0; round < 500; round++) {
		size_t len = 1 + (size_t)(x % sizeof(data));

		for (size_t i = 0; i < len; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			data[i] = (unsigned char)x;
		}
		/* Half of them start like a request. */
		if (round % 2)
			data[0] = (unsigned char)(((1 + round % 11) << 3) | 2);
		raw_greet(&r, d.socket);
		ck_assert_int_eq(raw_send(&r, data, len), 0);
		shutdown(r.socket, SHUT_WR);
		raw_await_end(&r);
		raw_close(&r);
	}
	honest_client_is_served();
}
END_TEST

START_TEST(the_largest_frame_is_served)
{
	static unsigned char data[FRAME_MAX];
	struct raw r;

	pad_status(data, sizeof(data));
	raw_greet(&r, d.socket);
	ck_assert_int_eq(raw_send(&r, data, sizeof(data)), 0);
	ck_assert_int_eq(raw_receive(&r), 0);
	raw_close(&r);
}
END_TEST

START_TEST(a_frame_that_is_too_large_ends_the_connection)
{
	static const size_t sizes[] = { FRAME_MAX + 1, 70000, 100000, 150000 };
	static unsigned char data[150000];

	for (size_t i = 0; i < array_size(sizes); i++) {
		/* The part that fits a frame would be a valid request. */
		pad_status(data, FRAME_MAX);
		expect_end(data, sizes[i], 1);
	}
}
END_TEST

START_TEST(requests_are_served_only_after_one_hello)
{
	struct raw r;

	raw_connect(&r, d.socket);
	ck_assert_int_eq(raw_call(&r, REQUEST(STATUS, Status, status)), CODE_BAD_REQUEST);
	ck_assert_int_eq(raw_call(&r, REQUEST(CREATE, Create, create, BYTES(name, "x"),
					      SET(size_bytes, 1))),
			 CODE_BAD_REQUEST);
	ck_assert_int_eq(raw_call(&r, REQUEST(HELLO, Hello, hello, SET(version_min, 1),
					      SET(version_max, 1))),
			 0);
	ck_assert_int_eq(raw_call(&r, REQUEST(HELLO, Hello, hello, SET(version_min, 1),
					      SET(version_max, 1))),
			 CODE_BAD_REQUEST);
	ck_assert_int_eq(raw_call(&r, REQUEST(STATUS, Status, status)), 0);
	raw_close(&r);
}
END_TEST

START_TEST(an_unknown_protocol_version_is_refused)
{
	static const uint32_t versions[][2] = { { 0, 0 }, { 2, 2 }, { 2, UINT32_MAX }, { 2, 1 } };
	struct raw r;

	raw_connect(&r, d.socket);
	for (size_t i = 0; i < array_size(versions); i++)
		ck_assert_int_eq(raw_call(&r, REQUEST(HELLO, Hello, hello,
						      SET(version_min, versions[i][0]),
						      SET(version_max, versions[i][1]))),
				 CODE_VERSION);
	ck_assert_int_eq(raw_call(&r, REQUEST(HELLO, Hello, hello, SET(version_min, 0),
					      SET(version_max, UINT32_MAX))),
			 0);
	ck_assert_uint_eq(r.reply->hello->version, 1);
	raw_close(&r);
}
END_TEST

START_TEST(an_unknown_request_is_refused_and_the_connection_stays)
{
	struct raw r;

	raw_greet(&r, d.socket);
	/* Field 99, an empty message; then an empty request. */
	ck_assert_int_eq(raw_send(&r, "\x9a\x06\x00", 3), 0);
	ck_assert_int_eq(raw_receive(&r), CODE_UNKNOWN_VERB);
	ck_assert_int_eq(raw_send(&r, "\x9a\x06\x01x", 4), 0);
	ck_assert_int_eq(raw_receive(&r), CODE_UNKNOWN_VERB);
	ck_assert_int_eq(raw_call(&r, REQUEST(STATUS, Status, status)), 0);
	raw_close(&r);
}
END_TEST

START_TEST(the_daemon_closes_fds_that_are_sent_to_it)
{
	static const size_t counts[] = { 1, 2, 3, 253 };
	unsigned char frame[FRAME_MAX];
	size_t len = raw_pack(REQUEST(STATUS, Status, status), frame);
	int fds[253];
	struct raw r;

	for (size_t i = 0; i < array_size(counts); i++) {
		raw_greet(&r, d.socket);
		for (size_t j = 0; j < array_size(fds); j++)
			fds[j] = r.socket;
		ck_assert_int_eq(raw_send_fds(&r, frame, len, fds, counts[i]), 0);
		ck_assert_int_eq(raw_receive(&r), 0);
		raw_close(&r);
		census_await(&d, c, &before);
	}
}
END_TEST

/* All of them are counted, but not all are logged. */
START_TEST(violations_are_all_counted_and_few_are_logged)
{
	enum { TIMES = 200 };
	unsigned had = census_violations(&d, c);

	for (unsigned i = 0; i < TIMES; i++)
		expect_end("\xff", 1, 1);
	ck_assert_uint_eq(census_violations(&d, c), had + TIMES);
	ck_assert_uint_eq(daemon_log_count(&d, "closed:"), 5);
}
END_TEST

/* DESCRIBE of as many empty arrays as fit a frame: 13 bytes and more for each byte sent. */
static size_t pack_bomb(unsigned char *frame)
{
	size_t len = FRAME_MAX - 4, n = 0;

	frame[n++] = 0x1a; /* Request.describe */
	for (int i = 0; i < 3; i++)
		frame[n++] = (unsigned char)(((len >> (7 * i)) & 0x7f) | (i < 2 ? 0x80 : 0));
	for (; n + 1 < FRAME_MAX; n += 2) {
		frame[n] = 0x12; /* Describe.arrays, empty */
		frame[n + 1] = 0;
	}
	return n;
}

START_TEST(a_message_that_unpacks_to_megabytes_ends_the_connection)
{
	static unsigned char frame[FRAME_MAX];
	size_t len = pack_bomb(frame);
	long rss;

	expect_end(frame, len, 1);
	rss = census_rss(&d);
	for (int i = 0; i < 100; i++)
		expect_end(frame, len, 1);
	ck_assert_int_lt(census_rss(&d) - rss, 32768);
}
END_TEST

START_TEST(the_daemon_survives_deeply_nested_messages)
{
	static unsigned char frame[FRAME_MAX];
	struct raw r;

	/* Groups, 65,000 deep, of a field that no version knows. */
	memset(frame, 0xa3, sizeof(frame));
	for (size_t i = 1; i < sizeof(frame); i += 2)
		frame[i] = 0x06;
	expect_end(frame, sizeof(frame), 1);
	/* Nested messages in a field that the daemon does not read. */
	raw_greet(&r, d.socket);
	pad_status(frame, sizeof(frame));
	for (size_t i = 64; i + 1 < sizeof(frame); i += 2) {
		frame[i] = 0x12;
		frame[i + 1] = 0x7f;
	}
	ck_assert_int_eq(raw_send(&r, frame, sizeof(frame)), 0);
	ck_assert_int_eq(raw_receive(&r), 0);
	raw_close(&r);
}
END_TEST

/* A CLOSE without a reply gets none, not even for an invalid lease; the next request is served as
 * usual. */
START_TEST(a_quiet_close_gets_no_reply)
{
	struct raw r;
	uint64_t lease;

	raw_greet(&r, d.socket);
	ck_assert(r.reply->hello->quiet_close);
	lease = raw_create(&r, "quiet", 1);
	raw_publish(&r, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(raw_request(&r, REQUEST(CLOSE, Close, close, SET(lease, lease),
							 SET(quiet, true))),
				 0);
	ck_assert_int_eq(raw_call(&r, REQUEST(STAT, Stat, stat, BYTES(name, "quiet"))), 0);
	ck_assert_int_eq(r.reply->result_case, GPUSHM__PROTO__REPLY__RESULT_STAT);
	ck_assert_uint_eq(r.reply->stat->readers + r.reply->stat->writers, 0);
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))),
			 CODE_NO_LEASE);
	ck_assert_int_eq(raw_call(&r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "quiet"))), 0);
	raw_close(&r);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("frames");

	tcase_add_checked_fixture(t, setup, counted_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, an_empty_datagram_ends_the_connection);
	tcase_add_test(t, garbage_ends_the_connection);
	tcase_add_test(t, the_daemon_survives_random_bytes);
	tcase_add_test(t, the_largest_frame_is_served);
	tcase_add_test(t, a_frame_that_is_too_large_ends_the_connection);
	tcase_add_test(t, requests_are_served_only_after_one_hello);
	tcase_add_test(t, an_unknown_protocol_version_is_refused);
	tcase_add_test(t, an_unknown_request_is_refused_and_the_connection_stays);
	tcase_add_test(t, the_daemon_closes_fds_that_are_sent_to_it);
	tcase_add_test(t, violations_are_all_counted_and_few_are_logged);
	tcase_add_test(t, a_message_that_unpacks_to_megabytes_ends_the_connection);
	tcase_add_test(t, the_daemon_survives_deeply_nested_messages);
	tcase_add_test(t, a_quiet_close_gets_no_reply);
	return suite_run("protocol", t, NULL);
}
