/* SPDX-License-Identifier: MIT
 *
 * Copies between arrays, or bytes of a buffer, and the host's memory. This room decides who copies:
 * the CPU, for memory that it has mapped, or the driver, on a stream. How a strided copy goes is
 * walk.c's, and how the driver is made to do one, transfer.c's. It owns nothing.
 *
 * Pinned memory has both. A copy that is done on return waits for the default stream, as the driver
 * would, and is the CPU's; one that is queued has to keep its place on the stream, and is the
 * driver's.
 */
#include "client/array/array.h"

#include "client/array/copy_plan.h"
#include "client/array/transfer.h"
#include "client/base/error.h"
#include "client/buffer/buffer.h"

#include <errno.h>
#include <inttypes.h>

/* Where a copy goes. */
struct copy {
	const struct gpushm_buffer *buffer;
	uint64_t offset; /* bytes, of what the walk calls the start of the buffer's side */
	void *host;
	bool to_host;
	bool async;
	void *stream; /* NULL: the default one */
};

static int check_writable(const struct gpushm_buffer *b)
{
	if (gpushm_buffer_access(b) == GPUSHM_WRITE)
		return 0;
	return error_set(EROFS, "buffer \"%s\" is open for reading only", b->name);
}

static int by_cpu(const struct copy *c, const struct copy_plan *w)
{
	char *mapped = (char *)c->buffer->map->host_ptr + c->offset;

	if (c->to_host)
		copy_plan_copy(w, c->host, mapped);
	else
		copy_plan_copy(w, mapped, c->host);
	return 0;
}

/* In the map's context. */
static int by_stream(const struct copy *c, const struct copy_plan *w)
{
	struct map *m = c->buffer->map;
	int r;

	/* The legacy default stream waits for the work of all blocking streams before it (CUDA
	 * driver API, "Stream synchronization behavior"); so does whoever waits for it. */
	if (m->host_ptr && !c->async) {
		r = map_wait(NULL);
		return r < 0 ? r : by_cpu(c, w);
	}
	r = transfer(w, (char *)m->device_ptr + c->offset, c->host, c->to_host, c->stream);
	/* Who is told of an error may free what was being copied. */
	return c->async ? r : transfer_settle(c->stream, r);
}

static int carry_out(const struct copy *c, const struct copy_plan *w)
{
	struct map_entered entered;
	int r;

	if (gpushm_buffer_kind(c->buffer) == GPUSHM_HOST)
		return by_cpu(c, w);
	r = map_enter(c->buffer->device, &entered);
	if (r < 0)
		return r;
	r = by_stream(c, w);
	map_leave(&entered);
	return r;
}

/* ---- arrays ---- */

static void c_strides(const struct array_layout *l, int64_t *strides)
{
	int64_t stride = array_itemsize(l);

	for (int i = l->ndim - 1; i >= 0; i--) {
		strides[i] = stride;
		stride *= l->shape[i];
	}
}

/* A packed array has elements, but no addresses of elements: it is copied as its bytes. */
static int walk_bytes_of(const struct gpushm_array *a, const int64_t *host_strides,
			 struct copy_plan *ret)
{
	if (host_strides)
		return error_set(ENOTSUP,
				 "array \"%s\": elements narrower than a byte have no strides; "
				 "give NULL",
				 a->text);
	*ret = (struct copy_plan){ .run = gpushm_array_nbytes(a) };
	return 0;
}

static int walk_array(const struct gpushm_array *a, const int64_t *host_strides, bool to_host,
		      struct copy_plan *ret)
{
	const struct array_layout *l = &a->layout;
	const int64_t *dst, *src;
	int64_t strides[DIMENSIONS_MAX];

	if (dtype_packed(l->dtype))
		return walk_bytes_of(a, host_strides, ret);
	if (!host_strides) {
		c_strides(l, strides);
		host_strides = strides;
	}
	src = to_host ? l->strides : host_strides;
	dst = to_host ? host_strides : l->strides;
	if (copy_plan_init(ret, l->ndim, l->shape, dst, src, (size_t)array_itemsize(l)) < 0)
		return error_set(EINVAL, "array \"%s\": the host's strides reach too far", a->text);
	return 0;
}

/* An empty array asks for no more than the permission: its host pointer may be NULL. */
static int copy_array(const struct gpushm_array *a, const int64_t *host_strides, struct copy *c)
{
	struct copy_plan w;
	int r = array_check(a);

	if (r == 0 && !c->to_host)
		r = check_writable(a->buffer);
	if (r < 0 || a->size == 0)
		return r;
	c->buffer = a->buffer;
	c->offset = a->layout.offset;
	r = walk_array(a, host_strides, c->to_host, &w);
	return r < 0 ? r : carry_out(c, &w);
}

int gpushm_copy_to_host(const struct gpushm_array *a, void *host, const int64_t *host_strides)
{
	struct copy c = { .host = host, .to_host = true };

	return copy_array(a, host_strides, &c);
}

int gpushm_copy_from_host(struct gpushm_array *a, const void *host, const int64_t *host_strides)
{
	struct copy c = { .host = (void *)host };

	return copy_array(a, host_strides, &c);
}

int gpushm_copy_to_host_async(const struct gpushm_array *a, void *host, const int64_t *host_strides,
			      void *stream)
{
	struct copy c = { .host = host, .to_host = true, .async = true, .stream = stream };

	return copy_array(a, host_strides, &c);
}

int gpushm_copy_from_host_async(struct gpushm_array *a, const void *host,
				const int64_t *host_strides, void *stream)
{
	struct copy c = { .host = (void *)host, .async = true, .stream = stream };

	return copy_array(a, host_strides, &c);
}

/* ---- bytes ---- */

static int copy_bytes(struct copy *c, uint64_t bytes)
{
	struct copy_plan w = { .run = bytes };
	const struct gpushm_buffer *b = c->buffer;
	int r = buffer_check(b);

	if (r == 0 && !c->to_host)
		r = check_writable(b);
	if (r < 0)
		return r;
	if (c->offset > b->bytes || bytes > b->bytes - c->offset)
		return error_set(ERANGE,
				 "buffer \"%s\": %" PRIu64 " bytes at %" PRIu64
				 " lie outside of its %" PRIu64 " bytes",
				 b->name, bytes, c->offset, b->bytes);
	return bytes == 0 ? 0 : carry_out(c, &w);
}

int gpushm_read(const struct gpushm_buffer *b, uint64_t offset, void *host, uint64_t bytes)
{
	struct copy c = { .buffer = b, .offset = offset, .host = host, .to_host = true };

	return copy_bytes(&c, bytes);
}

int gpushm_write(struct gpushm_buffer *b, uint64_t offset, const void *host, uint64_t bytes)
{
	struct copy c = { .buffer = b, .offset = offset, .host = (void *)host };

	return copy_bytes(&c, bytes);
}
