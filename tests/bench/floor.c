/* SPDX-License-Identifier: MIT
 *
 * The floor, from the client's side.
 */
#include "tests/bench/floor.h"

#include "proto/base/own.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static void address_of(const char *path, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(ret->sun_path, sizeof(ret->sun_path), "%s", path);
}

void floor_start(struct floor *f, const char *folder, int with_gpu)
{
	char line[16];

	snprintf(f->path, sizeof(f->path), "%s/floor", folder);
	role_start(&f->process, floor_role.name,
		   (const char *[]){ f->path, with_gpu ? "gpu" : "none", NULL });
	role_read_line(&f->process, line, sizeof(line));
	f->socket = floor_connect(f);
}

void floor_stop(struct floor *f)
{
	close_fd(&f->socket);
	role_finish(&f->process);
	unlink(f->path);
}

int floor_connect(const struct floor *f)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un a;

	address_of(f->path, &a);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		ck_abort_msg("the floor can't be reached: %s", strerror(errno));
	return fd;
}

static int fd_of(struct msghdr *m)
{
	struct cmsghdr *h = CMSG_FIRSTHDR(m);
	int fd = -1;

	if (h && h->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(h), sizeof(fd));
	return fd;
}

int floor_trip(int socket, const struct trip *t, uint64_t bytes, unsigned char record[RECORD_BYTES])
{
	static unsigned char out[FRAME_MAX], in[FRAME_MAX];
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec io = { in, sizeof(in) };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct floor_request ask = { t->op, 0, (uint16_t)t->reply, (uint32_t)(bytes >> 20) };

	memcpy(out, &ask, sizeof(ask));
	if (send(socket, out, t->request, MSG_NOSIGNAL) != (ssize_t)t->request ||
	    recvmsg(socket, &m, MSG_CMSG_CLOEXEC) != (ssize_t)t->reply)
		ck_abort_msg("the floor does not reply: %s", strerror(errno));
	if (record)
		memcpy(record, in, RECORD_BYTES);
	return fd_of(&m);
}

int floor_call(const struct floor *f, enum floor_op op, uint64_t bytes,
	       unsigned char record[RECORD_BYTES])
{
	return floor_trip(f->socket, &(struct trip){ FLOOR_REQUEST_BYTES, RECORD_BYTES, op }, bytes,
			  record);
}
