/* SPDX-License-Identifier: MIT
 *
 * Copies between arrays, or bytes of a buffer, and the host's memory. This file decides who copies:
 * the CPU, for memory that it has mapped (copy_plan.c), or the driver, on a stream (transfer.c).
 *
 * Pinned memory has both. A copy that is done on return waits for the default stream, as the driver
 * would, and is done by the CPU. A queued copy must keep its place on the stream, so the driver
 * does it.
 */
#include "client/gpushm_array.h"
#include "client/lib/array/array.h"

#include "client/lib/array/copy_plan.h"
#include "client/lib/array/transfer.h"
#include "client/lib/base/error.h"
#include "client/lib/buffer/buffer.h"
#include "proto/base/sized.h"

#include <errno.h>
#include <inttypes.h>

/* Where a copy goes. */
struct copy {
	const struct gpushm_buffer *buffer;
	struct huge_pages *fresh; /* the buffer's, if it is written to; else NULL */
	uint64_t offset;	  /* bytes: the plan's start on the buffer's side */
	void *host;		  /* the other side */
	bool to_host;
	bool on_device; /* the other side is memory of the GPU `device` */
	int device;
	bool async;
	void *stream; /* NULL: the default one */
};

static int check_writable(const struct gpushm_buffer *b)
{
	if (gpushm_buffer_access(b) == GPUSHM_WRITE)
		return 0;
	return error_set(EROFS, "buffer \"%s\" is open for reading only", b->name);
}

/* The GPU that does the copy; -1: the CPU does it. */
static int device_of(const struct copy *c)
{
	return kind_of(gpushm_buffer_kind(c->buffer))->by_driver ? c->buffer->device
	       : c->on_device					 ? c->device
								 : -1;
}

/* Through memory of its own, where both sides overlap. */
static int by_cpu_staged(const struct copy_plan *plan, void *dst, const void *src)
{
	_cleanup_(free_ptr) char *staged = malloc(copy_plan_bytes(plan));
	struct copy_plan pack, place;

	if (!staged)
		return error_set(ENOMEM, "no memory for the copy of an array that overlaps");
	copy_plan_split(plan, &pack, &place);
	copy_plan_copy(&pack, staged, src, NULL);
	copy_plan_copy(&place, dst, staged, NULL);
	return 0;
}

static int by_cpu(const struct copy *c, const struct copy_plan *plan)
{
	char *mapped = (char *)c->buffer->map->host_ptr + c->offset;
	void *dst = c->to_host ? c->host : mapped, *src = c->to_host ? mapped : c->host;

	if (copy_plan_overlaps(plan, dst, src))
		return by_cpu_staged(plan, dst, src);
	copy_plan_copy(plan, dst, src, c->fresh);
	return 0;
}

/* One side of a copy. */
struct side {
	void *at;
	int device;
	void *stream;
};

static int move_staged(const struct copy_plan *plan, const struct side *s, void *staged,
		       bool to_host)
{
	_cleanup_(map_leave) struct map_entered entered;
	int r = map_enter(s->device, &entered);

	if (r < 0)
		return r;
	return transfer_settle(s->stream, transfer(plan, s->at, staged, to_host, s->stream));
}

#define PEER_MIN (1u << 20) /* bytes; fewer are sooner copied than mapped for another GPU */

/* The other GPU copies: it can use its own memory, and the buffer's by peer access. Done on return,
 * behind what is queued on both. */
static int by_peer(const struct copy *c, const struct copy_plan *plan, void *dst, void *src)
{
	_cleanup_(map_leave) struct map_entered entered = { 0 };
	int r = map_wait(c->stream);

	if (r == 0)
		r = map_share(c->buffer->map, c->device);
	if (r == 0)
		r = map_enter(c->device, &entered);
	return r < 0 ? r : transfer_settle(NULL, transfer_on_device(plan, dst, src, NULL));
}

/* A copy from one GPU to another by way of the host, where they have no access to each other's
 * memory. A stream belongs to one GPU: on the other one this uses the default stream. */
static int between_gpus(const struct copy *c, const struct copy_plan *plan, void *mapped)
{
	_cleanup_(free_ptr) void *staged = malloc(copy_plan_bytes(plan));
	const struct side own = { mapped, c->buffer->device, c->stream };
	const struct side other = { c->host, c->device, NULL };
	struct copy_plan pack, place;
	int r;

	if (!staged)
		return error_set(ENOMEM, "no memory for a copy from one GPU to another");
	copy_plan_split(plan, &pack, &place);
	r = move_staged(&pack, c->to_host ? &own : &other, staged, true);
	return r < 0 ? r : move_staged(&place, c->to_host ? &other : &own, staged, false);
}

/* What is queued on the other GPU comes before the copy. */
static int wait_for_other(const struct copy *c)
{
	_cleanup_(map_leave) struct map_entered entered;
	int r = map_enter(c->device, &entered);

	return r < 0 ? r : map_wait(NULL);
}

static int by_driver(const struct copy *c, const struct copy_plan *plan)
{
	const struct map *m = c->buffer->map;
	char *mapped = (char *)(m->device_ptr ? m->device_ptr : m->host_ptr) + c->offset;
	void *dst = c->to_host ? c->host : mapped, *src = c->to_host ? mapped : c->host;
	bool is_other = c->on_device && c->device != device_of(c);
	int r;

	/* A host pool's memory is the host's side. */
	if (!m->device_ptr)
		return transfer(plan, c->host, mapped, !c->to_host, c->stream);
	/* Pinned memory has one address for both. */
	if (copy_plan_overlaps(plan, dst, src))
		return transfer_staged(plan, dst, src, c->stream);
	if (!c->on_device)
		return transfer(plan, mapped, c->host, c->to_host, c->stream);
	r = is_other ? wait_for_other(c) : 0;
	if (r < 0)
		return r;
	r = transfer_on_device(plan, dst, src, c->stream);
	if (r < 0 && is_other && copy_plan_bytes(plan) >= PEER_MIN)
		r = by_peer(c, plan, dst, src);
	return r < 0 && is_other ? between_gpus(c, plan, mapped) : r;
}

/* After map_enter(). */
static int by_stream(const struct copy *c, const struct copy_plan *plan)
{
	int r;

	/* Waiting for the legacy default stream waits for all blocking streams too (CUDA driver
	 * API, "Stream synchronization behavior"). */
	if (c->buffer->map->host_ptr && !c->async && !c->on_device) {
		r = map_wait(NULL);
		return r < 0 ? r : by_cpu(c, plan);
	}
	r = by_driver(c, plan);
	/* After an error the caller may free the memory: no queued copy may use it then. */
	return c->async ? r : transfer_settle(c->stream, r);
}

static int move(const struct copy *c, const struct copy_plan *plan)
{
	_cleanup_(map_leave) struct map_entered entered = { 0 };
	int device = device_of(c), r;

	if (device < 0)
		return by_cpu(c, plan);
	r = map_enter(device, &entered);
	return r < 0 ? r : by_stream(c, plan);
}

static int carry_out(const struct copy *c, const struct copy_plan *plan)
{
	int r = buffer_pin(c->buffer);

	if (r < 0)
		return r;
	r = move(c, plan);
	buffer_unpin(c->buffer);
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
	c->fresh = c->to_host ? NULL : &a->buffer->fresh;
	c->offset = a->layout.offset;
	r = plan_array(a, host_strides, c->to_host, &plan);
	return r < 0 ? r : carry_out(c, &plan);
}

int gpushm_copy_to_host(const struct gpushm_array *a, void *host, const int64_t *host_strides)
{
	return copy_array(a, host_strides, &(struct copy){ .host = host, .to_host = true });
}

int gpushm_copy_from_host(struct gpushm_array *a, const void *host, const int64_t *host_strides)
{
	return copy_array(a, host_strides, &(struct copy){ .host = (void *)host });
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

/* ---- many arrays ---- */

static int check_one(const struct gpushm_copy *one)
{
	int r = error_flags(one->flags, GPUSHM_COPY_OUT);

	if (r < 0)
		return r;
	if (one->device < GPUSHM_HOST_MEMORY || one->device >= 64)
		return error_set(EINVAL, "%d is no GPU whose memory could be copied", one->device);
	return array_check(one->array);
}

/* GPUs as bits, on which something was queued. */
struct queued {
	uint64_t devices;
	uint64_t by_host; /* of them: copies of host pools, which the CPU may use at once */
};

static int queue(const struct gpushm_copy *one, void *stream, struct queued *q)
{
	struct copy c = { .host = one->memory,
			  .to_host = one->flags & GPUSHM_COPY_OUT,
			  .on_device = one->device >= 0,
			  .device = one->device,
			  .async = true,
			  .stream = stream };
	uint64_t device;
	int r = check_one(one);

	if (r < 0)
		return r;
	c.buffer = one->array->buffer;
	device = device_of(&c) < 0 ? 0 : (uint64_t)1 << device_of(&c);
	q->devices |= device;
	if (!kind_of(gpushm_buffer_kind(c.buffer))->by_driver)
		q->by_host |= device;
	return copy_array(one->array, one->strides, &c);
}

/* Waits on each of the GPUs. r: as for transfer_settle(). */
static int settle(uint64_t devices, void *stream, int r)
{
	for (; devices; devices &= devices - 1) {
		_cleanup_(map_leave) struct map_entered entered;
		struct error why;
		int e;

		error_keep(&why);
		e = map_enter(__builtin_ctzll(devices), &entered);
		if (e == 0)
			e = map_wait(stream);
		if (r < 0)
			error_put_back(&why);
		else
			r = e;
	}
	return r;
}

static int check_copies(const struct gpushm_copy *copies, size_t n, uint32_t flags)
{
	int r = n > 0 ? error_null(copies, "list of copies") : 0;

	if (r == 0)
		r = error_flags(flags, GPUSHM_COPY_ASYNC);
	if (r == 0)
		r = error_wrong("the copies", sized_check_all(copies, n, sizeof(*copies)));
	return r;
}

int gpushm_copy_many(const struct gpushm_copy *copies, size_t n, uint32_t flags, void *stream)
{
	struct queued q = { 0 };
	int r = check_copies(copies, n, flags);

	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r == 0; i++) {
		struct gpushm_copy one;

		sized_read(sized_at(copies, i), &one, sizeof(one));
		r = queue(&one, stream, &q);
	}
	/* After an error the caller may free the memory. */
	return settle(r == 0 && (flags & GPUSHM_COPY_ASYNC) ? q.by_host : q.devices, stream, r);
}

/* ---- bytes ---- */

static int copy_bytes(struct copy *c, uint64_t bytes)
{
	struct copy_plan plan = { .run = bytes };
	const struct gpushm_buffer *b = c->buffer;
	int r = buffer_check_memory(b);

	if (r == 0 && !c->to_host)
		r = check_writable(b);
	if (r < 0)
		return r;
	if (c->offset > b->bytes || bytes > b->bytes - c->offset)
		return error_set(ERANGE,
				 "buffer \"%s\": %" PRIu64 " bytes at %" PRIu64
				 " lie outside of its %" PRIu64 " bytes",
				 b->name, bytes, c->offset, b->bytes);
	if (!b->map)
		return buffer_error(b, EBADF, "it is open without its memory");
	return bytes == 0 ? 0 : carry_out(c, &plan);
}

int gpushm_read(const struct gpushm_buffer *b, uint64_t offset, void *host, uint64_t bytes)
{
	struct copy c = { .buffer = b, .offset = offset, .host = host, .to_host = true };

	return copy_bytes(&c, bytes);
}

int gpushm_write(struct gpushm_buffer *b, uint64_t offset, const void *host, uint64_t bytes)
{
	struct copy c = {
		.buffer = b, .fresh = b ? &b->fresh : NULL, .offset = offset, .host = (void *)host
	};

	return copy_bytes(&c, bytes);
}
