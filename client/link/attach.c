/* SPDX-License-Identifier: MIT
 *
 * The reply to CREATE and OPEN, checked before anything is mapped by it: sizes that fit each other,
 * a state and an access that were asked for, and with each kind of pool what that kind needs. The
 * fds are taken out of the frame in the order that the protocol fixes: memory or pool, then table.
 *
 * A mempool's own fd comes once a connection; it is handed to the connection, which keeps it.
 */
#include "client/link/attach.h"

#include "client/base/decode.h"
#include "client/base/defer.h"
#include "client/base/error.h"
#include "client/link/hello.h"
#include "client/link/reconnect.h"
#include "proto/base/own.h"

/* Under the connection's lock, under which the reply was read. */
static void hold(struct gpushm *c, struct attach *a)
{
	a->held.lease = a->lease;
	a->held.slot = notice_slot(c->boards, a->slot);
	a->holder = c;
	list_insert(&c->held, &a->held.link);
}

void attach_hand_over(struct attach *a, struct held *to)
{
	struct gpushm *c = a->holder;

	pthread_mutex_lock(&c->lock);
	to->lease = a->lease;
	to->lost = a->held.lost;
	to->slot = a->held.slot;
	list_drop(&a->held.link);
	list_insert(&c->held, &to->link);
	pthread_mutex_unlock(&c->lock);
	a->holder = NULL;
}

void attach_done(struct attach *a)
{
	if (a->holder) {
		pthread_mutex_lock(&a->holder->lock);
		list_drop(&a->held.link);
		pthread_mutex_unlock(&a->holder->lock);
		a->holder = NULL;
	}
	close_fd(&a->fd);
	close_fd(&a->table_fd);
}

static int nonsense(const char *what)
{
	return error_set(EPROTO, "the daemon's attach makes no sense: %s", what);
}

static int check_sizes(const Gpushm__Proto__Attach *from)
{
	if (!from->has_buffer || !from->has_lease)
		return nonsense("no buffer or no lease");
	/* What is mapped is a size_t and indexed with signed 64-bit strides. */
	if (from->size_bytes == 0 || from->allocated_bytes < from->size_bytes ||
	    from->allocated_bytes > INT64_MAX)
		return nonsense("sizes");
	if (from->table_fd && (from->table_bytes == 0 || from->table_bytes > UINT32_MAX))
		return nonsense("size of the table");
	return 0;
}

static int check_access(const Gpushm__Proto__Attach *from, const Gpushm__Proto__Request *request,
			struct attach *a)
{
	bool create = request->verb_case == GPUSHM__PROTO__REQUEST__VERB_CREATE;
	int wanted = create ? GPUSHM_WRITE : (int)request->open->access;

	if (decode_state(from->has_state, (int)from->state, &a->state) < 0 ||
	    decode_access(from->has_access, (int)from->access, &a->access) < 0)
		return -EPROTO;
	if (create != (a->state == GPUSHM_FILLING) || (int)a->access != wanted ||
	    (a->state == GPUSHM_SEALED && a->access == GPUSHM_WRITE))
		return nonsense("another state or access than asked");
	if (create && a->bytes != request->create->size_bytes)
		return nonsense("another size than asked");
	return 0;
}

static int take_fds(struct gpushm *c, const Gpushm__Proto__Attach *from, struct attach *a)
{
	size_t next = 0;

	if (from->has_record && decode_bytes("record", from->has_record, from->record, a->record,
					     sizeof(a->record)) < 0)
		return -EPROTO;
	a->has_record = from->has_record;
	a->is_pool_fd = from->pool_fd;
	if (from->memory_fd || from->pool_fd)
		a->fd = take_fd(&c->frame.fds[next++]);
	if (from->table_fd)
		a->table_fd = take_fd(&c->frame.fds[next]);
	return 0;
}

static int decode_attach(struct gpushm *c, const Gpushm__Proto__Request *request,
			 const Gpushm__Proto__Attach *from, struct attach *a)
{
	int r = check_sizes(from);

	if (r < 0)
		return r;
	a->buffer = from->buffer;
	a->lease = from->lease;
	a->bytes = from->size_bytes;
	a->allocated_bytes = from->allocated_bytes;
	a->digest = from->digest;
	a->table_bytes = from->table_bytes;
	a->dirty = from->dirty;
	a->slot = from->has_slot ? from->slot : STATUS_PAGE_NONE;
	a->pool_id = from->pool;
	r = check_access(from, request, a);
	return r < 0 ? r : take_fds(c, from, a);
}

/* What the kind of the pool must have come with. A mempool's fd goes to the connection, unless it
 * has it already. */
static int settle(struct attach *a)
{
	bool mempool = a->pool->map.kind == GPUSHM_MEMPOOL;

	if (mempool ? !a->has_record || (a->fd >= 0 && !a->is_pool_fd) : a->fd < 0 || a->is_pool_fd)
		return nonsense("it lacks the memory's handle, or has a wrong one");
	if (mempool && a->pool->pool_fd < 0)
		a->pool->pool_fd = take_fd(&a->fd);
	else if (mempool)
		close_fd(&a->fd);
	return 0;
}

/* A pool may have come since HELLO: a mempool does, when the daemon was started again. Whoever
 * comes back is told the pools, too. */
static int ask_for_pools(struct gpushm *c)
{
	int r = connect_refresh_pools(c);

	return r == -ECONNRESET && c->broken && !c->over ? reconnect(c) : r;
}

static int find_pool(struct gpushm *c, struct attach *a)
{
	int r;

	a->pool = connection_pool(c, a->pool_id);
	if (a->pool)
		return 0;
	r = ask_for_pools(c);
	a->pool = r == 0 ? connection_pool(c, a->pool_id) : NULL;
	if (r < 0 || a->pool)
		return r;
	return error_set(ENODEV, "the buffer is in a pool of a kind that this library does not "
				 "know: upgrade libgpushm");
}

static int give_back(struct gpushm *c, struct attach *a, int r)
{
	struct error why;

	error_keep(&why);
	attach_close_lease(c, &a->held);
	error_put_back(&why);
	return r;
}

/* From the reply to the end the lock is kept: a mempool's fd comes with one reply only, and who
 * has the next one must find it with the connection. */
static int call_once(struct gpushm *c, const Gpushm__Proto__Request *request, struct attach *ret)
{
	Gpushm__Proto__Reply *reply;
	int r;

	r = connection_call(c, request, GPUSHM__PROTO__REPLY__RESULT_ATTACH, &reply);
	if (r < 0)
		return r;
	r = decode_attach(c, request, reply->attach, ret);
	if (r < 0)
		return connection_violated(c);
	hold(c, ret);
	r = find_pool(c, ret);
	if (r == 0 && settle(ret) < 0)
		return connection_violated(c);
	connection_done(c);
	return r < 0 ? give_back(c, ret, r) : 0;
}

/* A full pool or a limit may be full of what this process has closed and not yet given back. */
int attach_call(struct gpushm *c, const Gpushm__Proto__Request *request, struct attach *ret)
{
	int r = call_once(c, request, ret);

	if ((r == -ENOSPC || r == -EDQUOT) && defer_flush_for_room())
		r = call_once(c, request, ret);
	return r;
}

/* Nothing that it could be told would be of use, so no reply is waited for. A RECLAIM that comes
 * between this and the daemon's reading it must not name the lease: it ends by that. *ret_alone: so
 * it does if the daemon is told nothing, which has been waited for in vain. */
static int close_quietly(struct gpushm *c, struct held *held, const Gpushm__Proto__Request *request,
			 bool *ret_alone)
{
	int r = connection_check_fork(c->generation);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->lock);
	list_drop(&held->link);
	r = c->quiet_close ? connection_post(c, request) : -ECONNRESET;
	*ret_alone = r == -ECONNRESET && c->broken && reconnect_was_in_vain(c);
	pthread_mutex_unlock(&c->lock);
	return r;
}

void attach_strand(struct gpushm *c, struct held *held)
{
	struct held *stays = calloc(1, sizeof(*stays));

	pthread_mutex_lock(&c->lock);
	list_drop(&held->link);
	if (stays) {
		stays->stranded = true;
		stays->lease = held->lease;
		stays->lost = held->lost;
		list_insert(&c->held, &stays->link);
	}
	pthread_mutex_unlock(&c->lock);
}

int attach_close_lease(struct gpushm *c, struct held *held)
{
	Gpushm__Proto__Close close = GPUSHM__PROTO__CLOSE__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	bool alone = false;
	int r;

	close.has_lease = close.has_quiet = close.quiet = true;
	close.lease = held->lease;
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_CLOSE;
	request.close = &close;
	r = close_quietly(c, held, &request, &alone);
	if (r != -ECONNRESET || alone)
		return r;
	/* The daemon has gone, or is one that answers each request. */
	close.has_quiet = close.quiet = false;
	return connection_tell(c, &request);
}
