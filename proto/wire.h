/* SPDX-License-Identifier: MIT
 *
 * One datagram on a SOCK_SEQPACKET Unix socket, with its fds. Both sides send and receive through
 * these two functions and no others.
 */
#ifndef GPUSHM_PROTO_WIRE_H
#define GPUSHM_PROTO_WIRE_H

#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>

/* A received datagram. The fds belong to the frame until somebody take_fd()s them. */
struct frame {
	size_t len;
	size_t n_fds;
	int fds[FRAME_FDS_MAX];
	unsigned char data[FRAME_MAX];
};

/* Sends len bytes and lends n_fds fds to the kernel for the call. Never raises SIGPIPE. flags:
 * MSG_DONTWAIT or 0. 0; -EAGAIN (would block: park and poll for writing); -EMSGSIZE; -ETOOMANYREFS;
 * -errno. */
int wire_send(int socket, const void *data, size_t len, const int *fds, size_t n_fds, int flags);

/* Receives one datagram with its fds. 0 with f->len >= 1; -EAGAIN; -ECONNRESET at the end of the
 * stream or for an empty datagram; -EPROTO where the datagram was cut, or came with more fds than a
 * frame has; -EMFILE where this process had no room for them, and the data are there all the same.
 * Then the fds are closed. f->n_fds is valid after success only. */
int wire_recv(int socket, struct frame *f, int flags);

/* The same with no room for fds: the kernel closes those that were sent, and nothing else comes of
 * them. */
int wire_recv_bytes(int socket, struct frame *f, int flags);

/* Closes what nobody took. For _cleanup_() too. */
void frame_close_fds(struct frame *f);

#endif
