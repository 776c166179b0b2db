/* SPDX-License-Identifier: MIT
 *
 * The reply to CREATE and OPEN, checked before anything is mapped by it: sizes that fit each other,
 * a state and an access that were asked for, and with each kind of pool what that kind needs. The
 * fds are taken out of the frame in the order that the protocol fixes: memory or pool, then table.
 *
 * A mempool's own fd comes once a connection; it is handed to the connection, which keeps it.
 */
#include "client/attach.h"

#include "client/decode.h"
#include "client/defer.h"
#include "client/error.h"
#include "proto/own.h"

void attach_done(struct attach *a)
{
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

static int take_fds(struct gpushm *c, const Gpushm__Proto__Attach *from, struct pool_info *pool,
		    struct attach *a)
{
	bool mempool = pool->map.kind == GPUSHM_MEMPOOL;
	size_t next = 0;

	if (from->memory_fd == mempool || (from->pool_fd && !mempool))
		return nonsense("it lacks the memory's handle, or has a wrong one");
	if (mempool && decode_bytes("record", from->has_record, from->record, a->record,
				    sizeof(a->record)) < 0)
		return -EPROTO;
	if (from->memory_fd)
		a->fd = take_fd(&c->frame.fds[next++]);
	else if (from->pool_fd && pool->pool_fd < 0)
		pool->pool_fd = take_fd(&c->frame.fds[next++]);
	else if (from->pool_fd)
		next++; /* once more: the frame closes it */
	if (from->table_fd)
		a->table_fd = take_fd(&c->frame.fds[next]);
	return 0;
}

static int decode_attach(struct gpushm *c, const Gpushm__Proto__Request *request,
			 const Gpushm__Proto__Attach *from, struct attach *a)
{
	struct pool_info *pool = connection_pool(c, from->pool);
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
	r = check_access(from, request, a);
	if (r < 0)
		return r;
	if (!pool)
		return 0;
	a->pool = pool;
	return take_fds(c, from, pool, a);
}

static int call_once(struct gpushm *c, const Gpushm__Proto__Request *request, struct attach *ret)
{
	_cleanup_(attach_done) struct attach a = ATTACH_NONE;
	Gpushm__Proto__Reply *reply;
	int r;

	r = connection_call(c, request, GPUSHM__PROTO__REPLY__RESULT_ATTACH, &reply);
	if (r < 0)
		return r;
	r = decode_attach(c, request, reply->attach, &a);
	if (r < 0)
		return connection_violated(c);
	connection_done(c);
	if (!a.pool) {
		/* Made after this connection, or of a kind that this library does not know. */
		attach_close_lease(c, a.lease);
		return error_set(ENODEV,
				 "the buffer is in a pool that this connection was not told of: "
				 "connect again, or upgrade libgpushm");
	}
	*ret = a;
	a = ATTACH_NONE;
	return 0;
}

/* A full pool or a limit may be full of what this process has closed and not yet given back. */
int attach_call(struct gpushm *c, const Gpushm__Proto__Request *request, struct attach *ret)
{
	int r = call_once(c, request, ret);

	if ((r == -ENOSPC || r == -EDQUOT) && defer_flush_for_room())
		r = call_once(c, request, ret);
	return r;
}

int attach_close_lease(struct gpushm *c, uint64_t lease)
{
	Gpushm__Proto__Close close = GPUSHM__PROTO__CLOSE__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;

	close.has_lease = true;
	close.lease = lease;
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_CLOSE;
	request.close = &close;
	return connection_tell(c, &request);
}
