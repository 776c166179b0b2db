/* SPDX-License-Identifier: MIT
 *
 * One socket to the daemon, and the request that is in flight on it. It owns the socket, the frame
 * of the reply and the arena that the reply is decoded into, and lends both to who made the call,
 * under the lock, until connection_done(). What it knows of the pools it was told at HELLO.
 *
 * A reply is held against the attach law before anybody sees it: exactly the fds that an attach
 * counts, and none with anything else. A daemon that breaks it, or hangs up, is not asked again:
 * the connection is broken for good, and its user connects anew.
 *
 * It never connects by itself, and maps nothing.
 */
#include "client/link/connection.h"

#include "client/base/error.h"
#include "client/base/process.h"
#include "client/link/reconnect.h"
#include "proto/base/own.h"

#define TRIES_MAX 16 /* daemons that one request may see die */

int connection_check_fork(uint64_t generation)
{
	if (generation == state_generation())
		return 0;
	return error_set(ECHILD, "made before fork(): connect again in the child");
}

int connection_new(int *fd, uid_t server, const char *path, struct gpushm **ret)
{
	struct gpushm *c = calloc(1, sizeof(*c));
	uint64_t generation = state_generation();

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
	list_init(&c->held);
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
	struct held *h;

	if (!c || --c->refs > 0)
		return NULL;
	list_foreach (h, &c->held, link)
		if (h->stranded)
			free(h);
	for (struct pool_info *p = c->pools, *next; p; p = next) {
		next = p->next;
		map_pool_done(&p->map);
		close_fd(&p->pool_fd);
		free(p);
	}
	map_end();
	notice_unmap(c->boards);
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

int connection_check_name(const char *name)
{
	if (!name)
		return error_set(EINVAL, "a buffer needs a name");
	if (strnlen(name, BUFFER_NAME_MAX + 1) > BUFFER_NAME_MAX)
		return error_set(EINVAL, "a buffer's name has at most %u bytes", BUFFER_NAME_MAX);
	return 0;
}

/* ---- one request, one reply ---- */

static int broken(struct gpushm *c, int r, const char *what)
{
	c->broken = true;
	c->over = c->over || r == -EPROTO;
	if (r == -EPROTO)
		return error_set(EPROTO, "the daemon broke the protocol: %s", what);
	return error_set(ECONNRESET, "the daemon has gone (%s): connect again", strerror(-r));
}

/* A few numbers, and a name that connection_check_name() has seen. To measure a message costs as
 * much as to pack it. */
static bool fits(const Gpushm__Proto__Request *request)
{
	return request->verb_case == GPUSHM__PROTO__REQUEST__VERB_OPEN ||
	       request->verb_case == GPUSHM__PROTO__REQUEST__VERB_CLOSE ||
	       request->verb_case == GPUSHM__PROTO__REQUEST__VERB_STAT;
}

/* 0; -EPIPE: the daemon has hung up; else -errno with gpushm_error() set. */
static int transmit(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	size_t n = fits(request) ? 0 : gpushm__proto__request__get_packed_size(request);
	int r;

	if (n > sizeof(c->sent))
		return error_set(EMSGSIZE, "the request has %zu bytes; a message has at most %u", n,
				 FRAME_MAX);
	n = gpushm__proto__request__pack(request, c->sent);
	r = wire_send(c->socket, c->sent, n, NULL, 0, 0);
	if (r == -ENOMEM || r == -ENOBUFS)
		return error_set(-r, "can't send to the daemon: %s", strerror(-r));
	if (r == -EPIPE || r == -ECONNRESET)
		return -EPIPE;
	return r < 0 ? broken(c, r, "can't send") : 0;
}

int connection_send(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	int r = transmit(c, request);

	/* A daemon that has hung up may have said why before: whoever reads, finds out. */
	return r == -EPIPE ? 0 : r;
}

int connection_post(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	int r = c->broken ? -EPIPE : transmit(c, request);

	return r == -EPIPE ? -ECONNRESET : r;
}

static int receive(struct gpushm *c, int flags)
{
	int r;

	/* Where a daemon that has hung up left our request unread, the kernel tells of that once,
	 * ahead of what it had sent (net/core/datagram.c). */
	r = wire_recv(c->socket, &c->frame, flags);
	if (r == -ECONNRESET)
		r = wire_recv(c->socket, &c->frame, flags);
	if (r < 0 && r != -EAGAIN && r != -EMFILE)
		return broken(c, r, "its reply was cut, or came with too many file descriptors");
	return r;
}

static bool attach_counts(const Gpushm__Proto__Attach *a)
{
	return a->fds == (uint32_t) !!a->memory_fd + !!a->pool_fd + !!a->table_fd &&
	       !(a->memory_fd && a->pool_fd);
}

/* The attach law. */
static bool fds_are_lawful(const struct gpushm *c, const Gpushm__Proto__Reply *reply)
{
	if (reply->result_case == GPUSHM__PROTO__REPLY__RESULT_HELLO)
		return c->frame.n_fds == (size_t)reply->hello->board_fd;
	if (reply->result_case != GPUSHM__PROTO__REPLY__RESULT_ATTACH)
		return c->frame.n_fds == 0;
	return attach_counts(reply->attach) && c->frame.n_fds == reply->attach->fds;
}

/* Decodes what has come. */
static Gpushm__Proto__Reply *unpack(struct gpushm *c)
{
	arena_reset(&c->arena);
	return gpushm__proto__reply__unpack(&c->arena.allocator, c->frame.len, c->frame.data);
}

static int read_reply(struct gpushm *c, Gpushm__Proto__Reply__ResultCase expected,
		      Gpushm__Proto__Reply **ret)
{
	Gpushm__Proto__Reply *reply = unpack(c);

	if (!reply)
		return broken(c, -EPROTO, "its reply can't be decoded");
	if (!fds_are_lawful(c, reply))
		return broken(c, -EPROTO,
			      "its reply came with other file descriptors than it counts");
	if (reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ERROR)
		return error_set_remote((int)reply->error->code, reply->error->message.data,
					reply->error->has_message ? reply->error->message.len : 0);
	if (reply->result_case != expected)
		return broken(c, -EPROTO, "its reply answers another request");
	*ret = reply;
	return 0;
}

static int end_lease(struct gpushm *c, uint64_t lease)
{
	Gpushm__Proto__Close close = GPUSHM__PROTO__CLOSE__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	Gpushm__Proto__Reply *reply;

	close.has_lease = true;
	close.lease = lease;
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_CLOSE;
	request.close = &close;
	return connection_exchange(c, &request, GPUSHM__PROTO__REPLY__RESULT_DONE, &reply);
}

/* A process that has as many files open as it may is refused one buffer, and keeps the others. */
static int forgo(struct gpushm *c)
{
	Gpushm__Proto__Reply *reply = unpack(c);
	bool attached = reply && reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ATTACH;
	bool pool = attached && reply->attach->pool_fd;

	if (attached)
		end_lease(c, reply->attach->lease);
	/* A pool's comes once a connection: who comes back is given it again. */
	c->broken = c->broken || pool;
	return error_set(EMFILE, "this process has no room for the file descriptors that the "
				 "daemon sent: close some, or raise its limit (ulimit -n)");
}

int connection_receive(struct gpushm *c, Gpushm__Proto__Reply__ResultCase expected, int flags,
		       Gpushm__Proto__Reply **ret)
{
	int r = receive(c, flags);

	if (r == -EMFILE)
		return forgo(c);
	return r < 0 ? r : read_reply(c, expected, ret);
}

int connection_exchange(struct gpushm *c, const Gpushm__Proto__Request *request,
			Gpushm__Proto__Reply__ResultCase expected, Gpushm__Proto__Reply **ret)
{
	int r = connection_send(c, request);

	return r < 0 ? r : connection_receive(c, expected, 0, ret);
}

static int call(struct gpushm *c, const Gpushm__Proto__Request *request,
		Gpushm__Proto__Reply__ResultCase expected, Gpushm__Proto__Reply **ret,
		bool *ret_again)
{
	int r = c->broken ? error_set(ECONNRESET,
				      "the connection to the daemon has ended: connect again")
			  : connection_exchange(c, request, expected, ret);

	/* It may die again before it has answered, and come back again; but what it dies of each
	 * time is not asked for ever. */
	for (int tries = 0; r == -ECONNRESET && c->broken && !c->over && tries < TRIES_MAX;
	     tries++) {
		r = reconnect(c);
		if (r < 0)
			return r;
		*ret_again = true;
		r = connection_exchange(c, request, expected, ret);
	}
	return r;
}

int connection_call_again(struct gpushm *c, const Gpushm__Proto__Request *request,
			  Gpushm__Proto__Reply__ResultCase expected, Gpushm__Proto__Reply **ret,
			  bool *ret_again)
{
	int r = connection_check_fork(c->generation);

	*ret_again = false;
	if (r < 0)
		return r;
	pthread_mutex_lock(&c->lock);
	r = call(c, request, expected, ret, ret_again);
	if (r < 0)
		connection_done(c);
	return r;
}

int connection_call(struct gpushm *c, const Gpushm__Proto__Request *request,
		    Gpushm__Proto__Reply__ResultCase expected, Gpushm__Proto__Reply **ret)
{
	bool again;

	return connection_call_again(c, request, expected, ret, &again);
}

void connection_done(struct gpushm *c)
{
	frame_close_fds(&c->frame);
	pthread_mutex_unlock(&c->lock);
}

int connection_end(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	Gpushm__Proto__Reply *reply;
	int r = connection_check_fork(c->generation);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->lock);
	r = c->broken ? reconnect(c) : 0;
	/* No answer is the right one but an error. */
	if (r == 0)
		r = connection_exchange(c, request, GPUSHM__PROTO__REPLY__RESULT_ERROR, &reply);
	if (r == -ECONNRESET && c->broken && !c->over)
		r = reconnect(c);
	connection_done(c);
	return r;
}

int connection_violated(struct gpushm *c)
{
	c->over = c->broken = true;
	connection_done(c);
	return -EPROTO;
}

int connection_tell(struct gpushm *c, const Gpushm__Proto__Request *request)
{
	Gpushm__Proto__Reply *reply;
	bool again;
	int r = connection_call_again(c, request, GPUSHM__PROTO__REPLY__RESULT_DONE, &reply,
				      &again);

	if (r == 0)
		connection_done(c);
	/* What was to go is gone: the daemon did it before it died. */
	return again && (r == -ENOENT || r == -EBADF) ? 0 : r;
}

int gpushm_fd(const struct gpushm *c)
{
	int r = connection_check_fork(c->generation);

	return r < 0 ? r : c->socket;
}
