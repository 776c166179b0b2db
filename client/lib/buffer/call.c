/* SPDX-License-Identifier: MIT
 *
 * gpushm_call: OPEN, CREATE and STAT for event loops. A call goes through the states below and
 * waits in none: what has not come is an fd that will be readable, and what is to be tried again is
 * a timer that will expire. Both are in an epoll, whose fd is the call's, so that it stays the same
 * when the connection gets another socket.
 *
 * While its request is in flight, the connection is the call's (gpushm::call); all else that a
 * connection does is in client/lib/link, and is the same for requests that block. A call that is
 * given up leaves a late reply.
 */
#include "client/gpushm_async.h"
#include "client/gpushm_private.h"
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/buffer/buffer.h"
#include "client/lib/link/hello.h"
#include "client/lib/link/request.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#define AGAIN_MS 5u /* until the next try of what no fd tells */

enum call_state {
	CALL_TO_SEND, /* the request is to be sent, or to be sent again */
	CALL_SENT,
	CALL_DONE,
};

struct gpushm_call {
	struct gpushm *c; /* a reference */
	int epoll, timer; /* owned */
	enum call_state state;
	Gpushm__Proto__Request *request; /* owned */
	uint64_t
		wait_until; /* ns, CLOCK_MONOTONIC: when the time of a wait in the daemon is over */
	uint64_t send_until;		    /* and that for sending it */
	uint64_t outage;		    /* of the daemon, hello.h */
	struct gpushm_open_options options; /* how the buffer is mapped */
	struct creation *creation;	    /* owned; CREATE only */
	struct gpushm_buffer *buffer; /* owned; NULL for STAT, after a failure, and once taken */
	int result;
	struct error why;
};

/* ---- the fds ---- */

static int add_fd(const struct gpushm_call *call, int fd)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLRDHUP };

	if (epoll_ctl(call->epoll, EPOLL_CTL_ADD, fd, &e) < 0 && errno != EEXIST)
		return error_set(errno, "can't wait for the daemon: %m");
	return 0;
}

static int open_fds(struct gpushm_call *call)
{
	call->epoll = epoll_create1(EPOLL_CLOEXEC);
	call->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (call->epoll < 0 || call->timer < 0)
		return error_set(errno, "can't make a call: %m");
	return add_fd(call, call->timer);
}

/* at: ns of CLOCK_MONOTONIC; UINT64_MAX: never. Returns GPUSHM_PENDING. */
static int wake_at(const struct gpushm_call *call, uint64_t at)
{
	struct itimerspec t = { 0 };

	if (at != UINT64_MAX) {
		t.it_value = clock_timespec(at);
		t.it_value.tv_nsec += at == 0;
	}
	timerfd_settime(call->timer, TFD_TIMER_ABSTIME, &t, NULL);
	return GPUSHM_PENDING;
}

static int again_soon(const struct gpushm_call *call)
{
	return wake_at(call, clock_deadline(AGAIN_MS));
}

/* ---- the states, with the connection's lock; GPUSHM_PENDING: there is no more to do now ---- */

/* -EAGAIN: there is no daemon that replies yet. */
static int resume(struct gpushm *c)
{
	struct pollfd p = { .fd = c->socket, .events = POLLIN };

	if (c->greeting && poll(&p, 1, 0) == 0)
		return -EAGAIN;
	return hello_resume(c, 0);
}

/* Of the daemon's first reply on this connection (gpushm_private_connect_later()). */
static int await_first(const struct gpushm_call *call)
{
	return clock_monotonic_ns() < call->send_until ? again_soon(call)
						       : connection_give_up(call->c, -ETIMEDOUT);
}

static int come_back(struct gpushm_call *call)
{
	struct gpushm *c = call->c;
	int r;

	if (c->ended)
		return error_set(ECONNRESET, "the connection to the daemon has ended: connect "
					     "again");
	outage_left(c, &call->outage);
	r = resume(c);
	if (connection_start_anew(c)) {
		call->send_until = connection_deadline(c, clock_monotonic_ns());
		return again_soon(call);
	}
	if (r == -EAGAIN && c->greeting && connection_is_new(c))
		return await_first(call);
	r = outage_report(c, r, &call->outage);
	if (r == -EAGAIN)
		return again_soon(call);
	call->outage = 0;
	call->send_until = connection_deadline(c, clock_monotonic_ns());
	return r;
}

static int send_request(struct gpushm_call *call)
{
	struct gpushm *c = call->c;
	int r = add_fd(call, c->socket);

	if (r == 0)
		r = connection_settle(c, 0);
	if (r == 0) {
		connection_shorten_wait(call->request, call->wait_until);
		r = connection_send(c, call->request, MSG_DONTWAIT);
	}
	if (r == -ETIMEDOUT && clock_monotonic_ns() < call->send_until)
		return again_soon(call);
	if (r < 0)
		return r;
	c->call = call;
	call->state = CALL_SENT;
	return 0;
}

/* The daemon says -EAGAIN, too, of a buffer that is not published. */
static int receive_reply(struct gpushm_call *call, Gpushm__Proto__Reply **ret)
{
	struct gpushm *c = call->c;
	int r = connection_receive(c, MSG_DONTWAIT, ret);
	bool is_there = r != -EAGAIN || c->frame.len > 0;

	if (!is_there && clock_monotonic_ns() < connection_due(c))
		return wake_at(call, connection_due(c));
	c->call = NULL;
	call->state = CALL_TO_SEND;
	if (!is_there)
		return connection_give_up(c, -ETIMEDOUT);
	/* Ends the leases that were closed meanwhile. */
	if (r == 0)
		connection_settle(c, 0);
	return r;
}

/* 0 with the reply in *ret, GPUSHM_PENDING, or an error. */
static int step(struct gpushm_call *call, Gpushm__Proto__Reply **ret)
{
	struct gpushm *c = call->c;

	for (;;) {
		int r = 0;

		if (c->broken)
			r = come_back(call);
		if (r != 0)
			return r;
		/* The connection was made again since, perhaps by another thread. */
		if (call->state == CALL_SENT && c->call != call)
			call->state = CALL_TO_SEND;
		if (call->state == CALL_TO_SEND)
			r = send_request(call);
		if (r == 0)
			r = receive_reply(call, ret);
		if (r != -ECONNRESET || !c->broken || c->ended)
			return r;
	}
}

/* ---- the result ---- */

/* Releases the lock. */
static int take_reply(struct gpushm_call *call, const Gpushm__Proto__Reply *reply)
{
	int r;

	if (!call->buffer) {
		request_done(call->c);
		return 0;
	}
	r = buffer_take(call->buffer, call->request, reply, &call->options);
	if (r == 0 && call->creation)
		creation_finish(call->creation, call->buffer);
	return r;
}

static int finish(struct gpushm_call *call, int r)
{
	call->state = CALL_DONE;
	call->result = r;
	error_keep(&call->why);
	if (r < 0) {
		client_buffer_free(call->buffer);
		call->buffer = NULL;
	}
	/* For the event loop that looks before it calls again. */
	wake_at(call, 0);
	return r;
}

static int check(const struct gpushm_call *call)
{
	int r = error_null(call, "call");

	return r < 0 ? r : connection_check_fork(call->c->generation);
}

int gpushm_call_process(struct gpushm_call *call)
{
	Gpushm__Proto__Reply *reply;
	int r = check(call);

	if (r < 0)
		return r;
	if (call->state == CALL_DONE) {
		error_put_back(&call->why);
		return call->result;
	}
	/* A thread that has the lock is in a request, or does what takes no time. */
	if (!lock_try(&call->c->lock, LOCK_CONNECTION))
		return again_soon(call);
	r = step(call, &reply);
	if (r == 0)
		return finish(call, take_reply(call, reply));
	request_done(call->c);
	return r == GPUSHM_PENDING ? r : finish(call, r);
}

struct gpushm_buffer *gpushm_call_buffer(struct gpushm_call *call)
{
	if (check(call) < 0 || call->state != CALL_DONE)
		return NULL;
	return take_ptr(call->buffer);
}

int gpushm_call_fd(const struct gpushm_call *call)
{
	int r = check(call);

	return r < 0 ? r : call->epoll;
}

/* ---- begin and end ---- */

bool gpushm_private_is_idle(struct gpushm *c)
{
	bool idle;

	/* A thread that has the lock is in a request for a buffer. */
	if (connection_check(c) < 0 || !lock_try(&c->lock, LOCK_CONNECTION))
		return false;
	idle = !outage_has_begun(c) && !c->call && !c->late && list_empty(&c->leases);
	lock_drop(&c->lock);
	return idle;
}

static void give_up(struct gpushm_call *call)
{
	error_guard();
	lock_take(&call->c->lock, LOCK_CONNECTION);
	if (call->c->call == call) {
		call->c->call = NULL;
		connection_give_up(call->c, -ETIMEDOUT);
	}
	lock_drop(&call->c->lock);
}

struct gpushm_call *gpushm_call_free(struct gpushm_call *call)
{
	/* In a forked child the call is the parent's, and is left alone. */
	if (!call || check(call) < 0)
		return NULL;
	if (call->state == CALL_SENT)
		give_up(call);
	if (call->state == CALL_DONE && call->buffer)
		buffer_discard(call->buffer);
	else
		client_buffer_free(call->buffer);
	if (call->creation)
		creation_done(call->creation);
	free(call->creation);
	if (call->request)
		gpushm__proto__request__free_unpacked(call->request, NULL);
	close_fd(&call->timer);
	close_fd(&call->epoll);
	connection_unref(call->c);
	free(call);
	return NULL;
}

/* The message borrows what is the caller's. */
static Gpushm__Proto__Request *copy(const Gpushm__Proto__Request *from)
{
	size_t n = gpushm__proto__request__get_packed_size(from);
	_cleanup_(free_ptr) unsigned char *packed = malloc(n);

	if (!packed)
		return NULL;
	gpushm__proto__request__pack(from, packed);
	return gpushm__proto__request__unpack(NULL, n, packed);
}

static int fill(struct gpushm_call *call, const Gpushm__Proto__Request *request, const char *name)
{
	const uint64_t *wait;

	call->request = copy(request);
	if (name)
		call->buffer = client_buffer_new(call->c, name);
	if (!call->request || (name && !call->buffer))
		return error_set(ENOMEM, "out of memory for a call");
	wait = connection_wait_of(call->request);
	call->wait_until = clock_deadline(wait ? *wait : 0);
	call->send_until = connection_deadline(call->c, clock_monotonic_ns());
	return open_fds(call);
}

/* name: of the buffer that the call brings; or NULL. Takes over k on success. */
static int begin(struct gpushm *c, const Gpushm__Proto__Request *request, const char *name,
		 const struct gpushm_open_options *o, struct creation *k, struct gpushm_call **ret)
{
	struct gpushm_call *call = calloc(1, sizeof(*call));
	int r;

	if (!call)
		return error_set(ENOMEM, "out of memory for a call");
	*call = (struct gpushm_call){ .c = connection_ref(c), .epoll = -1, .timer = -1 };
	if (o)
		call->options = *o;
	r = fill(call, request, name);
	if (r < 0) {
		gpushm_call_free(call);
		return r;
	}
	call->creation = k;
	/* An error comes with the first gpushm_call_process() of the caller. */
	gpushm_call_process(call);
	*ret = call;
	return 0;
}

int gpushm_send_open(struct gpushm *c, const char *name, enum gpushm_access access,
		     uint64_t timeout_ms, const struct gpushm_open_options *options,
		     struct gpushm_call **ret)
{
	Gpushm__Proto__Open open;
	struct gpushm_open_options o;
	int r = connection_check(c);

	if (r == 0)
		r = buffer_open_message(name, access, timeout_ms, options, &o, &open);
	return r < 0 ? r : begin(c, request_with(OPEN, open, &open), name, &o, NULL, ret);
}

int gpushm_send_create(struct gpushm *c, const char *name, uint64_t bytes,
		       const struct gpushm_create_options *options, struct gpushm_call **ret)
{
	struct gpushm_open_options mapped;
	struct creation *k = NULL;
	int r = connection_check(c);

	if (r < 0)
		return r;
	k = calloc(1, sizeof(*k));
	r = k ? creation_begin(k, name, bytes, options)
	      : error_set(ENOMEM, "out of memory for a call");
	if (r == 0) {
		mapped = buffer_mapped_as(&k->options);
		r = begin(c, request_with(CREATE, create, &k->message), name, &mapped, k, ret);
		if (r < 0)
			creation_done(k);
	}
	if (r < 0)
		free(k);
	return r;
}

int gpushm_send_wait(struct gpushm *c, const char *name, uint64_t timeout_ms,
		     struct gpushm_call **ret)
{
	Gpushm__Proto__Stat stat = GPUSHM__PROTO__STAT__INIT;
	int r = connection_check(c);

	if (r == 0)
		r = request_set_name(name, &stat.has_name, &stat.name);
	SET_SOME(&stat, wait_ms, timeout_ms);
	return r < 0 ? r : begin(c, request_with(STAT, stat, &stat), NULL, NULL, NULL, ret);
}
