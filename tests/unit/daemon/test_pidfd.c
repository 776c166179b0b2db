/* SPDX-License-Identifier: MIT
 *
 * Start times from /proc/PID/stat, for any name of a process; the pidfd of a peer; and which of the
 * processes in a journal a new daemon adopts.
 */
#include "daemon/catalog/pidfd.h"
#include "daemon/catalog/process.h"

#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

START_TEST(a_start_time_is_read_whatever_the_process_is_called)
{
	static const char *const names[] = { "a) R 1 1 1", "((", ") )", "", "0123456789abcde" };
	uint64_t start = pidfd_start_time(getpid());

	ck_assert_uint_gt(start, 0);
	for (size_t i = 0; i < array_size(names); i++) {
		ck_assert_int_eq(prctl(PR_SET_NAME, names[i]), 0);
		ck_assert_uint_eq(pidfd_start_time(getpid()), start);
	}
	ck_assert_uint_ge(start, pidfd_start_time(1));
}
END_TEST

START_TEST(a_process_that_is_gone_has_no_start_time)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_uint_eq(pidfd_start_time(pid), 0);
}
END_TEST

START_TEST(a_pidfd_of_a_living_peer_is_not_readable)
{
	int pair[2];
	struct pollfd p = { .events = POLLIN };

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	p.fd = pidfd_of_peer(pair[0], getpid());
	ck_assert_int_ge(p.fd, 0);
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	close(p.fd);
	close(pair[0]);
	close(pair[1]);
}
END_TEST

static int restore(pid_t pid, uint64_t start_time, int pidfd)
{
	const struct process recorded = { .pid = pid, .start_time = start_time };
	struct process *p = NULL;
	struct pidfds all;
	int r;

	ck_assert_int_eq(pidfds_init(&all), 0);
	r = process_adopt(&all, &recorded, pidfd, &p);
	process_free(p);
	pidfds_done(&all);
	return r;
}

static void *look_for_thread(void *arg)
{
	pid_t id = gettid();

	*(int *)arg = restore(id, pidfd_start_time(id), -1);
	return NULL;
}

START_TEST(only_the_recorded_process_is_adopted)
{
	uint64_t start = pidfd_start_time(getpid());
	pthread_t thread;
	int r = 0;

	ck_assert_int_eq(restore(getpid(), start, -1), 0);
	ck_assert_int_eq(restore(getpid(), start + 1, -1), -ESRCH);
	ck_assert_int_eq(pthread_create(&thread, NULL, look_for_thread, &r), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(r, -ESRCH);
	/* In another PID namespace, without a kept pidfd. */
	ck_assert_int_eq(restore(0, 0, -1), -ESRCH);
	ck_assert_int_eq(restore(0, 0, (int)syscall(SYS_pidfd_open, getpid(), 0)), 0);
}
END_TEST

START_TEST(a_kept_pidfd_of_a_dead_process_is_refused)
{
	pid_t pid = fork();
	int pidfd;

	if (pid == 0)
		_exit(0);
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	ck_assert_int_ge(pidfd, 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(restore(0, 0, pidfd), -ESRCH);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("pidfd");

	tcase_add_checked_fixture(t, fds_mark, fds_check);
	tcase_add_test(t, a_start_time_is_read_whatever_the_process_is_called);
	tcase_add_test(t, a_process_that_is_gone_has_no_start_time);
	tcase_add_test(t, a_pidfd_of_a_living_peer_is_not_readable);
	tcase_add_test(t, only_the_recorded_process_is_adopted);
	tcase_add_test(t, a_kept_pidfd_of_a_dead_process_is_refused);
	return suite_run("pidfd", t, NULL);
}
