/* SPDX-License-Identifier: MIT
 *
 * The floor's own process. Its loop does only what any server behind one epoll must do for a
 * request: wait, receive, act, send.
 */
#include "proto/base/own.h"
#include "tests/bench/floor.h"
#include "tests/bench/gpu.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct {
	int epoll, listening;
	int held;			    /* the fd that is lent */
	int made;			    /* the fd of this reply */
	unsigned char record[RECORD_BYTES]; /* of the mempool's pointer that is held */
} server = { -1, -1, -1, -1, { 0 } };

/* Memory as that of a host buffer: a new memfd of a fixed size. */
static int make_host(uint64_t bytes)
{
	int fd = memfd_create("floor", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || fchmod(fd, 0400) < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		exit(1);
	return fd;
}

/* A reader gets another fd, open for reading. */
static int hold_host(uint64_t bytes)
{
	_cleanup_(close_fd) int fd = make_host(bytes);
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Returns the fd of the reply, or -1. */
static int act(enum floor_op op, uint64_t bytes)
{
	switch (op) {
	case FLOOR_LEND:
		return server.held;
	case FLOOR_HOLD_HOST:
		close_fd(&server.held);
		return server.held = hold_host(bytes);
	case FLOOR_HOLD_VMM:
		close_fd(&server.held);
		return server.held = gpu_make_vmm(bytes);
	case FLOOR_HOLD_MEMPOOL:
		return gpu_hold_mempool(bytes, server.record);
	case FLOOR_MAKE_HOST:
		return server.made = make_host(bytes);
	case FLOOR_MAKE_VMM:
		return server.made = gpu_make_vmm(bytes);
	case FLOOR_MAKE_MEMPOOL:
		gpu_make_pointer(bytes, server.record);
		return -1;
	case FLOOR_FREE:
		gpu_free_pointer();
		return -1;
	default:
		return -1;
	}
}

static void send_reply(int socket, const void *data, size_t len, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec io = { (void *)data, len };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };

	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		m.msg_control = &control;
		m.msg_controllen = sizeof(control.bytes);
	}
	sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void serve(int socket)
{
	static unsigned char in[FRAME_MAX], out[FRAME_MAX];
	ssize_t n = recv(socket, in, sizeof(in), MSG_DONTWAIT);
	struct floor_request ask;
	int fd;

	if (n < (ssize_t)sizeof(ask)) {
		close(socket);
		return;
	}
	memcpy(&ask, in, sizeof(ask));
	fd = act(ask.op, ask.mib ? (uint64_t)ask.mib << 20 : 4096);
	if (ask.op == FLOOR_RECORD || ask.op == FLOOR_HOLD_MEMPOOL || ask.op == FLOOR_MAKE_MEMPOOL)
		memcpy(out, server.record, sizeof(server.record));
	send_reply(socket, out, ask.reply, fd);
	close_fd(&server.made);
}

static void watch(int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };

	if (fd < 0 || epoll_ctl(server.epoll, EPOLL_CTL_ADD, fd, &e) < 0)
		exit(1);
}

static int listen_at(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 1024) < 0)
		exit(1);
	return fd;
}

/* Runs until standard input ends. */
static int floor_run(char **args)
{
	server.epoll = epoll_create1(EPOLL_CLOEXEC);
	server.listening = listen_at(args[0]);
	watch(server.listening);
	watch(STDIN_FILENO);
	if (strcmp(args[1], "gpu") == 0 && !gpu_open())
		return 1;
	puts("ready");
	for (;;) {
		struct epoll_event events[64];
		int n = epoll_wait(server.epoll, events, array_size(events), -1);

		for (int i = 0; i < n; i++) {
			if (events[i].data.fd == STDIN_FILENO)
				return 0;
			if (events[i].data.fd == server.listening)
				watch(accept4(server.listening, NULL, NULL, SOCK_CLOEXEC));
			else
				serve(events[i].data.fd);
		}
	}
}

const struct role floor_role = { "floor", floor_run };
