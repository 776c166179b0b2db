/* SPDX-License-Identifier: MIT
 *
 * A request as the library's functions make it: with the lock, and repeated where the daemon was
 * restarted before it replied.
 */
#pragma once

#include "client/lib/link/connection.h"

/* Makes the request and waits for its reply. From success until request_done() it holds c->lock,
 * and *ret and the fds in c->frame are valid. On failure the lock is not held and gpushm_error() is
 * set. It returns the reply's error as -errno, -ECHILD in a forked child, -ECONNRESET if the
 * connection has ended, -EPROTO if the reply makes no sense, or -ETIMEDOUT and -EINTR as
 * connection_receive(). *ret_sends (may be NULL): how often it was sent, to another daemon each
 * time, so that an earlier one may have carried it out. */
int request_call(struct gpushm *c, const Gpushm__Proto__Request *request,
		 Gpushm__Proto__Reply **ret, unsigned *ret_sends);

/* Closes the fds that nobody took and releases the lock. */
void request_done(struct gpushm *c);

/* request_done() where the reply made no sense: the connection has ended. Keeps gpushm_error().
 * Returns -EPROTO. */
int request_violated(struct gpushm *c);

/* Whether the daemon has got the request, and may carry it out although the call failed with r. */
bool request_in_doubt(int r, unsigned sends);

/* request_call(), then read(c, reply, to) under the lock, then request_done(); where read() returns
 * -EPROTO, request_violated(). Returns what failed, or 0. */
int request_read(struct gpushm *c, const Gpushm__Proto__Request *request,
		 int (*read)(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to),
		 void *to);

/* The same, where read() makes one item of a struct result, which *(void **)ret is then; the caller
 * frees it with gpushm_free(). */
int request_one(struct gpushm *c, const Gpushm__Proto__Request *request,
		int (*read)(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to),
		void *ret);

/* request_read(), but waits for the reply no longer than so many ms; 0: without that limit. */
int request_read_within(struct gpushm *c, uint64_t ms, const Gpushm__Proto__Request *request,
			int (*read)(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to),
			void *to);

/* A request whose reply says nothing but success. */
int request_ack(struct gpushm *c, const Gpushm__Proto__Request *request);
int request_ack_within(struct gpushm *c, uint64_t ms, const Gpushm__Proto__Request *request);
/* -EBUSY, at once: another thread's request is under way. */
int request_ack_unless_busy(struct gpushm *c, const Gpushm__Proto__Request *request);

/* RESTART: the daemon refuses, or hangs up; then this reconnects to its successor. */
int request_send_restart(struct gpushm *c, const Gpushm__Proto__Request *request);

/* Puts a buffer's name into a message. Checks its length alone; the daemon checks the rule for
 * names. 0 or -EINVAL with gpushm_error() set. */
int request_set_name(const char *name, protobuf_c_boolean *has, ProtobufCBinaryData *ret);
