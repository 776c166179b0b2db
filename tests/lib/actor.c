/* SPDX-License-Identifier: MIT
 *
 * The child is only forked: it runs no library code, and its only fd is its end of the control
 * socket, so that no connection of the test lives on in it.
 */
#include "tests/lib/actor.h"

#include "proto/base/own.h"

#include <check.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define CONTROL 3

/* Sends one byte and perhaps an fd. */
static void hand_over(int fd)
{
	char byte = '.', control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };

	if (fd >= 0) {
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		*CMSG_FIRSTHDR(&m) =
			(struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
	}
	if (sendmsg(CONTROL, &m, MSG_NOSIGNAL) != 1)
		_exit(1);
}

static void connect_once(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		_exit(1);
	hand_over(fd);
	close(fd);
}

static void live(const char *path, uid_t uid, gid_t gid)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char byte;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 ||
			       setresuid(uid, uid, uid) < 0))
		_exit(1);
	/* A change of the user clears this (prctl(2)). */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	hand_over(-1);
	while (read(CONTROL, &byte, 1) == 1)
		connect_once(&address);
	_exit(0);
}

static int take_over(struct actor *a)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	int fd = -1;

	ck_assert_msg(recvmsg(a->control, &m, MSG_CMSG_CLOEXEC) == 1, "an actor has gone");
	if (CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

void actor_start(struct actor *a, const char *path, uid_t uid, gid_t gid)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	a->pid = fork();
	ck_assert_int_ge(a->pid, 0);
	if (a->pid == 0) {
		dup2(pair[1], CONTROL);
		close_range(CONTROL + 1, ~0u, 0);
		live(path, uid, gid);
	}
	close(pair[1]);
	a->control = pair[0];
	/* From now on the child has no fd of ours. */
	take_over(a);
}

int actor_connect(struct actor *a)
{
	ck_assert_int_eq(write(a->control, ".", 1), 1);
	return take_over(a);
}

void actor_kill(struct actor *a)
{
	int status = 0;

	ck_assert_int_eq(kill(a->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(a->pid, &status, 0), a->pid);
	ck_assert(WIFSIGNALED(status));
	close_fd(&a->control);
	a->pid = 0;
}
