/* SPDX-License-Identifier: MIT
 *
 * The only file that sends or receives on the protocol's socket.
 *
 * It owns the fds of a datagram from the moment the kernel has installed them until the frame has
 * them; on every error it closes them. It does not look inside a datagram, keeps no queue, never
 * duplicates an fd that it sends, and waits only if the socket itself blocks.
 *
 * Linux facts: a SOCK_SEQPACKET datagram is sent whole or not at all; the kernel gives all fds of a
 * datagram in one SCM_RIGHTS message; CMSG_SPACE(sizeof(int)) is padded to hold two fds; and if the
 * control buffer is too small (MSG_CTRUNC), the fds that fit are installed.
 */
#include "proto/wire.h"

#include "proto/base/own.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Space for FRAME_FDS_MAX fds, aligned as the kernel needs it. */
union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
};

/* So the kernel can't install more fds than the frame holds: it sets MSG_CTRUNC instead. */
_Static_assert(sizeof(union control) < CMSG_LEN((FRAME_FDS_MAX + 1) * sizeof(int)),
	       "the control buffer has space for the frame's fds and not one more");

static void control_put(union control *control, struct msghdr *msg, const int *fds, size_t n_fds)
{
	*control = (union control){
		.header = {
			.cmsg_len = CMSG_LEN(n_fds * sizeof(int)),
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS,
		},
	};
	memcpy(CMSG_DATA(&control->header), fds, n_fds * sizeof(int));
	msg->msg_control = control;
	msg->msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
}

int wire_send(int socket, const void *data, size_t len, const int *fds, size_t n_fds, int flags)
{
	struct iovec iov = { .iov_base = (void *)data, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control control;
	ssize_t n;

	assert(n_fds <= FRAME_FDS_MAX);

	/* An empty datagram would read as the end of the stream. */
	if (len == 0 || len > FRAME_MAX)
		return -EMSGSIZE;
	if (n_fds > 0)
		control_put(&control, &msg, fds, n_fds);

	/* The kernel copies less for send(). */
	n = n_fds > 0 ? sendmsg(socket, &msg, flags | MSG_NOSIGNAL)
		      : send(socket, data, len, flags | MSG_NOSIGNAL);
	return n < 0 ? -errno : 0;
}

/* Moves the fds of one control message into the frame. False: the message is of an unknown kind. */
static bool frame_adopt(struct frame *f, struct cmsghdr *c)
{
	const unsigned char *at = CMSG_DATA(c);
	bool known = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS;
	size_t n = known ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

	for (size_t i = 0; i < n; i++, at += sizeof(int)) {
		_cleanup_(close_fd) int fd = -1;

		memcpy(&fd, at, sizeof(fd));
		if (f->n_fds < FRAME_FDS_MAX)
			f->fds[f->n_fds++] = take_fd(&fd);
		else
			known = false;
	}
	return known;
}

/* The frame owns every installed fd afterwards, whatever is returned. */
static int frame_adopt_all(struct frame *f, struct msghdr *msg)
{
	bool known = true;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
		known = frame_adopt(f, c) && known;

	if (!known || (msg->msg_flags & MSG_TRUNC))
		return -EPROTO;
	/* If the control buffer had space, the fd could not be installed (net/core/scm.c,
	 * scm_detach_fds()). */
	if (msg->msg_flags & MSG_CTRUNC)
		return f->n_fds < FRAME_FDS_MAX ? -EMFILE : -EPROTO;
	return 0;
}

/* recv() has less to copy than recvmsg(), and the kernel closes the fds. MSG_TRUNC: it returns the
 * datagram's whole length. */
int wire_recv_bytes(int socket, struct frame *f, int flags)
{
	ssize_t n;

	f->len = f->n_fds = 0;
	n = recv(socket, f->data, sizeof(f->data), flags | MSG_TRUNC);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	if ((size_t)n > sizeof(f->data))
		return -EPROTO;
	f->len = n;
	return 0;
}

int wire_recv(int socket, struct frame *f, int flags)
{
	struct iovec iov = { .iov_base = f->data, .iov_len = sizeof(f->data) };
	union control control;
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;
	int r;

	f->len = f->n_fds = 0;
	n = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;

	r = frame_adopt_all(f, &msg);
	if (n == 0)
		r = -ECONNRESET;
	if (r < 0)
		frame_close_fds(f);
	if (r == 0 || r == -EMFILE)
		f->len = n;
	return r;
}

void frame_close_fds(struct frame *f)
{
	for (size_t i = 0; i < f->n_fds; i++)
		close_fd(&f->fds[i]);
	f->n_fds = 0;
}
