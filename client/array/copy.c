/* SPDX-License-Identifier: MIT
 *
 * Copies between arrays, or bytes of a buffer, and the host's memory. This file decides who copies:
 * the CPU, for memory that it has mapped (copy_plan.c), or the driver, on a stream (transfer.c).
 *
 * Pinned memory has both. A copy that is done on return waits for the default stream, as the driver
 * would, and is done by the CPU. A queued copy must keep its place on the stream, so the driver
 * does it.
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
	uint64_t offset; /* bytes: the plan's start on the buffer's side */
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

static int by_cpu(const struct copy *c, const struct copy_plan *plan)
{
	char *mapped = (char *)c->buffer->map->host_ptr + c->offset;

	if (c->to_host)
		copy_plan_copy(plan, c->host, mapped);
	else
		copy_plan_copy(plan, mapped, c->host);
	return 0;
}

/* After map_enter(). */
static int by_stream(const struct copy *c, const struct copy_plan *plan)
{
	struct map *m = c->buffer->map;
	int r;

	/* Waiting for the legacy default stream waits for all blocking streams too (CUDA driver
	 * API, "Stream synchronization behavior"). */
	if (m->host_ptr && !c->async) {
		r = map_wait(NULL);
		return r < 0 ? r : by_cpu(c, plan);
	}
	r = transfer(plan, (char *)m->device_ptr + c->offset, c->host, c->to_host, c->stream);
	/* After an error the caller may free the memory: no queued copy may use it then. */
	return c->async ? r : transfer_settle(c->stream, r);
}

static int carry_out(const struct copy *c, const struct copy_plan *plan)
{
	struct map_entered entered;
	int r;

	if (gpushm_buffer_kind(c->buffer) == GPUSHM_HOST)
		return by_cpu(c, plan);
	r = map_enter(c->buffer->device, &entered);
	if (r < 0)
		return r;
	r = by_stream(c, plan);
	map_leave(&entered);
	return r;
}

/* ---- arrays ---- */

/* The elements of a packed array have no addresses: it is copied as bytes. */
static int plan_packed(const struct gpushm_array *a, const int64_t *host_strides,
		       struct copy_plan *ret)
{
	if (host_strides)
		return array_error(a, ENOTSUP,
				   "elements narrower than a byte have no strides; give NULL");
	*ret = (struct copy_plan){ .run = gpushm_array_nbytes(a) };
	return 0;
}

static int plan_array(const struct gpushm_array *a, const int64_t *host_strides, bool to_host,
		      struct copy_plan *ret)
{
	const struct array_layout *l = &a->layout;
	const int64_t *dst, *src;
	int64_t strides[DIMENSIONS_MAX];

	if (dtype_packed(l->dtype))
		return plan_packed(a, host_strides, ret);
	if (!host_strides) {
		array_c_strides(l, array_itemsize(l), strides);
		host_strides = strides;
	}
	src = to_host ? l->strides : host_strides;
	dst = to_host ? host_strides : l->strides;
	if (copy_plan_init(ret, l->ndim, l->shape, dst, src, (size_t)array_itemsize(l)) < 0)
		return array_error(a, EINVAL, "the host's strides reach too far");
	return 0;
}

/* For an empty array only the permission is checked: its host pointer may be NULL. */
static int copy_array(const struct gpushm_array *a, const int64_t *host_strides, struct copy *c)
{
	struct copy_plan plan;
	int r = array_check(a);

	if (r == 0 && !c->to_host)
		r = check_writable(a->buffer);
	if (r < 0 || a->size == 0)
		return r;
	c->buffer = a->buffer;
	c->offset = a->layout.offset;
	r = plan_array(a, host_strides, c->to_host, &plan);
	return r < 0 ? r : carry_out(c, &plan);
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
	struct copy_plan plan = { .run = bytes };
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
	return bytes == 0 ? 0 : carry_out(c, &plan);
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
