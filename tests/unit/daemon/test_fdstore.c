/* SPDX-License-Identifier: MIT
 *
 * Fd indices: no index is given twice, and those that systemd can keep come first. And what systemd
 * is told after it did not read for a while.
 */
#include "daemon/state/fdstore.h"
#include "proto/base/own.h"
#include "proto/systemd/systemd_internal.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MORE 3000u

static struct fdstore s;
static unsigned char *taken;

static void setup(void)
{
	ck_assert_int_eq(fdstore_reset_indices(&s), 0);
	taken = calloc(FD_INDEX_MAX, 1);
}

static void teardown(void)
{
	fdstore_close(&s);
	free(taken);
}

static uint32_t take_for(bool kept)
{
	uint32_t index = fd_indices_take(&s.buffers, kept);

	/* This runs a million times, and each of Check's asserts would write to its parent. */
	if (index >= FD_INDEX_MAX || taken[index])
		ck_abort_msg("%u is no index, or is taken already", index);
	taken[index] = 1;
	return index;
}

static uint32_t take(void)
{
	return take_for(true);
}

static void give(uint32_t index)
{
	taken[index] = 0;
	fd_indices_give(&s.buffers, index);
}

START_TEST(an_index_has_one_holder_at_a_time)
{
	for (uint32_t i = 0; i < FD_INDEX_MAX; i++)
		take();
	ck_assert_uint_eq(fd_indices_take(&s.buffers, true), FD_INDEX_NONE);
	fd_indices_give(&s.buffers, FD_INDEX_NONE);
	ck_assert_uint_eq(fd_indices_take(&s.buffers, true), FD_INDEX_NONE);
	for (uint32_t i = 0; i < FD_INDEX_MAX; i += 7)
		give(i);
	for (uint32_t i = 0; i < FD_INDEX_MAX; i += 7)
		take();
	ck_assert_uint_eq(fd_indices_take(&s.buffers, true), FD_INDEX_NONE);
}
END_TEST

START_TEST(indices_that_systemd_can_keep_are_given_first)
{
	for (uint32_t i = 0; i < FD_INDEX_KEPT; i++)
		ck_assert_uint_lt(take(), FD_INDEX_KEPT);
	for (uint32_t i = 0; i < MORE; i++)
		ck_assert_uint_ge(take(), FD_INDEX_KEPT);
	give(FD_INDEX_KEPT + 5);
	give(17);
	ck_assert_uint_eq(take(), 17);
	ck_assert_uint_eq(take(), FD_INDEX_KEPT + 5);
}
END_TEST

START_TEST(an_unkept_buffer_leaves_the_kept_indices_to_others)
{
	for (uint32_t i = 0; i < MORE; i++)
		ck_assert_uint_ge(take_for(false), FD_INDEX_KEPT);
	give(FD_INDEX_KEPT + 5);
	ck_assert_uint_eq(take_for(false), FD_INDEX_KEPT + 5);
	ck_assert_uint_eq(take(), 0);
}
END_TEST

START_TEST(an_index_marked_as_in_use_is_not_given)
{
	static const uint32_t marked[] = { 3, FD_INDEX_KEPT - 1, FD_INDEX_KEPT + 4, 0 };

	for (unsigned i = 0; i < sizeof(marked) / sizeof(*marked); i++) {
		fd_indices_mark(&s.buffers, marked[i]);
		taken[marked[i]] = 1;
	}
	fd_indices_mark(&s.buffers, FD_INDEX_MAX); /* as an invalid journal may have it */
	fd_indices_mark(&s.buffers, FD_INDEX_NONE);
	for (uint32_t i = 0; i < FD_INDEX_MAX - 4; i++)
		take();
	ck_assert_uint_eq(fd_indices_take(&s.buffers, true), FD_INDEX_NONE);
}
END_TEST

/* ---- a systemd that does not read ---- */

static int listen_as_systemd(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int len = sprintf(a.sun_path, "@gpushm test_fdstore %d", getpid());

	setenv("NOTIFY_SOCKET", a.sun_path, 1);
	a.sun_path[0] = '\0';
	len += (int)offsetof(struct sockaddr_un, sun_path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, (socklen_t)len), 0);
	return fd;
}

static void expect_told(int systemd, const char *wanted)
{
	char text[128] = "";

	ck_assert_int_gt(recv(systemd, text, sizeof(text) - 1, 0), 0);
	ck_assert_str_eq(text, wanted);
}

START_TEST(a_name_is_forgotten_before_it_is_kept_again)
{
	_cleanup_(close_fd) int systemd = listen_as_systemd();
	unsigned n = 0;

	systemd_wait_ms = 50;
	s.systemd = true;
	while (fdstore_keep(&s, "m1", systemd) == 0)
		n++;
	fdstore_forget(&s, "m1");
	fdstore_forget(&s, "m2");
	ck_assert_int_eq(fdstore_keep(&s, "m1", systemd), -ETIMEDOUT);
	ck_assert_int_eq(fdstore_tell(&s), -ETIMEDOUT);
	while (n-- > 0)
		expect_told(systemd, "FDSTORE=1\nFDNAME=m1\nFDPOLL=0");
	ck_assert_int_eq(fdstore_keep(&s, "m1", systemd), 0);
	expect_told(systemd, "FDSTOREREMOVE=1\nFDNAME=m2");
	expect_told(systemd, "FDSTOREREMOVE=1\nFDNAME=m1");
	expect_told(systemd, "FDSTORE=1\nFDNAME=m1\nFDPOLL=0");
	ck_assert_int_eq(fdstore_tell(&s), 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("fdstore");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, an_index_has_one_holder_at_a_time);
	tcase_add_test(t, indices_that_systemd_can_keep_are_given_first);
	tcase_add_test(t, an_unkept_buffer_leaves_the_kept_indices_to_others);
	tcase_add_test(t, an_index_marked_as_in_use_is_not_given);
	tcase_add_test(t, a_name_is_forgotten_before_it_is_kept_again);
	return suite_run("fdstore", t, NULL);
}
