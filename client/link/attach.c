/* SPDX-License-Identifier: MIT
 *
 * The reply to CREATE and OPEN is checked before anything is mapped: sizes that fit each other, the
 * state and the access that were asked for, and what each kind of pool must send. The fds are taken
 * out of the frame in the order that the protocol fixes: memory or pool, then table.
 *
 * A mempool's own fd comes once a connection; the connection keeps it.
 */
#include "client/link/attach.h"

#include "client/base/decode.h"
#include "client/base/defer.h"
#include "client/base/error.h"
#include "client/link/hello.h"
#include "client/link/request.h"
#include "proto/base/own.h"

/* Under c->lock, since the reply was read. */
static void list_lease(struct gpushm *c, struct attach *a)
{
	a->lease.cell = status_map_cell(c->pages, a->cell);
	a->holder = c;
	list_insert(&c->leases, &a->lease.link);
}

void attach_move_lease(struct attach *a, struct lease *to)
{
	struct gpushm *c = a->holder;

	pthread_mutex_lock(&c->lock);
	to->id = a->lease.id;
	to->lost = a->lease.lost;
	to->cell = a->lease.cell;
	list_drop(&a->lease.link);
	list_insert(&c->leases, &to->link);
	pthread_mutex_unlock(&c->lock);
	a->holder = NULL;
}

void attach_done(struct attach *a)
{
	if (a->holder) {
		pthread_mutex_lock(&a->holder->lock);
		list_drop(&a->lease.link);
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
	/* The mapping's size is a size_t, and signed 64-bit strides index it. */
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
	a->lease.id = from->lease;
	a->bytes = from->size_bytes;
	a->allocated_bytes = from->allocated_bytes;
	a->digest = from->digest;
	a->table_bytes = from->table_bytes;
	a->dirty = from->dirty;
	a->cell = from->has_slot ? from->slot : STATUS_PAGE_NONE;
	a->pool_id = from->pool;
	r = check_access(from, request, a);
	return r < 0 ? r : take_fds(c, from, a);
}

/* Checks what the pool's kind must send. A mempool's fd goes to the connection, unless that has it
 * already. */
static int take_memory(struct attach *a)
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

static int find_pool(struct gpushm *c, struct attach *a)
{
	int r;

	a->pool = connection_pool(c, a->pool_id);
	if (a->pool)
		return 0;
	/* There may be new pools since HELLO: a restarted daemon makes a new mempool. HELLO tells
	 * the pools, too. */
	r = hello_refresh_pools(c);
	if (r == -ECONNRESET && c->broken && !c->ended)
		r = hello_reconnect(c);
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
	attach_close_lease(c, &a->lease);
	error_put_back(&why);
	return r;
}

/* Keeps the lock until the end: a mempool's fd comes with one reply only, and the next reply's
 * reader must find it with the connection. */
static int call_once(struct gpushm *c, const Gpushm__Proto__Request *request, struct attach *ret)
{
	Gpushm__Proto__Reply *reply;
	int r;

	r = request_call(c, request, &reply, NULL);
	if (r < 0)
		return r;
	r = decode_attach(c, request, reply->attach, ret);
	if (r < 0)
		return request_violated(c);
	list_lease(c, ret);
	r = find_pool(c, ret);
	if (r == 0 && take_memory(ret) < 0)
		return request_violated(c);
	request_done(c);
	return r < 0 ? give_back(c, ret, r) : 0;
}

/* A full pool, or a limit, may be full of buffers that this process has closed and whose cleanup is
 * deferred. */
int attach_call(struct gpushm *c, const Gpushm__Proto__Request *request, struct attach *ret)
{
	int r = call_once(c, request, ret);

	if ((r == -ENOSPC || r == -EDQUOT) && defer_flush_for_space())
		r = call_once(c, request, ret);
	return r;
}

/* No reply is waited for: none would be of use. From now on a RECLAIM must not name the lease,
 * which ends the lease if this CLOSE is lost. *ret_no_daemon: a reconnection has failed lately, so
 * that nothing needs to be said. */
static int post_close(struct gpushm *c, struct lease *l, const Gpushm__Proto__Request *request,
		      bool *ret_no_daemon)
{
	int r = connection_check_fork(c->generation);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->lock);
	list_drop(&l->link);
	r = c->quiet_close ? connection_post(c, request) : -ECONNRESET;
	*ret_no_daemon = r == -ECONNRESET && c->broken && hello_gave_up_lately(c);
	pthread_mutex_unlock(&c->lock);
	return r;
}

int attach_close_lease(struct gpushm *c, struct lease *l)
{
	Gpushm__Proto__Close close = GPUSHM__PROTO__CLOSE__INIT;
	bool no_daemon = false;
	int r;

	close.has_lease = close.has_quiet = close.quiet = true;
	close.lease = l->id;
	r = post_close(c, l, request_with(CLOSE, close, &close), &no_daemon);
	if (r != -ECONNRESET || no_daemon)
		return r;
	/* The daemon has gone, or is one that replies to every request. */
	close.has_quiet = close.quiet = false;
	return request_ack(c, request_with(CLOSE, close, &close));
}

void attach_keep_lease(struct gpushm *c, struct lease *l)
{
	struct lease *kept = calloc(1, sizeof(*kept));

	pthread_mutex_lock(&c->lock);
	list_drop(&l->link);
	if (kept) {
		kept->owned = true;
		kept->id = l->id;
		kept->lost = l->lost;
		list_insert(&c->leases, &kept->link);
	}
	pthread_mutex_unlock(&c->lock);
}
