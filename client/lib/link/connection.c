/* SPDX-License-Identifier: MIT
 *
 * One socket to the daemon, and the request that is in flight on it. The connection owns the
 * socket, the frame of the reply and the arena that the reply is decoded into. The caller may use
 * both under the lock until the next request.
 *
 * A reply is checked before any caller sees it: it must be of the request's kind, and must carry
 * exactly the fds that an attach counts, and no fds otherwise. A daemon that breaks this rule gets
 * no further request: its connection has ended. After a hang-up the next request reconnects
 * (hello.h).
 *
 * A request has a deadline. The socket's own (endpoint.h) bounds each call of the socket, so that a
 * reply in time costs no call more; only one that is late is waited for with poll(). A late reply
 * is still due on the socket, where the daemon allows one request in flight: the next request first
 * receives and drops it. What each request may have done by then is in the table of rules.
 *
 * Nothing here connects or maps memory.
 */
#include "client/lib/link/connection.h"

#include "client/gpushm_private.h"
#include "client/gpushm_query.h"
#include "client/lib/base/endpoint.h"
#include "client/lib/base/error.h"
#include "client/lib/base/process.h"
#include "proto/base/clock.h"
#include "proto/base/grow.h"
#include "proto/base/number.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>

/* Longer than the daemon needs to see that a driver call does not return (driver-timeout, 30 s), so
 * that it says so itself, and than a restart. */
#define TIMEOUT_MS 60000u
#define INTERRUPT_MS 100 /* between two looks whether a wait is to end */
#define AWAKE_NS 100000u /* a suspend asks for its reply before it sleeps */

int connection_check_fork(uint64_t generation)
{
	if (generation == process_generation())
		return 0;
	return error_set(ECHILD,
			 "made before fork(), and only the parent may talk to the daemon over it: "
			 "connect() in the child, and open() there what it needs");
}

int connection_check(const struct gpushm *c)
{
	int r = error_null(c, "connection");

	return r < 0 ? r : connection_check_fork(c->generation);
}

static int read_timeout(uint64_t *ret)
{
	const char *text = getenv("GPUSHM_TIMEOUT_MS");

	*ret = TIMEOUT_MS;
	if (!text || !*text || number_read(text, UINT64_MAX, ret))
		return 0;
	return error_set(EINVAL,
			 "GPUSHM_TIMEOUT_MS=%s: a number of milliseconds is allowed, 0: no limit",
			 text);
}

int connection_new(int *fd, uid_t server, const char *path, struct gpushm **ret)
{
	uint64_t generation = process_generation(), timeout_ms;
	int r = read_timeout(&timeout_ms);
	struct gpushm *c;

	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (c && path)
		c->path = strdup(path);
	if (!c || (path && !c->path) || generation == 0 || arena_init(&c->arena, UNPACK_MAX) < 0) {
		if (c)
			free(c->path);
		free(c);
		return error_set(ENOMEM, "out of memory for a connection");
	}
	c->refs = 1;
	c->generation = generation;
	c->timeout_ms = timeout_ms;
	c->server_uid = server;
	list_init(&c->leases);
	pthread_mutex_init(&c->lock, NULL);
	c->socket = take_fd(fd);
	map_begin();
	*ret = c;
	return 0;
}

struct gpushm *connection_ref(struct gpushm *c)
{
	c->refs++;
	return c;
}

static void free_pools(struct gpushm *c)
{
	for (struct pool_info *p = take_ptr(c->pools), *next; p; p = next) {
		next = p->next;
		map_pool_done(&p->map);
		close_fd(&p->pool_fd);
		free(p);
	}
}

bool connection_start_anew(struct gpushm *c)
{
	if (!c->ended || !c->calls_only || c->session == 0 || !list_empty(&c->leases))
		return false;
	free_pools(c);
	c->session = 0;
	c->ended = false;
	c->broken = c->wait_for_successor = true;
	return true;
}

struct gpushm *connection_unref(struct gpushm *c)
{
	struct lease *l;

	if (!c || --c->refs > 0)
		return NULL;
	list_foreach (l, &c->leases, link)
		if (l->owned)
			free(l);
	gpushm_watch_free(c->wanted);
	free_pools(c);
	map_end();
	status_map_free(c->pages);
	free(c->path);
	free(c->ended_leases);
	close_fd(&c->socket);
	arena_done(&c->arena);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return NULL;
}

struct pool_info *connection_pool(const struct gpushm *c, uint32_t id)
{
	struct pool_info *p = c->pools;

	while (p && p->id != id)
		p = p->next;
	return p;
}

/* ---- one request, one reply ---- */

/* What is known where no reply came in time. */
enum fate {
	ASKS,	 /* the request changes nothing that outlives the connection */
	BRINGS,	 /* a late reply brings a lease, which is given back then */
	CHANGES, /* the daemon has carried it out, will do so, or has refused it */
};

static const struct request_rule {
	const char *name;
	Gpushm__Proto__Reply__ResultCase reply;
	enum fate fate;
} rules[] = {
#define VERB(v) GPUSHM__PROTO__REQUEST__VERB_##v
#define RULE(v, result, fate) [VERB(v)] = { #v, GPUSHM__PROTO__REPLY__RESULT_##result, fate }
	RULE(HELLO, HELLO, ASKS),
	RULE(CREATE, ATTACH, BRINGS),
	RULE(DESCRIBE, DESCRIBED, CHANGES),
	RULE(PUBLISH, PUBLISHED, CHANGES),
	RULE(OPEN, ATTACH, BRINGS),
	RULE(CLOSE, DONE, CHANGES),
	RULE(UNLINK, DONE, CHANGES),
	RULE(STAT, STAT, ASKS),
	RULE(LIST, LIST, ASKS),
	RULE(POOLS, POOLS, ASKS),
	RULE(STATUS, STATUS, ASKS),
	RULE(CLEAN, DONE, CHANGES),
	RULE(FLUSH, DONE, CHANGES),
	RULE(WATCH, WATCHED, ASKS),
	RULE(RESTART, ERROR, CHANGES), /* one that succeeds hangs up: the only reply is an error */
	RULE(RECLAIM, RECLAIMED, ASKS),
	RULE(RENAME, DONE, CHANGES),
	RULE(METRICS, METRICS, ASKS),
	RULE(EVENTS, EVENTS, ASKS),
	RULE(STREAM, DONE, CHANGES),
	RULE(JOIN, JOINED, CHANGES),
	RULE(PAGE, PAGE, ASKS),
	RULE(DROP, DONE, CHANGES),
	RULE(STREAMS, STREAMS, ASKS),
	RULE(SUSPEND, DONE, ASKS),
	RULE(RESUME, ATTACH, ASKS),
	RULE(EVICT, DONE, CHANGES),
	RULE(KEEP, DONE, CHANGES),
	RULE(ASK, DONE, CHANGES),
	RULE(PARK, DONE, CHANGES),
#undef RULE
#undef VERB
};

static int fail(struct gpushm *c, int r, const char *what)
{
	c->broken = true;
	c->ended = c->ended || r == -EPROTO;
	if (r == -EPROTO)
		return error_set(EPROTO, "the daemon broke the protocol: %s", what);
	return error_set(ECONNRESET, "the daemon has gone (%s): connect again", strerror(-r));
}

/* ---- time ---- */

uint64_t *connection_wait_of(const Gpushm__Proto__Request *request)
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

void connection_shorten_wait(const Gpushm__Proto__Request *request, uint64_t until)
{
	uint64_t *wait = connection_wait_of(request);

	if (wait)
		*wait = clock_wait_left_ms(*wait, until);
}

/* To pin or to clear memory takes up to 0.7 s for a GiB. */
static uint64_t own_ms(const Gpushm__Proto__Request *request)
{
	const uint64_t *wait = connection_wait_of(request);
	uint64_t ms = wait ? *wait : 0;

	if (request->verb_case != GPUSHM__PROTO__REQUEST__VERB_CREATE)
		return ms;
	return __builtin_add_overflow(ms, request->create->size_bytes >> 20, &ms) ? UINT64_MAX : ms;
}

static uint64_t timeout(const struct gpushm *c)
{
	uint64_t ms = c->timeout_ms;

	return c->most_ms && (ms == 0 || c->most_ms < ms) ? c->most_ms : ms;
}

uint64_t connection_deadline(const struct gpushm *c, uint64_t since)
{
	uint64_t ms = timeout(c);

	return ms ? clock_after(since, ms) : UINT64_MAX;
}

uint64_t connection_due(const struct gpushm *c)
{
	return clock_after(connection_deadline(c, c->sent_at), c->own_ms);
}

static int (*_Atomic interrupted)(void);

void gpushm_private_on_interrupt(int (*is_interrupted)(void))
{
	interrupted = is_interrupted;
}

/* 0: the socket is ready, or the peer has gone. */
static int await(const struct gpushm *c, short events, uint64_t until)
{
	int (*is_interrupted)(void) = interrupted;
	int most = is_interrupted ? INTERRUPT_MS : INT_MAX;
	struct pollfd p = { .fd = c->socket, .events = events };
	uint64_t left;

	while ((left = clock_left_ms(until)) > 0) {
		if (poll(&p, 1, left < (uint64_t)most ? (int)left : most) > 0)
			return 0;
		if (is_interrupted && is_interrupted())
			return -EINTR;
	}
	return -ETIMEDOUT;
}

/* Returns r. */
static int no_reply(const struct gpushm *c, int r, uint64_t ms, const char *what, const char *fate)
{
	char process[160];

	if (r == -EINTR)
		return error_set(EINTR, "a signal has ended the wait for the daemon's reply%s",
				 fate);
	endpoint_describe_daemon(c->socket, c->daemon_pid, process, sizeof(process));
	return error_no_reply(error_set(ETIMEDOUT,
					"the daemon has not %s within %" PRIu64 " ms: %s%s", what,
					ms, process, fate));
}

int connection_give_up(struct gpushm *c, int r)
{
	static const char *const fates[] = {
		[ASKS] = "",
		[BRINGS] = "; a buffer that it still brings is given back",
		[CHANGES] = "; it may still do what was asked: look before you repeat it",
	};
	const struct request_rule *rule = &rules[c->verb];
	char what[48];

	c->late = true;
	snprintf(what, sizeof(what), "replied to %s", rule->name);
	return no_reply(c, r, timeout(c) + c->own_ms, what, fates[rule->fate]);
}

/* ---- sending ---- */

/* These hold a few numbers and at most one checked name. To measure a message costs as much as to
 * pack it. */
static bool always_fits(const Gpushm__Proto__Request *request)
{
	return request->verb_case == GPUSHM__PROTO__REQUEST__VERB_OPEN ||
	       request->verb_case == GPUSHM__PROTO__REQUEST__VERB_CLOSE ||
	       request->verb_case == GPUSHM__PROTO__REQUEST__VERB_STAT;
}

/* Quiet CLOSEs that the daemon has not read may fill the socket. */
static int send_in_time(struct gpushm *c, size_t n, uint64_t until)
{
	int r = wire_send(c->socket, c->sent, n, NULL, 0, until ? 0 : MSG_DONTWAIT);

	while (r == -EAGAIN || r == -EINTR) {
		r = await(c, POLLOUT, until);
		if (r < 0)
			return no_reply(c, r, timeout(c), "read what was sent before",
					"; this request was not sent");
		r = wire_send(c->socket, c->sent, n, NULL, 0, MSG_DONTWAIT);
	}
	return r;
}

/* 0; -EPIPE: the daemon has hung up; else -errno with gpushm_error() set. */
static int transmit(struct gpushm *c, const Gpushm__Proto__Request *request, uint64_t until)
{
	size_t n = always_fits(request) ? 0 : gpushm__proto__request__get_packed_size(request);
	int r;

	if (n > sizeof(c->sent))
		return error_set(EMSGSIZE, "the request has %zu bytes; a message has at most %u", n,
				 FRAME_MAX);
	n = gpushm__proto__request__pack(request, c->sent);
	r = send_in_time(c, n, until);
	if (r == -ENOMEM || r == -ENOBUFS)
		return error_set(-r, "can't send to the daemon: %s", strerror(-r));
	if (r == -EPIPE || r == -ECONNRESET)
		return -EPIPE;
	if (r == -ETIMEDOUT || r == -EINTR)
		return r;
	return r < 0 ? fail(c, r, "can't send") : 0;
}

int connection_send(struct gpushm *c, const Gpushm__Proto__Request *request, int flags)
{
	bool waits = !(flags & MSG_DONTWAIT);
	int r;

	c->verb = request->verb_case;
	c->own_ms = own_ms(request);
	c->sent_at = clock_monotonic_ns();
	r = transmit(c, request, waits ? connection_deadline(c, c->sent_at) : 0);
	/* A daemon that has hung up may have said why: the reader finds that in the socket. */
	return r == -EPIPE ? 0 : r;
}

/* ---- leases that end ---- */

static int send_close(struct gpushm *c, uint64_t lease, bool discard, uint64_t until)
{
	Gpushm__Proto__Close close = GPUSHM__PROTO__CLOSE__INIT;
	int r;

	SET(&close, lease, lease);
	SET(&close, quiet, true);
	SET_SOME(&close, discard, discard);
	r = transmit(c, request_with(CLOSE, close, &close), until);
	return r == -EPIPE ? -ECONNRESET : r;
}

/* Without memory for its number the lease ends with this socket: the next connection does not
 * reclaim it. */
static void end_later(struct gpushm *c, uint64_t lease, bool discard)
{
	struct ended_lease *list = grow(c->ended_leases, c->n_ended_leases, sizeof(*list));

	if (!list) {
		c->broken = true;
		return;
	}
	list[c->n_ended_leases++] = (struct ended_lease){ lease, discard };
	c->ended_leases = list;
}

static int end_leases(struct gpushm *c, uint64_t until)
{
	while (c->n_ended_leases > 0) {
		const struct ended_lease *e = &c->ended_leases[c->n_ended_leases - 1];
		int r = send_close(c, e->id, e->discard, until);

		if (r < 0) {
			c->broken = c->broken || r == -ECONNRESET;
			return r;
		}
		c->n_ended_leases--;
	}
	return 0;
}

void connection_send_quiet(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	if (!c->broken && connection_settle(c, 0) == 0)
		transmit(c, request, 0);
}

int connection_end_lease(struct gpushm *c, uint64_t lease, bool discard)
{
	bool waits = !c->late && c->n_ended_leases == 0;
	int r = c->broken ? -ECONNRESET : connection_settle(c, 0);

	if (r == 0)
		r = send_close(c, lease, discard,
			       waits ? connection_deadline(c, clock_monotonic_ns()) : 0);
	if (r != -ETIMEDOUT && r != -EINTR && r != -EBUSY)
		return r;
	end_later(c, lease, discard);
	return 0;
}

/* ---- receiving ---- */

static int receive_once(struct gpushm *c, int flags)
{
	/* Where a daemon that has hung up left our request unread, the kernel reports that once,
	 * ahead of what the daemon had sent (net/core/datagram.c). */
	int r = wire_recv(c->socket, &c->frame, flags);
	if (r == -ECONNRESET)
		r = wire_recv(c->socket, &c->frame, flags);
	return r;
}

/* The memory is unmapped already, and the daemon is quick: asleep, this thread would wake up later
 * than the reply comes. It yields, because the kernel may wake the daemon on this processor. */
static int receive_awake(struct gpushm *c)
{
	int r;

	while ((r = receive_once(c, MSG_DONTWAIT)) == -EAGAIN &&
	       clock_monotonic_ns() - c->sent_at < AWAKE_NS)
		sched_yield();
	return r;
}

static int receive(struct gpushm *c, int flags)
{
	int r = c->verb == GPUSHM__PROTO__REQUEST__VERB_SUSPEND ? receive_awake(c) : -EAGAIN;

	if (r == -EAGAIN)
		r = receive_once(c, flags);
	while ((r == -EAGAIN || r == -EINTR) && !(flags & MSG_DONTWAIT)) {
		r = await(c, POLLIN, connection_due(c));
		if (r < 0)
			return connection_give_up(c, r);
		r = receive_once(c, MSG_DONTWAIT);
	}
	if (r < 0 && r != -EAGAIN && r != -EMFILE)
		return fail(c, r, "its reply was cut, or came with too many file descriptors");
	return r;
}

static bool attach_counts(const Gpushm__Proto__Attach *a)
{
	return a->fds == (uint32_t) !!a->memory_fd + !!a->pool_fd + !!a->table_fd &&
	       !(a->memory_fd && a->pool_fd);
}

/* Only HELLO, PAGE and an attach carry fds, and exactly those that they count. */
static bool fds_are_right(const struct gpushm *c, const Gpushm__Proto__Reply *reply)
{
	if (reply->result_case == GPUSHM__PROTO__REPLY__RESULT_HELLO)
		return c->frame.n_fds == (size_t)reply->hello->board_fd;
	if (reply->result_case == GPUSHM__PROTO__REPLY__RESULT_PAGE)
		return c->frame.n_fds == 1;
	if (reply->result_case != GPUSHM__PROTO__REPLY__RESULT_ATTACH)
		return c->frame.n_fds == 0;
	return attach_counts(reply->attach) && c->frame.n_fds == reply->attach->fds;
}

static Gpushm__Proto__Reply *unpack(struct gpushm *c)
{
	arena_reset(&c->arena);
	return gpushm__proto__reply__unpack(&c->arena.allocator, c->frame.len, c->frame.data);
}

static int read_reply(struct gpushm *c, Gpushm__Proto__Reply **ret)
{
	Gpushm__Proto__Reply *reply = unpack(c);

	if (!reply)
		return fail(c, -EPROTO, "its reply can't be decoded");
	if (!fds_are_right(c, reply))
		return fail(c, -EPROTO,
			    "its reply came with other file descriptors than it counts");
	if (reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ERROR)
		return error_set_remote((int)reply->error->code, reply->error->message.data,
					reply->error->has_message ? reply->error->message.len : 0);
	if (reply->result_case != rules[c->verb].reply)
		return fail(c, -EPROTO, "its reply answers another request");
	*ret = reply;
	return 0;
}

/* Nobody uses this attach. The daemon sends a pool's fd once a connection: what has no place for it
 * here gets it again on a new connection. */
static void give_back(struct gpushm *c, const Gpushm__Proto__Attach *a)
{
	struct pool_info *pool = connection_pool(c, a->pool);

	if (a->pool_fd && c->frame.n_fds > 0 && pool && kind_opens_pool(pool->map.kind) &&
	    pool->pool_fd < 0)
		pool->pool_fd = take_fd(&c->frame.fds[0]);
	else if (a->pool_fd)
		c->broken = true;
	if (rules[c->verb].fate == BRINGS)
		end_later(c, a->lease, true);
}

/* A process at its limit of open files does not get this buffer, and keeps the others. */
static int drop_attach(struct gpushm *c)
{
	Gpushm__Proto__Reply *reply = unpack(c);

	if (reply && reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ATTACH)
		give_back(c, reply->attach);
	if (!c->broken)
		end_leases(c, connection_due(c));
	return error_set(EMFILE, "this process has no room for the file descriptors that the "
				 "daemon sent: close some, or raise its limit (ulimit -n)");
}

int connection_receive(struct gpushm *c, int flags, Gpushm__Proto__Reply **ret)
{
	int r = receive(c, flags);

	if (r == -EMFILE)
		return drop_attach(c);
	return r < 0 ? r : read_reply(c, ret);
}

int connection_exchange(struct gpushm *c, const Gpushm__Proto__Request *request,
			Gpushm__Proto__Reply **ret)
{
	int r = connection_send(c, request, 0);

	return r < 0 ? r : connection_receive(c, 0, ret);
}

/* ---- late replies ---- */

/* The reply is read and checked as if somebody waited for it. */
static int drop_late(struct gpushm *c, uint64_t until)
{
	Gpushm__Proto__Reply *reply;
	int r;

	while ((r = receive(c, MSG_DONTWAIT)) == -EAGAIN) {
		r = await(c, POLLIN, until);
		if (r < 0)
			return no_reply(c, r, timeout(c), "replied to an earlier request",
					"; this one was not sent");
	}
	if (r < 0 && r != -EMFILE)
		return r;
	c->late = false;
	if (r == -EMFILE)
		drop_attach(c);
	else if (read_reply(c, &reply) == 0 &&
		 reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ATTACH)
		give_back(c, reply->attach);
	frame_close_fds(&c->frame);
	return !c->broken ? 0 : c->ended ? -EPROTO : -ECONNRESET;
}

int connection_settle(struct gpushm *c, uint64_t until)
{
	int r;

	if (c->call)
		return error_set(EBUSY,
				 "a gpushm_call is under way on this connection, which has it "
				 "to itself: use another connection");
	r = c->late ? drop_late(c, until) : 0;
	return r < 0 || c->n_ended_leases == 0 ? r : end_leases(c, until);
}

int gpushm_set_timeout(struct gpushm *c, uint64_t timeout_ms)
{
	int r = connection_check(c);

	if (r == 0)
		c->timeout_ms = timeout_ms;
	return r;
}

int gpushm_fd(const struct gpushm *c)
{
	int r = connection_check(c);

	return r < 0 ? r : c->socket;
}

/* ---- the fields of a reply ---- */

/* Protobuf checks only the shape of a message: its decoder accepts an absent field, an enum out of
 * range, and bytes of any length with NULs in them. So each field is checked here before it is
 * used. A broken daemon then is an error, and not a truncated name or a pool that does not exist.
 */

static int nonsense(const char *what)
{
	return error_set(EPROTO, "the daemon's reply makes no sense: %s", what);
}

int decode_text(const char *what, protobuf_c_boolean has, ProtobufCBinaryData from, char *ret,
		size_t size)
{
	size_t n = has ? from.len : 0;

	if (n >= size || (n > 0 && memchr(from.data, '\0', n)))
		return nonsense(what);
	if (n > 0)
		memcpy(ret, from.data, n);
	ret[n] = '\0';
	return 0;
}

int decode_bytes(const char *what, protobuf_c_boolean has, ProtobufCBinaryData from,
		 unsigned char *ret, size_t n)
{
	if (!has || from.len != n)
		return nonsense(what);
	memcpy(ret, from.data, n);
	return 0;
}

int decode_state(protobuf_c_boolean has, int from, enum gpushm_state *ret)
{
	if (!has || from < GPUSHM_FILLING || from > GPUSHM_SHARED)
		return nonsense("state");
	*ret = (enum gpushm_state)from;
	return 0;
}

int decode_access(protobuf_c_boolean has, int from, enum gpushm_access *ret)
{
	if (!has || (from != GPUSHM_READ && from != GPUSHM_WRITE))
		return nonsense("access");
	*ret = (enum gpushm_access)from;
	return 0;
}

bool decode_kind_known(const Gpushm__Proto__Pool *from)
{
	return from->has_kind && (unsigned)from->kind - 1 < KIND_END - 1u;
}
