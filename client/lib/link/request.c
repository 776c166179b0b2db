/* SPDX-License-Identifier: MIT
 *
 * Where a daemon dies or restarts before it has replied, the connection comes back to its successor
 * (hello.h) and the request is sent again. A request that removes something may then have been
 * carried out by the first daemon: the second one's "not found" is a success.
 */
#include "client/lib/link/request.h"

#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/base/result.h"
#include "client/lib/link/hello.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#define TRIES_MAX 16	   /* daemons that may die of one request */
#define DIES_NS 100000000u /* within that time; one that lives longer dies of something else */

/* since: when the caller began to wait, also for another thread's request. */
static int call(struct gpushm *c, const Gpushm__Proto__Request *request, uint64_t since,
		Gpushm__Proto__Reply **ret, unsigned *sends)
{
	const uint64_t *wait = connection_wait_of(request);
	uint64_t end = wait ? clock_deadline(*wait) : 0;
	int r = c->broken ? error_set(ECONNRESET,
				      "the connection to the daemon has ended: connect again")
			  : connection_settle(c, connection_deadline(c, since));

	if (r == 0) {
		++*sends;
		r = connection_exchange(c, request, ret);
	}
	for (int tries = 0; r == -ECONNRESET && c->broken && !c->ended && tries < TRIES_MAX;
	     tries++) {
		if (*sends > 0 && clock_monotonic_ns() - c->sent_at >= DIES_NS)
			tries = 0;
		r = hello_reconnect(c);
		if (r < 0)
			return r;
		++*sends;
		connection_shorten_wait(request, end);
		r = connection_exchange(c, request, ret);
	}
	connection_shorten_wait(request, end);
	return r;
}

static int call_locked(struct gpushm *c, uint64_t ms, const Gpushm__Proto__Request *request,
		       uint64_t since, Gpushm__Proto__Reply **ret, unsigned *ret_sends)
{
	int r;

	c->most_ms = ms;
	r = call(c, request, since, ret, ret_sends);
	c->most_ms = 0;
	if (r < 0)
		request_done(c);
	return r;
}

/* ms: waits for the reply no longer than that; 0: without that limit. */
static int call_within(struct gpushm *c, uint64_t ms, const Gpushm__Proto__Request *request,
		       Gpushm__Proto__Reply **ret, unsigned *ret_sends)
{
	uint64_t since = clock_monotonic_ns();
	unsigned sends = 0;
	int r = connection_check(c);

	if (r == 0) {
		lock_take(&c->lock, LOCK_CONNECTION);
		r = call_locked(c, ms, request, since, ret, &sends);
	}
	if (ret_sends)
		*ret_sends = sends;
	return r;
}

int request_call(struct gpushm *c, const Gpushm__Proto__Request *request,
		 Gpushm__Proto__Reply **ret, unsigned *ret_sends)
{
	return call_within(c, 0, request, ret, ret_sends);
}

bool request_in_doubt(int r, unsigned sends)
{
	return (r == -ETIMEDOUT || r == -EINTR) && sends > 0;
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

int request_read_within(struct gpushm *c, uint64_t ms, const Gpushm__Proto__Request *request,
			int (*read)(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to),
			void *to)
{
	Gpushm__Proto__Reply *reply;
	int r = call_within(c, ms, request, &reply, NULL);

	if (r < 0)
		return r;
	r = read(c, reply, to);
	if (r == -EPROTO)
		return request_violated(c);
	request_done(c);
	return r;
}

int request_read(struct gpushm *c, const Gpushm__Proto__Request *request,
		 int (*read)(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to),
		 void *to)
{
	return request_read_within(c, 0, request, read, to);
}

int request_one(struct gpushm *c, const Gpushm__Proto__Request *request,
		int (*read)(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to),
		void *ret)
{
	_cleanup_(result_done) struct result result = { 0 };
	int r = request_read(c, request, read, &result);

	if (r == 0)
		*(void **)ret = result_one(&result);
	return r;
}

int request_ack_within(struct gpushm *c, uint64_t ms, const Gpushm__Proto__Request *request)
{
	Gpushm__Proto__Reply *reply;
	unsigned sends;
	int r = call_within(c, ms, request, &reply, &sends);

	if (r == 0)
		request_done(c);
	return sends > 1 && (r == -ENOENT || r == -EBADF) ? 0 : r;
}

int request_ack(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	return request_ack_within(c, 0, request);
}

int request_ack_unless_busy(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	Gpushm__Proto__Reply *reply;
	unsigned sends = 0;
	int r = connection_check(c);

	if (r < 0)
		return r;
	if (!lock_try(&c->lock, LOCK_CONNECTION))
		return -EBUSY;
	r = call_locked(c, 0, request, clock_monotonic_ns(), &reply, &sends);
	if (r == 0)
		request_done(c);
	return r;
}

int request_send_restart(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	Gpushm__Proto__Reply *reply;
	int r = connection_check(c);

	if (r < 0)
		return r;
	lock_take(&c->lock, LOCK_CONNECTION);
	r = c->broken ? hello_reconnect(c)
		      : connection_settle(c, connection_deadline(c, clock_monotonic_ns()));
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
