/* SPDX-License-Identifier: MIT
 *
 * OPEN and CLOSE: gpushm_open and gpushm_close, and the mapping between the two. The daemon does
 * the waiting: it replies to an OPEN with a deadline when the name is published or the time is
 * over. The connection is busy until then.
 *
 * A close follows the protocol's order: first it waits for the GPU's work and unmaps the memory,
 * then it tells the daemon. A lease is never ended while its memory may still be mapped here: where
 * unmapping fails, the lease stays until this process ends. All of that may be deferred (defer.h);
 * until then the closed buffer is on the list.
 */
#include "client/base/error.h"
#include "client/base/options.h"
#include "client/buffer/buffer.h"
#include "client/link/request.h"
#include "proto/base/own.h"

static int map(struct gpushm_buffer *b, const struct attach *a, int device)
{
	struct map_request r = { .pool = &a->pool->map,
				 .buffer = a->buffer,
				 .bytes = a->bytes,
				 .allocated_bytes = a->allocated_bytes,
				 .write = a->access == GPUSHM_WRITE,
				 .device = device,
				 .fd = a->fd,
				 .server_uid = b->connection->server_uid };
	int result;

	memcpy(r.record, a->record, sizeof(r.record));
	if (r.pool->kind == GPUSHM_MEMPOOL) {
		pthread_mutex_lock(&b->connection->lock);
		r.fd = a->pool->pool_fd;
		pthread_mutex_unlock(&b->connection->lock);
	}
	result = map_acquire(&r, &b->map, &b->device);
	if (result == -ENOMEM && defer_flush_for_space())
		result = map_acquire(&r, &b->map, &b->device);
	return result;
}

static int attach(struct gpushm_buffer *b, struct attach *a, int device)
{
	int r = 0;

	if (a->table_fd >= 0)
		r = image_open(&a->table_fd, a->table_bytes, a->bytes, b->connection->server_uid,
			       &b->table);
	/* The map comes last: after it nothing can fail. */
	return r < 0 ? r : map(b, a, device);
}

int buffer_open(struct gpushm *c, const char *name, struct attach *a, int device,
		struct gpushm_buffer **ret)
{
	struct gpushm_buffer *b = buffer_new(c, name, a);
	struct error why;
	int r;

	r = b ? attach(b, a, device) : error_set(ENOMEM, "out of memory for a buffer");
	if (r == 0) {
		*ret = b;
		return 0;
	}
	error_keep(&why);
	attach_close_lease(c, b ? &b->lease : &a->lease);
	error_put_back(&why);
	error_set_about(-r, "buffer", name);
	buffer_free(b);
	return r;
}

int gpushm_open(struct gpushm *c, const char *name, enum gpushm_access access, uint64_t timeout_ms,
		const struct gpushm_options *options, struct gpushm_buffer **ret)
{
	_cleanup_(attach_done) struct attach a = ATTACH_NONE;
	Gpushm__Proto__Open open = GPUSHM__PROTO__OPEN__INIT;
	struct gpushm_options o;
	int r = request_set_name(name, &open.has_name, &open.name);

	if (r == 0 && access != GPUSHM_READ && access != GPUSHM_WRITE)
		r = error_set(EINVAL, "buffer \"%s\": access is GPUSHM_READ or GPUSHM_WRITE", name);
	if (r == 0)
		r = options_read(options, &o);
	if (r < 0)
		return r;
	open.has_access = true;
	open.access = (Gpushm__Proto__Access)access;
	open.has_wait_ms = timeout_ms > 0;
	open.wait_ms = timeout_ms;
	open.has_refuse_dirty = open.refuse_dirty = !!(o.flags & GPUSHM_REFUSE_DIRTY);
	r = attach_call(c, request_with(OPEN, open, &open), &a);
	return r < 0 ? r : buffer_open(c, name, &a, o.device, ret);
}

/* ---- closing ---- */

static int end(struct gpushm_buffer *b)
{
	int r = map_release(b->map);

	if (r < 0) {
		error_set_about(-r, "buffer", b->name);
		attach_keep_lease(b->connection, &b->lease);
	} else if (!b->lease.lost) {
		r = attach_close_lease(b->connection, &b->lease);
	}
	buffer_free(b);
	/* The lease has ended with the daemon, or the daemon ended it because its GPU was lost. */
	return r == -ECONNRESET || r == -EBADF ? 0 : r;
}

static int run_end(struct deferred *d)
{
	return end(container_of(d, struct gpushm_buffer, deferred));
}

static int check_closable(const struct gpushm_buffer *b)
{
	unsigned arrays = b->arrays;
	int r = buffer_check(b);

	if (r < 0 || arrays == 0)
		return r;
	return error_set(EBUSY,
			 "buffer \"%s\": %u arrays, views or DLPack tensors are alive: free them "
			 "first",
			 b->name, arrays);
}

int buffer_close(struct gpushm_buffer *b)
{
	int r = check_closable(b);

	return r < 0 ? r : end(b);
}

/* Without a GPU there is nothing to wait for, so the close is not deferred. */
int gpushm_close(struct gpushm_buffer *b)
{
	int r = b ? check_closable(b) : 0;

	if (!b || r < 0)
		return r;
	if (b->device < 0)
		return end(b);
	b->deferred = (struct deferred){ .owner = b->connection,
					 .device = b->device,
					 .bytes = map_bytes(b->map),
					 .capacity = map_device_bytes,
					 .run = run_end };
	return defer_add(&b->deferred);
}
