/* SPDX-License-Identifier: MIT
 *
 * A buffer of this process, from the attach to the close. It owns the lease, a reference on the map
 * and one on the connection, and counts the arrays that are alive in it; it is freed when it is
 * closed, and not before the last of them has gone.
 *
 * The order at the end is the protocol's: first the GPU's work is waited for and the memory
 * unmapped, then the daemon is told. A lease is never ended while the memory may still be mapped
 * here: what can't be unmapped stays leased until this process ends. All of that may have to wait
 * (defer.h); until it is done a closed buffer is the list's.
 */
#include "client/buffer/buffer.h"

#include "client/base/error.h"
#include "client/link/attach.h"
#include "proto/base/own.h"

static struct gpushm_buffer *buffer_free(struct gpushm_buffer *b)
{
	if (!b)
		return NULL;
	pthread_mutex_lock(&b->connection->lock);
	list_drop(&b->held.link);
	pthread_mutex_unlock(&b->connection->lock);
	table_builder_free(b->builder);
	image_done(&b->table);
	image_done(&b->attrs);
	pthread_mutex_destroy(&b->lock);
	connection_unref(b->connection);
	free(b);
	return NULL;
}

static struct gpushm_buffer *buffer_alloc(struct gpushm *c, const char *name, struct attach *a)
{
	struct gpushm_buffer *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->connection = connection_ref(c);
	b->table = b->attrs = IMAGE_NONE;
	pthread_mutex_init(&b->lock, NULL);
	b->id = a->buffer;
	b->lease = a->lease;
	b->bytes = a->bytes;
	b->digest = a->digest;
	b->state = a->state;
	b->access = a->access;
	b->dirty = a->dirty;
	b->pool = a->pool;
	strncpy(b->name, name, sizeof(b->name) - 1);
	attach_hand_over(a, &b->held);
	return b;
}

static int buffer_map(struct gpushm_buffer *b, const struct attach *a, int device)
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
	if (result == -ENOMEM && defer_flush_for_room())
		result = map_acquire(&r, &b->map, &b->device);
	return result;
}

static int buffer_attach(struct gpushm_buffer *b, struct attach *a, int device)
{
	int r = 0;

	if (a->table_fd >= 0)
		r = image_open(&a->table_fd, a->table_bytes, a->bytes, b->connection->server_uid,
			       &b->table);
	/* The map comes last: nothing that may fail stands behind it. */
	return r < 0 ? r : buffer_map(b, a, device);
}

int buffer_adopt(struct gpushm *c, const char *name, struct attach *a, int device,
		 struct gpushm_buffer **ret)
{
	struct gpushm_buffer *b = buffer_alloc(c, name, a);
	struct error why;
	int r;

	r = b ? buffer_attach(b, a, device) : error_set(ENOMEM, "out of memory for a buffer");
	if (r == 0) {
		*ret = b;
		return 0;
	}
	error_keep(&why);
	attach_close_lease(c, b ? &b->held : &a->held);
	error_put_back(&why);
	error_set_about(-r, "buffer", name);
	buffer_free(b);
	return r;
}

uint32_t buffer_word(const struct gpushm_buffer *b)
{
	const struct status_page_cell *slot = b->held.slot;

	if (slot)
		return status_page_read(slot, b->id);
	return (b->state == GPUSHM_SEALED ? STATUS_PAGE_SEALED : 0) |
	       (b->state == GPUSHM_SHARED ? STATUS_PAGE_SHARED : 0) |
	       (b->dirty ? STATUS_PAGE_DIRTY : 0);
}

void buffer_get(struct gpushm_buffer *b)
{
	b->arrays++;
}

void buffer_put(struct gpushm_buffer *b)
{
	b->arrays--;
}

/* Unmapped first, then told; see above. */
static int end(struct gpushm_buffer *b)
{
	int r = map_release(b->map);

	if (r < 0) {
		error_set_about(-r, "buffer", b->name);
		attach_strand(b->connection, &b->held);
	} else if (!b->held.lost)
		r = attach_close_lease(b->connection, &b->held);
	buffer_free(b);
	/* The lease went with the daemon, or the daemon ended it since the memory was lost: there
	 * is nobody left to tell. */
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

/* Without a GPU there is nothing to wait for, and nothing to gain. */
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
