/* SPDX-License-Identifier: MIT
 *
 * Where a daemon dies or restarts before it has replied, the connection comes back to its successor
 * (hello.h) and the request is sent again. A request that removes something may then have been
 * carried out by the first daemon: the second one's "not found" is a success.
 */
#include "client/lib/link/request.h"

#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/link/hello.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#define TRIES_MAX 16 /* daemons that may die of one request */
#define DIES_MS 100u /* within that time; one that lives longer dies of something else */

/* How long the daemon is to wait before it replies; NULL: it is not to. */
static uint64_t *wait_of(const Gpushm__Proto__Request *request)
{
	switch (request->verb_case) {
	case GPUSHM__PROTO__REQUEST__VERB_OPEN:
		return request->open->has_wait_ms ? &request->open->wait_ms : NULL;
	case GPUSHM__PROTO__REQUEST__VERB_STAT:
		return request->stat->has_wait_ms ? &request->stat->wait_ms : NULL;
	case GPUSHM__PROTO__REQUEST__VERB_CREATE:
		return request->create->has_wait_ms ? &request->create->wait_ms : NULL;
	case GPUSHM__PROTO__REQUEST__VERB_EVENTS:
		return request->events->has_wait_ms ? &request->events->wait_ms : NULL;
	default:
		return NULL;
	}
}

/* The next daemon waits for what is left; so does the same one if it is asked again. */
static void shorten_wait(uint64_t *wait, uint64_t deadline)
{
	if (wait)
		*wait = clock_wait_left_ms(*wait, deadline);
}

static int call(struct gpushm *c, const Gpushm__Proto__Request *request, Gpushm__Proto__Reply **ret,
		bool *repeated)
{
	uint64_t *wait = wait_of(request), deadline = clock_deadline(wait ? *wait : 0);
	uint64_t sent = clock_monotonic_ms();
	int r = c->broken ? error_set(ECONNRESET,
				      "the connection to the daemon has ended: connect again")
			  : connection_exchange(c, request, ret);

	for (int tries = 0; r == -ECONNRESET && c->broken && !c->ended && tries < TRIES_MAX;
	     tries++) {
		if (clock_monotonic_ms() - sent >= DIES_MS)
			tries = 0;
		r = hello_reconnect(c);
		if (r < 0)
			return r;
		*repeated = true;
		shorten_wait(wait, deadline);
		sent = clock_monotonic_ms();
		r = connection_exchange(c, request, ret);
	}
	shorten_wait(wait, deadline);
	return r;
}

int request_call(struct gpushm *c, const Gpushm__Proto__Request *request,
		 Gpushm__Proto__Reply **ret, bool *ret_repeated)
{
	bool repeated = false;
	int r = connection_check(c);

	if (r == 0) {
		lock_take(&c->lock, LOCK_CONNECTION);
		r = call(c, request, ret, &repeated);
		if (r < 0)
			request_done(c);
	}
	if (ret_repeated)
		*ret_repeated = repeated;
	return r;
}

void request_done(struct gpushm *c)
{
	frame_close_fds(&c->frame);
	lock_drop(&c->lock);
}

int request_violated(struct gpushm *c)
{
	c->ended = c->broken = true;
	request_done(c);
	return -EPROTO;
}

int request_read(struct gpushm *c, const Gpushm__Proto__Request *request,
		 int (*read)(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to),
		 void *to)
{
	Gpushm__Proto__Reply *reply;
	int r = request_call(c, request, &reply, NULL);

	if (r < 0)
		return r;
	r = read(c, reply, to);
	if (r == -EPROTO)
		return request_violated(c);
	request_done(c);
	return r;
}

int request_ack(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	Gpushm__Proto__Reply *reply;
	bool repeated;
	int r = request_call(c, request, &reply, &repeated);

	if (r == 0)
		request_done(c);
	return repeated && (r == -ENOENT || r == -EBADF) ? 0 : r;
}

int request_send_restart(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	Gpushm__Proto__Reply *reply;
	int r = connection_check(c);

	if (r < 0)
		return r;
	lock_take(&c->lock, LOCK_CONNECTION);
	r = c->broken ? hello_reconnect(c) : 0;
	if (r == 0)
		r = connection_exchange(c, request, &reply);
	if (r == -ECONNRESET && c->broken && !c->ended)
		r = hello_reconnect(c);
	request_done(c);
	return r;
}

int request_set_name(const char *name, protobuf_c_boolean *has, ProtobufCBinaryData *ret)
{
	if (!name)
		return error_set(EINVAL, "a buffer needs a name");
	if (strnlen(name, BUFFER_NAME_MAX + 1) > BUFFER_NAME_MAX)
		return error_set(EINVAL, "a buffer's name has at most %u bytes", BUFFER_NAME_MAX);
	*has = true;
	*ret = connection_bytes(name);
	return 0;
}

int request_check_replace(uint32_t flags)
{
	if (!(flags & ~GPUSHM_REPLACE))
		return 0;
	return error_set(EINVAL, "this libgpushm does not know the flags 0x%x",
			 flags & ~GPUSHM_REPLACE);
}
