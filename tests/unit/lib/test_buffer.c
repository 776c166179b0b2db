/* SPDX-License-Identifier: MIT
 *
 * A buffer's life against a canned server: publishing, and closing in the right and in the wrong
 * order.
 */
#include "tests/lib/forked.h"
#include "tests/lib/suite.h"
#include "tests/unit/lib/buffer_fixture.h"

#include <signal.h>

/* ---- publish ---- */

/* 1: the write succeeded; otherwise the signal that ended the child */
static int write_there(void *at)
{
	*(volatile char *)at = 1;
	return 1;
}

static uint64_t digest_of_x(void)
{
	_cleanup_(close_fd) int fd = -1;
	uint64_t n, digest;

	fd = table_fd(&n, &digest);
	return digest;
}

static void created_and_described(void)
{
	struct gpushm_array_spec spec = float_spec("a");

	created(NULL);
	ck_assert_int_eq(gpushm_describe(b, &spec, 1), 0);
}

START_TEST(a_sealed_buffer_is_read_only_for_its_creator)
{
	struct gpushm_array *a = NULL;

	canned_hello(server);
	reply_to_create();
	canned_respond(server, count_arrays, 1);
	reply_published(digest_of_x());
	canned_done(server);
	created_and_described();
	ck_assert_int_eq(gpushm_describe(b, NULL, 1), -EINVAL);
	ck_assert_int_eq(forked(write_there, gpushm_buffer_host_ptr(b)), 1);
	ck_assert_msg(gpushm_publish(b, GPUSHM_SEALED) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_buffer_state(b), GPUSHM_SEALED);
	ck_assert_int_eq(gpushm_buffer_access(b), GPUSHM_READ);
	ck_assert_uint_eq(gpushm_buffer_digest(b), digest_of_x());
	ck_assert_int_eq(forked(write_there, gpushm_buffer_host_ptr(b)), -SIGSEGV);
	ck_assert_int_eq(gpushm_array_get(b, "a", &a), 0);
	gpushm_array_free(a);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), -EBUSY);
	ck_assert_int_eq(gpushm_describe(b, NULL, 0), -EBUSY);
	closed();
}
END_TEST

START_TEST(a_shared_buffer_stays_writable_for_its_creator)
{
	canned_hello(server);
	reply_to_create();
	canned_respond(server, count_arrays, 1);
	reply_published(digest_of_x());
	canned_done(server);
	created_and_described();
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_FILLING), -EINVAL);
	ck_assert_msg(gpushm_publish(b, GPUSHM_SHARED) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_buffer_access(b), GPUSHM_WRITE);
	ck_assert_int_eq(forked(write_there, gpushm_buffer_host_ptr(b)), 1);
	closed();
}
END_TEST

START_TEST(a_published_digest_of_another_layout_is_refused)
{
	canned_hello(server);
	reply_to_create();
	canned_respond(server, count_arrays, 1);
	reply_published(digest_of_x() + 1);
	created_and_described();
	refuses_for_good(gpushm_publish(b, GPUSHM_SEALED), EPROTO, "another layout");
	closed();
}
END_TEST

START_TEST(a_refused_publish_leaves_the_buffer_as_it_was)
{
	canned_hello(server);
	reply_to_create();
	canned_respond(server, count_arrays, 1);
	canned_error(server, CODE_STATE, "no");
	reply_published(digest_of_x());
	canned_done(server);
	created_and_described();
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), -EBUSY);
	ck_assert_int_eq(gpushm_buffer_state(b), GPUSHM_FILLING);
	ck_assert_int_eq(forked(write_there, gpushm_buffer_host_ptr(b)), 1);
	ck_assert_msg(gpushm_publish(b, GPUSHM_SEALED) == 0, "%s", gpushm_error());
	closed();
}
END_TEST

/* ---- close ---- */

START_TEST(closing_a_buffer_with_arrays_is_refused)
{
	struct gpushm_array *a = NULL, *again = NULL;

	canned_hello(server);
	reply_to_open(GPUSHM_SEALED, GPUSHM_READ, memory_fd(ALLOCATED, MEMORY_SEALS));
	canned_done(server);
	connected();
	ck_assert_msg(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_array_get(b, "a", &a), 0);
	ck_assert_int_eq(gpushm_array_dup(a, &again), 0);
	ck_assert_int_eq(gpushm_close(b), -EBUSY);
	says("2 arrays");
	gpushm_array_free(a);
	ck_assert_int_eq(gpushm_close(b), -EBUSY);
	gpushm_array_free(again);
	closed();
	c = gpushm_disconnect(c);
	lease_was_ended();
}
END_TEST

START_TEST(an_open_buffer_keeps_the_socket_after_a_disconnect)
{
	canned_hello(server);
	reply_to_open(GPUSHM_SEALED, GPUSHM_READ, memory_fd(ALLOCATED, MEMORY_SEALS));
	canned_done(server);
	connected();
	ck_assert_msg(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b) == 0, "%s", gpushm_error());
	c = gpushm_disconnect(c);
	closed();
	lease_was_ended();
}
END_TEST

START_TEST(a_buffer_can_be_closed_without_its_daemon)
{
	canned_hello(server);
	reply_to_open(GPUSHM_SEALED, GPUSHM_READ, memory_fd(ALLOCATED, MEMORY_SEALS));
	connected();
	ck_assert_msg(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b) == 0, "%s", gpushm_error());
	closed();
	ck_assert_int_eq(gpushm_close(NULL), 0);
}
END_TEST

START_TEST(opens_with_the_same_access_share_a_map)
{
	_cleanup_(close_fd) int memory = memory_fd(ALLOCATED, MEMORY_SEALS);
	struct gpushm_buffer *reader = NULL, *writer = NULL;

	canned_hello(server);
	reply_to_open(GPUSHM_SHARED, GPUSHM_READ, dup(memory));
	reply_to_open(GPUSHM_SHARED, GPUSHM_READ, dup(memory));
	reply_to_open(GPUSHM_SHARED, GPUSHM_WRITE, dup(memory));
	for (int i = 0; i < 3; i++)
		canned_done(server);
	connected();
	ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &reader), 0);
	ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_WRITE, 0, NULL, &writer), 0);
	ck_assert_ptr_eq(gpushm_buffer_host_ptr(b), gpushm_buffer_host_ptr(reader));
	ck_assert_ptr_ne(gpushm_buffer_host_ptr(b), gpushm_buffer_host_ptr(writer));
	closed();
	*(char *)gpushm_buffer_host_ptr(writer) = 'w';
	ck_assert_int_eq(*(char *)gpushm_buffer_host_ptr(reader), 'w');
	ck_assert_int_eq(gpushm_close(reader), 0);
	ck_assert_int_eq(gpushm_close(writer), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("buffer");

	tcase_add_checked_fixture(tc, setup_buffer, teardown_buffer);
	tcase_add_test(tc, a_sealed_buffer_is_read_only_for_its_creator);
	tcase_add_test(tc, a_shared_buffer_stays_writable_for_its_creator);
	tcase_add_test(tc, a_published_digest_of_another_layout_is_refused);
	tcase_add_test(tc, a_refused_publish_leaves_the_buffer_as_it_was);
	tcase_add_test(tc, closing_a_buffer_with_arrays_is_refused);
	tcase_add_test(tc, an_open_buffer_keeps_the_socket_after_a_disconnect);
	tcase_add_test(tc, a_buffer_can_be_closed_without_its_daemon);
	tcase_add_test(tc, opens_with_the_same_access_share_a_map);
	return suite_run("buffer", tc, NULL);
}
