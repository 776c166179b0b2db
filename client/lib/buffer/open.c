/* SPDX-License-Identifier: MIT
 *
 * OPEN and CLOSE: gpushm_open, gpushm_close, and what is in between: checking the reply (CREATE has
 * the same one), mapping the memory and holding the lease. The daemon does the waiting: it replies
 * to an OPEN with a deadline when the name is published or the time is over. The connection is busy
 * until then.
 *
 * Before anything is mapped the reply is checked: sizes that fit each other, the state and the
 * access that were asked for, and what each kind of pool must send. The fds are taken out of the
 * frame in the order that the protocol fixes: memory or pool, then table. A mempool's own fd comes
 * once a connection; the connection keeps it.
 *
 * A close follows the protocol's order: first it waits for the GPU's work and unmaps the memory,
 * then it tells the daemon. A lease is never ended while its memory may still be mapped here: where
 * unmapping fails, the lease stays until this process ends. All of that may be deferred (defer.h);
 * until then the closed buffer is on the list.
 */
#include "client/gpushm_private.h"
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/buffer/buffer.h"
#include "client/lib/link/hello.h"
#include "client/lib/link/request.h"
#include "proto/base/own.h"

/* A smaller buffer keeps no fd: a process may fill thousands of them. */
#define MEMORY_FD_MIN (1u << 20)

/* What the reply brings beside what the buffer keeps. */
struct attach {
	struct map_request map;
	bool has_record, is_pool_fd;
	bool may_be_away; /* asked for: also a buffer that is evicted, without its memory */
	uint64_t table_bytes;
	int fd;	      /* the memory's; owned; -1 for a mempool */
	int table_fd; /* owned; -1: the buffer has no table */
};

static void attach_done(struct attach *a)
{
	close_fd(&a->fd);
	close_fd(&a->table_fd);
}

/* ---- the reply ---- */

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
			struct gpushm_buffer *b)
{
	bool create = request->verb_case == GPUSHM__PROTO__REQUEST__VERB_CREATE;
	int wanted = create ? GPUSHM_WRITE : (int)request->open->access;
	enum gpushm_state state;
	enum gpushm_access access;

	if (decode_state(from->has_state, (int)from->state, &state) < 0 ||
	    decode_access(from->has_access, (int)from->access, &access) < 0)
		return -EPROTO;
	if (create != (state == GPUSHM_FILLING) || (int)access != wanted ||
	    (state == GPUSHM_SEALED && access == GPUSHM_WRITE))
		return nonsense("another state or access than asked");
	if (create && from->size_bytes != request->create->size_bytes)
		return nonsense("another size than asked");
	b->state = state;
	b->access = access;
	return 0;
}

static int take_fds(struct frame *frame, const Gpushm__Proto__Attach *from, struct attach *a)
{
	size_t next = 0;

	if (from->has_record && decode_bytes("record", from->has_record, from->record,
					     a->map.record, sizeof(a->map.record)) < 0)
		return -EPROTO;
	a->has_record = from->has_record;
	a->is_pool_fd = from->pool_fd;
	if (from->memory_fd || from->pool_fd)
		a->fd = take_fd(&frame->fds[next++]);
	if (from->table_fd)
		a->table_fd = take_fd(&frame->fds[next]);
	return 0;
}

/* From here on the lease is in the connection's list, for a RECLAIM. */
static int decode_attach(struct gpushm_buffer *b, const Gpushm__Proto__Request *request,
			 const Gpushm__Proto__Attach *from, struct attach *a)
{
	struct gpushm *c = b->connection;
	int r = check_sizes(from);

	if (r == 0)
		r = check_access(from, request, b);
	if (r == 0)
		r = take_fds(&c->frame, from, a);
	if (r < 0)
		return r;
	b->id = from->buffer;
	b->bytes = from->size_bytes;
	b->digest = from->digest;
	b->pages = from->memory;
	b->uid = from->uid;
	b->own_uid = c->uid;
	b->dirty = from->dirty;
	b->not_kept = from->not_kept;
	b->lease.id = from->lease;
	b->lease.cell = status_map_cell(c->pages, from->has_slot ? from->slot : STATUS_PAGE_NONE);
	a->map.buffer = b->id;
	a->map.bytes = b->bytes;
	a->map.allocated_bytes = from->allocated_bytes;
	a->map.write = b->access == GPUSHM_WRITE;
	a->map.server_uid = c->server_uid;
	a->table_bytes = from->table_bytes;
	list_insert(&c->leases, &b->lease.link);
	return 0;
}

static int find_pool(struct gpushm *c, uint32_t id, struct pool_info **ret)
{
	int r = 0;

	*ret = connection_pool(c, id);
	if (!*ret) {
		/* There may be new pools since HELLO: a restarted daemon makes a new mempool. HELLO
		 * tells the pools, too. */
		r = hello_refresh_pools(c);
		if (r == -ECONNRESET && c->broken && !c->ended)
			r = hello_reconnect(c);
		*ret = connection_pool(c, id);
	}
	if (r < 0 || *ret)
		return r;
	return error_set(ENODEV, "the buffer is in a pool of a kind that this library does not "
				 "know: upgrade libgpushm");
}

/* Checks what the pool's kind must send. A mempool's fd goes to the connection, unless that has it
 * already. */
static int take_memory(struct attach *a, struct pool_info *pool)
{
	bool of_pool = kind_opens_pool(pool->map.kind);

	if (of_pool ? !a->has_record || (a->fd >= 0 && !a->is_pool_fd)
		    : (a->fd < 0 && !a->may_be_away) || a->is_pool_fd)
		return nonsense("it lacks the memory's handle, or has a wrong one");
	if (of_pool && pool->pool_fd < 0)
		pool->pool_fd = take_fd(&a->fd);
	a->map.pool = &pool->map;
	a->map.fd = of_pool ? pool->pool_fd : a->fd;
	return 0;
}

/* Has the lock, and keeps it until the end: a mempool's fd comes with one reply only, and the next
 * reply's reader must find it with the connection. *ret_leased: the lease is to be closed. */
static int take_attach(struct gpushm_buffer *b, const Gpushm__Proto__Request *request,
		       const Gpushm__Proto__Reply *reply, struct attach *ret, bool *ret_leased)
{
	struct gpushm *c = b->connection;
	struct pool_info *pool;
	int r;

	r = decode_attach(b, request, reply->attach, ret);
	if (r < 0)
		return request_violated(c);
	r = find_pool(c, reply->attach->pool, &pool);
	ret->may_be_away = request->verb_case == GPUSHM__PROTO__REQUEST__VERB_OPEN &&
			   request->open->away && pool && !kind_opens_pool(pool->map.kind);
	if (r == 0 && take_memory(ret, pool) < 0)
		return request_violated(c);
	request_done(c);
	b->pool = pool;
	*ret_leased = true;
	return r;
}

static int attach(struct gpushm_buffer *b, const Gpushm__Proto__Request *request,
		  struct attach *ret, bool *ret_leased)
{
	Gpushm__Proto__Reply *reply;
	int r = request_call(b->connection, request, &reply, NULL);

	return r < 0 ? r : take_attach(b, request, reply, ret, ret_leased);
}

/* ---- the lease and the map ---- */

/* Sends the CLOSE and does not wait for a reply, which would be of no use. A RECLAIM must not name
 * the lease any more, so the lease ends even if this CLOSE is lost. *ret_no_daemon: a reconnection
 * failed a short time ago, so the CLOSE was not sent. */
static int post_close(struct gpushm *c, struct lease *l, bool discard, bool *ret_no_daemon)
{
	int r = connection_check_fork(c->generation);

	if (r < 0)
		return r;
	lock_guard(&c->lock, LOCK_CONNECTION);
	list_drop(&l->link);
	r = connection_end_lease(c, l->id, discard);
	*ret_no_daemon = r == -ECONNRESET && c->broken && hello_gave_up_lately(c);
	return r;
}

static int close_lease(struct gpushm *c, struct lease *l, bool discard)
{
	Gpushm__Proto__Close close = GPUSHM__PROTO__CLOSE__INIT;
	bool no_daemon = false;
	int r = post_close(c, l, discard, &no_daemon);

	if (r != -ECONNRESET || no_daemon)
		return r;
	/* The daemon has gone: its successor confirms. */
	SET(&close, lease, l->id);
	SET(&close, discard, discard);
	return request_ack(c, request_with(CLOSE, close, &close));
}

/* The memory could not be unmapped: the lease stays with the connection. */
static void keep_lease(struct gpushm *c, struct lease *l)
{
	struct lease *kept = calloc(1, sizeof(*kept));

	lock_guard(&c->lock, LOCK_CONNECTION);
	list_drop(&l->link);
	if (kept) {
		kept->owned = true;
		kept->id = l->id;
		kept->lost = l->lost;
		list_insert(&c->leases, &kept->link);
	}
}

static int map(struct gpushm_buffer *b, const struct map_request *m)
{
	int r = map_acquire(m, &b->map, &b->device);

	return r == -ENOMEM && defer_flush_for_space() ? map_acquire(m, &b->map, &b->device) : r;
}

/* Does nothing the second time. */
static int open_table(struct gpushm_buffer *b, struct attach *a)
{
	if (image_is(&b->table))
		return 0;
	b->table_id = b->id;
	return a->table_fd < 0 ? 0
			       : image_open(&a->table_fd, a->table_bytes, b->bytes,
					    b->connection->server_uid, &b->table);
}

/* r: of the attach. */
static int map_attach(struct gpushm_buffer *b, struct attach *a,
		      const struct gpushm_open_options *o, int r, bool leased)
{
	struct error why;

	if (r == 0)
		r = open_table(b, a);
	/* The map comes last: after it nothing can fail. */
	a->map.copy_on_write = !!(o->flags & GPUSHM_COPY_ON_WRITE);
	a->map.to_fill_from = !!(o->flags & BUFFER_TO_FILL_FROM);
	b->device = -1;
	if (r == 0 && !(o->flags & GPUSHM_TABLE))
		r = map(b, &a->map);
	if (r == 0 && b->state == GPUSHM_FILLING && !kind_of(b->pool->map.kind)->by_driver &&
	    b->bytes >= MEMORY_FD_MIN) {
		b->memory = take_fd(&a->fd);
		huge_pages_init(&b->fresh, b->map->host_ptr, b->bytes, b->memory);
	}
	if (r == 0 && a->map.copy_on_write) {
		b->copy_on_write = true;
		b->access = GPUSHM_WRITE;
	}
	b->suspended = !b->map;
	b->had_id = b->id;
	b->had_pages = b->pages;
	if (r == 0 || !leased)
		return r;
	error_keep(&why);
	close_lease(b->connection, &b->lease, true);
	error_put_back(&why);
	return error_set_about(-r, "buffer", b->name);
}

#define ATTACH_NONE(o)                                              \
	(struct attach)                                             \
	{                                                           \
		.map.device = (o)->device, .fd = -1, .table_fd = -1 \
	}

static int attach_and_map(struct gpushm_buffer *b, const Gpushm__Proto__Request *request,
			  const struct gpushm_open_options *o)
{
	_cleanup_(attach_done) struct attach a = ATTACH_NONE(o);
	bool leased = false;
	int r = attach(b, request, &a, &leased);

	/* A full pool, or a limit, may be full of buffers that this process has closed and whose
	 * cleanup is deferred. */
	if ((r == -ENOSPC || r == -EDQUOT) && defer_flush_for_space())
		r = attach(b, request, &a, &leased);
	/* A restore reads the table. */
	if (r == 0 && a.may_be_away && a.fd < 0 && !(o->flags & GPUSHM_TABLE)) {
		r = open_table(b, &a);
		if (r == 0)
			r = buffer_bring_back(b, a.map.allocated_bytes, b->id,
					      request->open->wait_ms, &a.fd);
	}
	if (r == 0 && a.may_be_away)
		a.map.fd = a.fd;
	return map_attach(b, &a, o, r, leased);
}

int buffer_take(struct gpushm_buffer *b, const Gpushm__Proto__Request *request,
		const Gpushm__Proto__Reply *reply, const struct gpushm_open_options *o)
{
	_cleanup_(attach_done) struct attach a = ATTACH_NONE(o);
	bool leased = false;
	int r = take_attach(b, request, reply, &a, &leased);

	return map_attach(b, &a, o, r, leased);
}

int buffer_open(struct gpushm *c, const char *name, const Gpushm__Proto__Request *request,
		const struct gpushm_open_options *o, struct gpushm_buffer **ret)
{
	struct gpushm_buffer *b;
	int r = connection_check(c);

	if (r < 0)
		return r;
	b = client_buffer_new(c, name);
	r = b ? attach_and_map(b, request, o) : error_set(ENOMEM, "out of memory for a buffer");
	if (r < 0)
		client_buffer_free(b);
	else
		*ret = b;
	return r;
}

int buffer_open_message(const char *name, enum gpushm_access access, uint64_t timeout_ms,
			const struct gpushm_open_options *options,
			struct gpushm_open_options *ret_options, Gpushm__Proto__Open *ret)
{
	Gpushm__Proto__Open open = GPUSHM__PROTO__OPEN__INIT;
	struct gpushm_open_options o;
	int r = request_set_name(name, &open.has_name, &open.name);

	if (r == 0 && access != GPUSHM_READ && access != GPUSHM_WRITE)
		r = error_set(EINVAL, "buffer \"%s\": access is GPUSHM_READ or GPUSHM_WRITE", name);
	if (r == 0)
		r = buffer_open_options(options, &o);
	if (r == 0 && o.flags & GPUSHM_COPY_ON_WRITE && access != GPUSHM_READ)
		r = error_set(EINVAL,
			      "buffer \"%s\": GPUSHM_COPY_ON_WRITE is opened with GPUSHM_READ",
			      name);
	if (r < 0)
		return r;
	SET(&open, access, (Gpushm__Proto__Access)access);
	SET_SOME(&open, wait_ms, timeout_ms);
	open.has_refuse_dirty = open.refuse_dirty = !!(o.flags & GPUSHM_REFUSE_DIRTY);
	*ret_options = o;
	*ret = open;
	return 0;
}

int buffer_open_name(struct gpushm *c, const char *name, enum gpushm_access access,
		     uint64_t timeout_ms, enum buffer_open_how how,
		     const struct gpushm_open_options *options, struct gpushm_buffer **ret)
{
	Gpushm__Proto__Open open;
	struct gpushm_open_options o;
	int r = buffer_open_message(name, access, timeout_ms, options, &o, &open);

	if (r < 0)
		return r;
	open.has_while_filling = open.while_filling = how == BUFFER_OPEN_WHILE_FILLING;
	open.has_produce = open.produce = how == BUFFER_OPEN_PRODUCE;
	open.has_away = open.away = c && c->suspends && how == BUFFER_OPEN_PLAIN;
	return buffer_open(c, name, request_with(OPEN, open, &open), &o, ret);
}

int gpushm_open(struct gpushm *c, const char *name, enum gpushm_access access, uint64_t timeout_ms,
		const struct gpushm_open_options *options, struct gpushm_buffer **ret)
{
	return buffer_open_name(c, name, access, timeout_ms, BUFFER_OPEN_PLAIN, options, ret);
}

/* ---- closing ---- */

/* The child sends nothing over the parent's connection and changes nothing of it: a thread of the
 * parent may have held the connection's locks at the fork. */
static int end_inherited(struct gpushm_buffer *b)
{
	if (b->map)
		map_release_inherited(b->map);
	if (b->twin)
		end_inherited(b->twin);
	close_fd(&b->memory);
	image_done(&b->table);
	image_done(&b->attrs);
	table_builder_free(b->builder);
	free(b);
	return 0;
}

int buffer_end(struct gpushm_buffer *b)
{
	int r;

	if (buffer_is_inherited(b))
		return end_inherited(b);
	close_fd(&b->memory);
	r = b->suspended && b->map ? map_release_suspended(b->map) : map_release(b->map);

	if (r < 0) {
		error_set_about(-r, "buffer", b->name);
		keep_lease(b->connection, &b->lease);
	} else if (!b->lease.lost) {
		/* The daemon sees who still has the table of a buffer that has ended. */
		image_done(&b->table);
		r = close_lease(b->connection, &b->lease, b->discard);
	}
	client_buffer_free(b);
	/* The lease has ended with the daemon, or the daemon ended it because its GPU was lost. */
	return r == -ECONNRESET || r == -EBADF ? 0 : r;
}

static int run_end(struct deferred *d)
{
	return buffer_end(container_of(d, struct gpushm_buffer, deferred));
}

static int check_closable(const struct gpushm_buffer *b)
{
	unsigned arrays = b->arrays;

	if (arrays == 0)
		return 0;
	return buffer_error(b, EBUSY,
			    "%u arrays, views or DLPack tensors are alive: free them first",
			    arrays);
}

int buffer_discard(struct gpushm_buffer *b)
{
	int r = check_closable(b);

	b->discard = true;
	return r < 0 ? r : buffer_end(b);
}

/* Without a GPU there is nothing to wait for, so the close is not deferred. */
static int close_or_defer(struct gpushm_buffer *b)
{
	if (b->device < 0 || buffer_is_inherited(b))
		return buffer_end(b);
	b->deferred = (struct deferred){ .owner = b->connection,
					 .device = b->device,
					 .bytes = map_bytes(b->map),
					 .capacity = map_device_bytes,
					 .run = run_end };
	return defer_add(&b->deferred);
}

/* A buffer without a name can't be opened by anybody, published or not. The daemon may have
 * published it, and its reply be late. */
static bool is_unpublished(const struct gpushm_buffer *b)
{
	return b->state == GPUSHM_FILLING && !buffer_is_inherited(b) &&
	       !(buffer_word(b) & (STATUS_PAGE_UNLINKED | STATUS_PAGE_SEALED | STATUS_PAGE_SHARED));
}

int gpushm_close(struct gpushm_buffer *b)
{
	char name[BUFFER_NAME_MAX + 1];
	int r = b ? check_closable(b) : 0;
	bool unpublished;

	if (!b || r < 0)
		return r;
	unpublished = is_unpublished(b);
	strcpy(name, b->name);
	r = close_or_defer(b);
	if (r < 0 || !unpublished)
		return r;
	error_of("buffer", name, 0,
		 "it is closed and was not published, so its contents are gone: call "
		 "gpushm_publish() first, or gpushm_discard() if that is meant");
	return GPUSHM_UNPUBLISHED;
}

int gpushm_discard(struct gpushm_buffer *b)
{
	int r = b ? check_closable(b) : 0;

	if (!b || r < 0)
		return r;
	if (b->state != GPUSHM_FILLING)
		return buffer_error(b, EBUSY,
				    "it is published: gpushm_unlink() frees its name, and "
				    "gpushm_close() closes it");
	b->discard = true;
	return close_or_defer(b);
}
