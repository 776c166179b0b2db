/* SPDX-License-Identifier: MIT
 *
 * Datagrams and their fds over a real socket pair: what arrives, what the receiver refuses, and
 * that nothing stays open after a refusal. The tests use sendmsg() for datagrams that wire_send()
 * can't send.
 */
#include "proto/base/own.h"
#include "proto/wire.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>

static int ends[2];
static struct frame frame;

static void setup(void)
{
	fds_mark();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

static void teardown(void)
{
	close_fd(&ends[0]);
	close_fd(&ends[1]);
	fds_check();
}

static int open_null(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* Sends any number of bytes and of copies of one fd, as a hostile peer would. */
static void send_raw(size_t len, size_t n_fds)
{
	static char data[2 * FRAME_MAX];
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(64 * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { data, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	_cleanup_(close_fd) int fd = open_null();

	if (n_fds > 0) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		for (size_t i = 0; i < n_fds; i++)
			memcpy(CMSG_DATA(&control.header) + i * sizeof(int), &fd, sizeof(int));
	}
	ck_assert_int_eq(sendmsg(ends[0], &msg, 0), (int)len);
}

static void same_file(int a, int b)
{
	struct stat sa, sb;

	ck_assert_int_eq(fstat(a, &sa), 0);
	ck_assert_int_eq(fstat(b, &sb), 0);
	ck_assert(sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino);
}

START_TEST(bytes_arrive_unchanged)
{
	static unsigned char data[FRAME_MAX];
	const size_t sizes[] = { 1, 2, 4095, FRAME_MAX };

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = i * 31 + (i >> 8);
	for (size_t i = 0; i < array_size(sizes); i++) {
		ck_assert_int_eq(wire_send(ends[0], data, sizes[i], NULL, 0, 0), 0);
		ck_assert_int_eq(wire_recv(ends[1], &frame, 0), 0);
		ck_assert_uint_eq(frame.len, sizes[i]);
		ck_assert_uint_eq(frame.n_fds, 0);
		ck_assert_mem_eq(frame.data, data, sizes[i]);
	}
}
END_TEST

START_TEST(fds_arrive_in_order_and_close_on_exec)
{
	int sent[2] = { ends[0], open_null() };

	for (size_t n = 1; n <= 2; n++) {
		ck_assert_int_eq(wire_send(ends[0], "x", 1, sent, n, 0), 0);
		ck_assert_int_eq(wire_recv(ends[1], &frame, 0), 0);
		ck_assert_uint_eq(frame.n_fds, n);
		for (size_t i = 0; i < n; i++) {
			same_file(frame.fds[i], sent[i]);
			ck_assert_int_eq(fcntl(frame.fds[i], F_GETFD), FD_CLOEXEC);
		}
		frame_close_fds(&frame);
		frame_close_fds(&frame);
	}
	/* wire_send() only borrows the fds: the sender still has them. */
	close_fd(&sent[1]);
}
END_TEST

START_TEST(an_fd_that_was_taken_outlives_its_frame)
{
	int sent[2] = { open_null(), open_null() };
	int taken;

	ck_assert_int_eq(wire_send(ends[0], "x", 1, sent, 2, 0), 0);
	ck_assert_int_eq(wire_recv(ends[1], &frame, 0), 0);
	taken = take_fd(&frame.fds[1]);
	frame_close_fds(&frame);
	same_file(taken, sent[1]);
	close_fd(&taken);
	close_fd(&sent[0]);
	close_fd(&sent[1]);
}
END_TEST

START_TEST(a_truncated_datagram_is_refused_and_its_fds_closed)
{
	send_raw(FRAME_MAX + 1, 2);
	ck_assert_int_eq(wire_recv(ends[1], &frame, 0), -EPROTO);
	send_raw(FRAME_MAX + 1, 0);
	ck_assert_int_eq(wire_recv_bytes(ends[1], &frame, 0), -EPROTO);
}
END_TEST

START_TEST(more_fds_than_a_frame_holds_are_refused_and_closed)
{
	for (size_t n = FRAME_FDS_MAX + 1; n <= 64; n++) {
		send_raw(1, n);
		ck_assert_int_eq(wire_recv(ends[1], &frame, 0), -EPROTO);
		ck_assert_uint_eq(frame.n_fds, 0);
	}
}
END_TEST

START_TEST(fds_are_closed_where_none_are_allowed)
{
	send_raw(1, 1);
	ck_assert_int_eq(wire_recv_bytes(ends[1], &frame, 0), 0);
	send_raw(1, 64);
	ck_assert_int_eq(wire_recv_bytes(ends[1], &frame, 0), 0);
}
END_TEST

START_TEST(an_empty_datagram_reads_as_the_end_and_its_fds_are_closed)
{
	send_raw(0, 2);
	ck_assert_int_eq(wire_recv(ends[1], &frame, 0), -ECONNRESET);
	send_raw(0, 0);
	ck_assert_int_eq(wire_recv(ends[1], &frame, 0), -ECONNRESET);
}
END_TEST

START_TEST(the_end_of_the_stream_is_a_connection_reset)
{
	close_fd(&ends[0]);
	ck_assert_int_eq(wire_recv(ends[1], &frame, 0), -ECONNRESET);
	ck_assert_int_eq(wire_recv_bytes(ends[1], &frame, MSG_DONTWAIT), -ECONNRESET);
}
END_TEST

START_TEST(other_control_messages_are_refused)
{
	const int on = 1;

	ck_assert_int_eq(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	send_raw(1, 0);
	ck_assert_int_eq(wire_recv(ends[1], &frame, 0), -EPROTO);
	send_raw(1, 2);
	ck_assert_int_eq(wire_recv(ends[1], &frame, 0), -EPROTO);
}
END_TEST

START_TEST(a_failed_receive_leaves_the_frame_empty)
{
	int fd = open_null();

	ck_assert_int_eq(wire_send(ends[0], "x", 1, &fd, 1, 0), 0);
	ck_assert_int_eq(wire_recv(ends[1], &frame, 0), 0);
	close(take_fd(&frame.fds[0]));
	ck_assert_int_eq(wire_recv(ends[1], &frame, MSG_DONTWAIT), -EAGAIN);
	ck_assert_uint_eq(frame.n_fds, 0);
	ck_assert_uint_eq(frame.len, 0);
	close_fd(&fd);
}
END_TEST

START_TEST(a_full_socket_refuses_and_delivers_what_it_took)
{
	static unsigned char data[FRAME_MAX];
	size_t n = 0;
	int r;

	while ((r = wire_send(ends[0], data, sizeof(data), NULL, 0, MSG_DONTWAIT)) == 0)
		n++;
	ck_assert_int_eq(r, -EAGAIN);
	for (; n > 0; n--) {
		ck_assert_int_eq(wire_recv(ends[1], &frame, MSG_DONTWAIT), 0);
		ck_assert_uint_eq(frame.len, sizeof(data));
	}
	ck_assert_int_eq(wire_recv(ends[1], &frame, MSG_DONTWAIT), -EAGAIN);
}
END_TEST

START_TEST(a_frame_that_is_empty_or_too_large_is_not_sent)
{
	static unsigned char data[FRAME_MAX + 1];

	ck_assert_int_eq(wire_send(ends[0], data, sizeof(data), NULL, 0, 0), -EMSGSIZE);
	ck_assert_int_eq(wire_send(ends[0], data, 0, NULL, 0, 0), -EMSGSIZE);
	ck_assert_int_eq(wire_recv(ends[1], &frame, MSG_DONTWAIT), -EAGAIN);
}
END_TEST

START_TEST(a_peer_that_is_gone_gives_epipe_and_no_signal)
{
	close_fd(&ends[1]);
	ck_assert_int_eq(wire_send(ends[0], "x", 1, NULL, 0, 0), -EPIPE);
}
END_TEST

static void on_tick(int signal)
{
}

/* Its caller may have a deadline. */
START_TEST(a_receive_ends_with_a_signal)
{
	struct sigaction action = { .sa_handler = on_tick };
	struct itimerval every = { { 0, 2000 }, { 0, 2000 } };
	struct itimerval off = { 0 };

	ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
	ck_assert_int_eq(wire_recv(ends[1], &frame, 0), -EINTR);
	ck_assert_int_eq(wire_recv_bytes(ends[1], &frame, 0), -EINTR);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &off, NULL), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("wire");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, bytes_arrive_unchanged);
	tcase_add_test(tc, fds_arrive_in_order_and_close_on_exec);
	tcase_add_test(tc, an_fd_that_was_taken_outlives_its_frame);
	tcase_add_test(tc, a_truncated_datagram_is_refused_and_its_fds_closed);
	tcase_add_test(tc, more_fds_than_a_frame_holds_are_refused_and_closed);
	tcase_add_test(tc, fds_are_closed_where_none_are_allowed);
	tcase_add_test(tc, an_empty_datagram_reads_as_the_end_and_its_fds_are_closed);
	tcase_add_test(tc, the_end_of_the_stream_is_a_connection_reset);
	tcase_add_test(tc, other_control_messages_are_refused);
	tcase_add_test(tc, a_failed_receive_leaves_the_frame_empty);
	tcase_add_test(tc, a_full_socket_refuses_and_delivers_what_it_took);
	tcase_add_test(tc, a_frame_that_is_empty_or_too_large_is_not_sent);
	tcase_add_test(tc, a_peer_that_is_gone_gives_epipe_and_no_signal);
	tcase_add_test(tc, a_receive_ends_with_a_signal);
	return suite_run("wire", tc, NULL);
}
