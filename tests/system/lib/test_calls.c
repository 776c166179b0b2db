/* SPDX-License-Identifier: MIT
 *
 * Requests that do not block: each function returns at once, whether there is a daemon that
 * replies, one that is stopped, or none; the result is that of the function that blocks.
 */
#include "client/gpushm_async.h"
#include "client/gpushm_private.h"
#include "tests/lib/kept.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 60u
#define LONG_MS 60000u

static struct gpushm *calls; /* the connection of calls; c is another one */

static void setup(void)
{
	kept_setup();
	ck_assert_msg(gpushm_connect(k.socket, &calls) == 0, "%s", gpushm_error());
}

static void teardown(void)
{
	calls = gpushm_disconnect(calls);
	kept_teardown();
}

static bool is_readable(const struct gpushm_call *call, int ms)
{
	struct pollfd p = { .fd = gpushm_call_fd(call), .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* As an event loop does it. */
static int result_of(struct gpushm_call *call)
{
	int r;

	while ((r = gpushm_call_process(call)) == GPUSHM_PENDING)
		ck_assert(is_readable(call, LONG_MS));
	return r;
}

static struct gpushm_call *open_call(const char *name, uint64_t timeout_ms)
{
	struct gpushm_call *call = NULL;

	ck_assert_msg(gpushm_send_open(calls, name, GPUSHM_READ, timeout_ms, NULL, &call) == 0,
		      "%s", gpushm_error());
	return call;
}

static struct gpushm_call *create_call(const char *name)
{
	const struct gpushm_attr attr = { sizeof(attr), "key", "value", 5 };
	const struct gpushm_create_options o = { .struct_size = sizeof(o),
						 .attrs = &attr,
						 .n_attrs = 1 };
	struct gpushm_call *call = NULL;

	ck_assert_msg(gpushm_send_create(calls, name, 100, &o, &call) == 0, "%s", gpushm_error());
	return call;
}

static struct gpushm_buffer *shared(const char *name)
{
	struct gpushm_buffer *b = client_create(name, 100, NULL);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	return b;
}

static void expect_connection_is_good(void)
{
	ck_assert_int_eq(gpushm_wait(calls, "none", 0), -ENOENT);
	ck_assert_str_eq(gpushm_error_code(), "NOT_FOUND");
}

START_TEST(a_buffer_is_opened)
{
	struct gpushm_buffer *b = shared("x"), *again;
	struct gpushm_call *call = open_call("x", 0);

	ck_assert_msg(result_of(call) == 0, "%s", gpushm_error());
	ck_assert(is_readable(call, 0));
	again = gpushm_call_buffer(call);
	ck_assert_uint_eq(gpushm_buffer_id(again), gpushm_buffer_id(b));
	ck_assert_ptr_null(gpushm_call_buffer(call));
	ck_assert_int_eq(gpushm_call_process(call), 0);
	gpushm_call_free(call);
	ck_assert_int_eq(gpushm_close(again), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_buffer_is_created_described_and_published)
{
	const struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "a", .dtype = { 2, 32, 1, 0 }, .ndim = 0
	};
	struct gpushm_call *call = create_call("x");
	struct gpushm_buffer *b;
	const void *value;
	size_t size;

	ck_assert_msg(result_of(call) == 0, "%s", gpushm_error());
	b = gpushm_call_buffer(call);
	gpushm_call_free(call);
	ck_assert_int_eq(gpushm_buffer_attr(b, "key", &value, &size), 0);
	ck_assert_uint_eq(size, 5);
	ck_assert_int_eq(gpushm_describe(b, &spec, 1), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_refusal_is_the_result_also_when_it_is_asked_for_again)
{
	struct gpushm_buffer *b = client_create("x", 100, NULL);
	struct gpushm_call *call = open_call("x", 0);

	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(result_of(call), -EAGAIN);
		ck_assert_str_eq(gpushm_error_code(), "NOT_PUBLISHED");
		ck_assert_ptr_null(gpushm_call_buffer(call));
	}
	gpushm_call_free(call);
	call = open_call("none", 0);
	ck_assert_int_eq(result_of(call), -ENOENT);
	gpushm_call_free(call);
	call = open_call("x", 20);
	ck_assert_int_eq(result_of(call), -ETIMEDOUT);
	ck_assert_str_eq(gpushm_error_code(), "TIMED_OUT");
	gpushm_call_free(call);
	ck_assert_int_eq(gpushm_discard(b), 0);
}
END_TEST

START_TEST(wrong_arguments_are_found_before_anything_is_sent)
{
	struct gpushm_call *call = NULL;

	ck_assert_int_eq(gpushm_send_open(calls, NULL, GPUSHM_READ, 0, NULL, &call), -EINVAL);
	ck_assert_int_eq(gpushm_send_open(calls, "x", 7, 0, NULL, &call), -EINVAL);
	ck_assert_int_eq(gpushm_send_wait(calls, NULL, 0, &call), -EINVAL);
	ck_assert_int_eq(gpushm_send_create(calls, NULL, 1, NULL, &call), -EINVAL);
	ck_assert_ptr_null(call);
	ck_assert_ptr_null(gpushm_call_free(NULL));
}
END_TEST

START_TEST(a_name_is_waited_for_and_the_connection_is_busy_meanwhile)
{
	struct gpushm_call *call = NULL, *other = NULL;
	struct gpushm_buffer *b;

	ck_assert_int_eq(gpushm_send_wait(calls, "x", LONG_MS, &call), 0);
	client_await(client_waiting() == 1);
	ck_assert_int_eq(gpushm_call_process(call), GPUSHM_PENDING);
	ck_assert(!is_readable(call, 0));
	ck_assert_int_eq(gpushm_wait(calls, "none", 0), -EBUSY);
	ck_assert_int_eq(gpushm_send_wait(calls, "x", 0, &other), 0);
	ck_assert_int_eq(gpushm_call_process(other), -EBUSY);
	gpushm_call_free(other);
	b = shared("x");
	ck_assert_msg(result_of(call) == 0, "%s", gpushm_error());
	expect_connection_is_good();
	gpushm_call_free(call);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_buffer_that_is_closed_meanwhile_ends_its_lease_with_the_call)
{
	struct gpushm_buffer *b = shared("x"), *again = NULL;
	struct gpushm_call *call = NULL;
	uint32_t leases = client_status().leases;

	ck_assert_int_eq(gpushm_open(calls, "x", GPUSHM_READ, 0, NULL, &again), 0);
	ck_assert_int_eq(gpushm_send_wait(calls, "y", LONG_MS, &call), 0);
	ck_assert_int_eq(gpushm_close(again), 0);
	client_close_and_unlink(shared("y"), "y");
	ck_assert_int_eq(result_of(call), 0);
	client_await(client_status().leases == leases);
	gpushm_call_free(call);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_buffer_that_nobody_takes_is_given_back)
{
	struct gpushm_buffer *b = shared("x");
	uint32_t leases = client_status().leases;
	struct gpushm_call *call = open_call("x", 0);

	ck_assert_int_eq(result_of(call), 0);
	gpushm_call_free(call);
	client_await(client_status().leases == leases);
	call = create_call("new");
	ck_assert_int_eq(result_of(call), 0);
	gpushm_call_free(call);
	client_await(client_status().leases == leases);
	ck_assert_int_eq(gpushm_wait(c, "new", 0), -ENOENT);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_call_that_is_given_up_leaves_nothing)
{
	struct gpushm_buffer *b = shared("x");
	uint32_t leases = client_status().leases;

	gpushm_call_free(open_call("x", 0));
	expect_connection_is_good();
	gpushm_call_free(create_call("new"));
	expect_connection_is_good();
	gpushm_call_free(open_call("none", 20));
	expect_connection_is_good();
	client_await(client_status().leases == leases);
	ck_assert_int_eq(gpushm_wait(c, "new", 0), -ENOENT);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_call_to_a_stopped_daemon_ends_in_the_connections_time)
{
	struct gpushm_buffer *b = shared("x");
	uint32_t leases = client_status().leases;
	struct gpushm_call *call;

	ck_assert_int_eq(gpushm_set_timeout(calls, MS), 0);
	ck_assert_int_eq(kill(k.pid, SIGSTOP), 0);
	call = open_call("x", 0);
	ck_assert_int_eq(gpushm_call_process(call), GPUSHM_PENDING);
	ck_assert_int_eq(result_of(call), -ETIMEDOUT);
	ck_assert_str_eq(gpushm_error_code(), "NO_REPLY");
	gpushm_call_free(call);
	/* The late reply is still due. */
	call = create_call("new");
	ck_assert_int_eq(result_of(call), -ETIMEDOUT);
	ck_assert_msg(strstr(gpushm_error(), "this one was not sent"), "%s", gpushm_error());
	gpushm_call_free(call);
	ck_assert_int_eq(gpushm_set_timeout(calls, LONG_MS), 0);
	call = create_call("new");
	ck_assert_int_eq(gpushm_call_process(call), GPUSHM_PENDING);
	ck_assert_int_eq(kill(k.pid, SIGCONT), 0);
	ck_assert_msg(result_of(call) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(client_status().leases, leases + 1);
	ck_assert_int_eq(gpushm_discard(gpushm_call_buffer(call)), 0);
	gpushm_call_free(call);
	client_close_and_unlink(b, "x");
}
END_TEST

static void connect_calls_later(void)
{
	calls = gpushm_disconnect(calls);
	ck_assert_int_eq(gpushm_private_connect_later(k.socket, NULL, &calls), 0);
}

START_TEST(a_connection_is_made_by_its_first_call_which_does_not_wait)
{
	struct gpushm_buffer *b = shared("x");
	struct gpushm_call *call;

	connect_calls_later();
	ck_assert_int_eq(gpushm_set_timeout(calls, MS), 0);
	ck_assert_int_eq(kill(k.pid, SIGSTOP), 0);
	call = open_call("x", 0);
	ck_assert_int_eq(gpushm_call_process(call), GPUSHM_PENDING);
	ck_assert_int_eq(result_of(call), -ETIMEDOUT);
	ck_assert_str_eq(gpushm_error_code(), "NO_REPLY");
	gpushm_call_free(call);
	ck_assert_int_eq(gpushm_set_timeout(calls, LONG_MS), 0);
	call = open_call("x", 0);
	ck_assert_int_eq(gpushm_call_process(call), GPUSHM_PENDING);
	ck_assert_int_eq(kill(k.pid, SIGCONT), 0);
	ck_assert_msg(result_of(call) == 0, "%s", gpushm_error());
	ck_assert(!gpushm_private_is_idle(calls));
	gpushm_call_free(call);
	ck_assert(gpushm_private_is_idle(calls));
	expect_connection_is_good();
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_wait_goes_on_with_the_next_daemon)
{
	struct gpushm_buffer *b = shared("x"), *found = NULL;
	struct gpushm_call *call = open_call("y", LONG_MS);
	int fd = gpushm_call_fd(call);

	ck_assert_int_eq(gpushm_open(calls, "x", GPUSHM_READ, 0, NULL, &found), -EBUSY);
	client_await(client_waiting() == 1);
	supervisor_end(&k, SIGKILL);
	ck_assert_int_eq(gpushm_call_process(call), GPUSHM_PENDING);
	supervisor_start(&k);
	do
		ck_assert_int_eq(gpushm_call_process(call), GPUSHM_PENDING);
	while (client_waiting() == 0);
	client_close_and_unlink(shared("y"), "y");
	ck_assert_msg(result_of(call) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_call_fd(call), fd);
	found = gpushm_call_buffer(call);
	gpushm_call_free(call);
	ck_assert_int_eq(gpushm_buffer_lost(found), 0);
	ck_assert_int_eq(gpushm_close(found), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(the_example_opens_several_names_in_a_loop_of_libuv)
{
	struct gpushm_buffer *x, *y;
	char command[512], line[64];
	FILE *f;

	ck_assert_int_eq(setenv("GPUSHM_SOCKET", k.socket, 1), 0);
	snprintf(command, sizeof(command), "%s x y", build_path("examples/open_uv"));
	f = popen(command, "re");
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
	ck_assert_str_eq(line, "waiting\n");
	client_await(client_waiting() == 2);
	y = shared("y");
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
	ck_assert_str_eq(line, "y: 100 bytes\n");
	x = shared("x");
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
	ck_assert_str_eq(line, "x: 100 bytes\n");
	ck_assert_int_eq(pclose(f), 0);
	client_close_and_unlink(x, "x");
	client_close_and_unlink(y, "y");
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("calls");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_buffer_is_opened);
	tcase_add_test(t, a_buffer_is_created_described_and_published);
	tcase_add_test(t, a_refusal_is_the_result_also_when_it_is_asked_for_again);
	tcase_add_test(t, wrong_arguments_are_found_before_anything_is_sent);
	tcase_add_test(t, a_name_is_waited_for_and_the_connection_is_busy_meanwhile);
	tcase_add_test(t, a_buffer_that_is_closed_meanwhile_ends_its_lease_with_the_call);
	tcase_add_test(t, a_buffer_that_nobody_takes_is_given_back);
	tcase_add_test(t, a_call_that_is_given_up_leaves_nothing);
	tcase_add_test(t, a_call_to_a_stopped_daemon_ends_in_the_connections_time);
	tcase_add_test(t, a_connection_is_made_by_its_first_call_which_does_not_wait);
	tcase_add_test(t, a_wait_goes_on_with_the_next_daemon);
	tcase_add_test(t, the_example_opens_several_names_in_a_loop_of_libuv);
	return suite_run("calls", t, NULL);
}
