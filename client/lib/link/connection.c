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
 * Nothing here connects or maps memory.
 */
#include "client/lib/link/connection.h"

#include "client/lib/base/error.h"
#include "client/lib/base/process.h"
#include "proto/base/own.h"
#include "proto/words.h"

int connection_check_fork(uint64_t generation)
{
	if (generation == process_generation())
		return 0;
	return error_set(ECHILD, "made before fork(): connect again in the child");
}

int connection_check(const struct gpushm *c)
{
	int r = error_null(c, "connection");

	return r < 0 ? r : connection_check_fork(c->generation);
}

int connection_new(int *fd, uid_t server, const char *path, struct gpushm **ret)
{
	struct gpushm *c = calloc(1, sizeof(*c));
	uint64_t generation = process_generation();

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

struct gpushm *connection_unref(struct gpushm *c)
{
	struct lease *l;

	if (!c || --c->refs > 0)
		return NULL;
	list_foreach (l, &c->leases, link)
		if (l->owned)
			free(l);
	for (struct pool_info *p = c->pools, *next; p; p = next) {
		next = p->next;
		map_pool_done(&p->map);
		close_fd(&p->pool_fd);
		free(p);
	}
	map_end();
	status_map_free(c->pages);
	free(c->path);
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

static const Gpushm__Proto__Reply__ResultCase replies[] = {
	[GPUSHM__PROTO__REQUEST__VERB_HELLO] = GPUSHM__PROTO__REPLY__RESULT_HELLO,
	[GPUSHM__PROTO__REQUEST__VERB_CREATE] = GPUSHM__PROTO__REPLY__RESULT_ATTACH,
	[GPUSHM__PROTO__REQUEST__VERB_DESCRIBE] = GPUSHM__PROTO__REPLY__RESULT_DESCRIBED,
	[GPUSHM__PROTO__REQUEST__VERB_PUBLISH] = GPUSHM__PROTO__REPLY__RESULT_PUBLISHED,
	[GPUSHM__PROTO__REQUEST__VERB_OPEN] = GPUSHM__PROTO__REPLY__RESULT_ATTACH,
	[GPUSHM__PROTO__REQUEST__VERB_CLOSE] = GPUSHM__PROTO__REPLY__RESULT_DONE,
	[GPUSHM__PROTO__REQUEST__VERB_UNLINK] = GPUSHM__PROTO__REPLY__RESULT_DONE,
	[GPUSHM__PROTO__REQUEST__VERB_STAT] = GPUSHM__PROTO__REPLY__RESULT_STAT,
	[GPUSHM__PROTO__REQUEST__VERB_LIST] = GPUSHM__PROTO__REPLY__RESULT_LIST,
	[GPUSHM__PROTO__REQUEST__VERB_POOLS] = GPUSHM__PROTO__REPLY__RESULT_POOLS,
	[GPUSHM__PROTO__REQUEST__VERB_STATUS] = GPUSHM__PROTO__REPLY__RESULT_STATUS,
	[GPUSHM__PROTO__REQUEST__VERB_CLEAN] = GPUSHM__PROTO__REPLY__RESULT_DONE,
	[GPUSHM__PROTO__REQUEST__VERB_FLUSH] = GPUSHM__PROTO__REPLY__RESULT_DONE,
	[GPUSHM__PROTO__REQUEST__VERB_WATCH] = GPUSHM__PROTO__REPLY__RESULT_WATCHED,
	/* A restart that succeeds hangs up: the only reply is an error. */
	[GPUSHM__PROTO__REQUEST__VERB_RESTART] = GPUSHM__PROTO__REPLY__RESULT_ERROR,
	[GPUSHM__PROTO__REQUEST__VERB_RECLAIM] = GPUSHM__PROTO__REPLY__RESULT_RECLAIMED,
	[GPUSHM__PROTO__REQUEST__VERB_RENAME] = GPUSHM__PROTO__REPLY__RESULT_DONE,
	[GPUSHM__PROTO__REQUEST__VERB_METRICS] = GPUSHM__PROTO__REPLY__RESULT_METRICS,
	[GPUSHM__PROTO__REQUEST__VERB_EVENTS] = GPUSHM__PROTO__REPLY__RESULT_EVENTS,
	[GPUSHM__PROTO__REQUEST__VERB_STREAM] = GPUSHM__PROTO__REPLY__RESULT_DONE,
	[GPUSHM__PROTO__REQUEST__VERB_JOIN] = GPUSHM__PROTO__REPLY__RESULT_JOINED,
	[GPUSHM__PROTO__REQUEST__VERB_PAGE] = GPUSHM__PROTO__REPLY__RESULT_PAGE,
	[GPUSHM__PROTO__REQUEST__VERB_DROP] = GPUSHM__PROTO__REPLY__RESULT_DONE,
	[GPUSHM__PROTO__REQUEST__VERB_STREAMS] = GPUSHM__PROTO__REPLY__RESULT_STREAMS,
};

static int fail(struct gpushm *c, int r, const char *what)
{
	c->broken = true;
	c->ended = c->ended || r == -EPROTO;
	if (r == -EPROTO)
		return error_set(EPROTO, "the daemon broke the protocol: %s", what);
	return error_set(ECONNRESET, "the daemon has gone (%s): connect again", strerror(-r));
}

/* These hold a few numbers and at most one checked name. To measure a message costs as much as to
 * pack it. */
static bool always_fits(const Gpushm__Proto__Request *request)
{
	return request->verb_case == GPUSHM__PROTO__REQUEST__VERB_OPEN ||
	       request->verb_case == GPUSHM__PROTO__REQUEST__VERB_CLOSE ||
	       request->verb_case == GPUSHM__PROTO__REQUEST__VERB_STAT;
}

/* 0; -EPIPE: the daemon has hung up; else -errno with gpushm_error() set. */
static int transmit(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	size_t n = always_fits(request) ? 0 : gpushm__proto__request__get_packed_size(request);
	int r;

	if (n > sizeof(c->sent))
		return error_set(EMSGSIZE, "the request has %zu bytes; a message has at most %u", n,
				 FRAME_MAX);
	c->expected = replies[request->verb_case];
	n = gpushm__proto__request__pack(request, c->sent);
	r = wire_send(c->socket, c->sent, n, NULL, 0, 0);
	if (r == -ENOMEM || r == -ENOBUFS)
		return error_set(-r, "can't send to the daemon: %s", strerror(-r));
	if (r == -EPIPE || r == -ECONNRESET)
		return -EPIPE;
	return r < 0 ? fail(c, r, "can't send") : 0;
}

int connection_send(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	int r = transmit(c, request);

	/* A daemon that has hung up may have said why: the reader finds that in the socket. */
	return r == -EPIPE ? 0 : r;
}

int connection_post(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	int r = c->broken ? -EPIPE : transmit(c, request);

	return r == -EPIPE ? -ECONNRESET : r;
}

static int receive(struct gpushm *c, int flags)
{
	/* Where a daemon that has hung up left our request unread, the kernel reports that once,
	 * ahead of what the daemon had sent (net/core/datagram.c). */
	int r = wire_recv(c->socket, &c->frame, flags);
	if (r == -ECONNRESET)
		r = wire_recv(c->socket, &c->frame, flags);
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
	if (reply->result_case != c->expected)
		return fail(c, -EPROTO, "its reply answers another request");
	*ret = reply;
	return 0;
}

static int end_lease(struct gpushm *c, uint64_t lease)
{
	Gpushm__Proto__Close close = GPUSHM__PROTO__CLOSE__INIT;
	Gpushm__Proto__Reply *reply;

	close.has_lease = close.has_discard = close.discard = true;
	close.lease = lease;
	return connection_exchange(c, request_with(CLOSE, close, &close), &reply);
}

/* A process at its limit of open files does not get this buffer, and keeps the others. */
static int drop_attach(struct gpushm *c)
{
	Gpushm__Proto__Reply *reply = unpack(c);
	bool attached = reply && reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ATTACH;
	bool pool = attached && reply->attach->pool_fd;

	if (attached)
		end_lease(c, reply->attach->lease);
	/* The daemon sends a pool's fd once a connection: a new connection gets it again. */
	c->broken = c->broken || pool;
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
	int r = connection_send(c, request);

	return r < 0 ? r : connection_receive(c, 0, ret);
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
	return from->has_kind && from->kind > 0 && from->kind < KINDS;
}
