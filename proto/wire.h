/* SPDX-License-Identifier: MIT
 *
 * One datagram on a SOCK_SEQPACKET Unix socket, with its fds. Both sides send and receive with
 * these functions only.
 */
#pragma once

#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>

/* A received datagram. The frame owns the fds until take_fd(). */
struct frame {
	size_t len;
	size_t n_fds;
	int fds[FRAME_FDS_MAX];
	unsigned char data[FRAME_MAX];
};

/* Sends len bytes and lends n_fds fds to the kernel for the call. Never raises SIGPIPE. flags:
 * MSG_DONTWAIT or 0. 0; -EAGAIN (would block, or the socket's SO_SNDTIMEO is over: poll for
 * writing); -EINTR (a signal came while it waited, and nothing was sent); -EMSGSIZE; -ETOOMANYREFS;
 * -errno. */
int wire_send(int socket, const void *data, size_t len, const int *fds, size_t n_fds, int flags);

/* Receives one datagram with its fds. 0 with f->len >= 1; -EAGAIN (nothing is there, or the
 * socket's SO_RCVTIMEO is over); -EINTR (a signal came while it waited); -ECONNRESET at the end of
 * the stream or for an empty datagram; -EPROTO: the datagram was cut, or had more fds than a frame;
 * -EMFILE: this process can't open so many fds, but the data are valid. On an error the fds are
 * closed. f->n_fds is valid only after success. */
int wire_recv(int socket, struct frame *f, int flags);

/* The same without fds: the kernel closes those that were sent. */
int wire_recv_bytes(int socket, struct frame *f, int flags);

/* Closes the remaining fds. For _cleanup_() too. */
void frame_close_fds(struct frame *f);
