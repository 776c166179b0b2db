/* SPDX-License-Identifier: MIT
 *
 * Strided copies between the host and a GPU. The driver copies rows of bytes, in one call as many
 * as have the same positive pitch. A call costs some microseconds, as much as copying CALL_COST
 * bytes. So where a plan has many short rows, its parts go through a buffer on the host:
 *
 *  - To the host, the driver copies all bytes that a part spans, with the gaps, and the CPU picks
 *    the elements out of them.
 *  - To the device, the CPU packs the elements in the order in which they lie on the device, and
 *    the driver copies them from there: in one call, where they leave no gaps. It never reads the
 *    bytes of gaps and writes them back: that would undo what another process writes there
 *    meanwhile.
 *
 * Between two places on GPUs, the driver copies rows, too. Many short ones go through the host in
 * both of these ways, one after the other.
 *
 * It chooses the cheaper way for each part. The buffer is freed when the copy is done, so such a
 * copy blocks until the stream has passed it.
 */
#include "client/lib/array/transfer.h"

#include "client/lib/base/error.h"
#include "proto/base/own.h"

#include <string.h>

#define CALL_COST (64u << 10)	 /* bytes: 2 us at 30 GB/s */
#define BUFFER_BYTES (16u << 20) /* 64 MiB are no faster and cost page faults */

struct transfer {
	char *device, *host;
	bool to_host;
	bool on_device; /* `host` is memory of a GPU */
	void *stream;
	char *buffer; /* owned; NULL until it is needed */
};

/* The axis that one call can copy as rows: the longest one whose pitch on both sides is at least a
 * row. -1: none. Where the order of steps counts, it is the innermost axis or none. */
static int rows_axis(const struct copy_plan *plan)
{
	int best = -1;

	for (int i = plan->ordered && plan->n_axes > 0 ? plan->n_axes - 1 : 0; i < plan->n_axes;
	     i++) {
		const struct copy_plan_axis *a = &plan->axes[i];
		int64_t width = (int64_t)plan->run;

		if (a->dst >= width && a->src >= width && (best < 0 || a->n > plan->axes[best].n))
			best = i;
	}
	return best;
}

/* Driver calls that the plan needs. */
static uint64_t count_calls(const struct copy_plan *plan)
{
	int rows = rows_axis(plan);
	uint64_t calls = 1;

	for (int i = 0; i < plan->n_axes; i++)
		if (i != rows)
			calls *= (uint64_t)plan->axes[i].n;
	return calls;
}

/* The cost of the calls, as bytes of copying. The product may overflow. */
static uint64_t count_cost(const struct copy_plan *plan)
{
	uint64_t cost;

	if (__builtin_mul_overflow(count_calls(plan), (uint64_t)CALL_COST, &cost))
		return UINT64_MAX;
	return cost;
}

/* The span of the bytes that are read, and how far the lowest lies before the plan's start. */
static uint64_t source_span(const struct copy_plan *plan, int64_t *ret_before)
{
	uint64_t bytes = plan->run;
	int64_t before = 0;

	for (int i = 0; i < plan->n_axes; i++) {
		int64_t reach = (plan->axes[i].n - 1) * plan->axes[i].src;

		before += reach < 0 ? -reach : 0;
		bytes += (uint64_t)(reach < 0 ? -reach : reach);
	}
	*ret_before = before;
	return bytes;
}

/* ---- by the driver alone ---- */

static int copy_rows(const struct transfer *t, const struct copy_plan *plan,
		     const struct copy_plan_axis *rows)
{
	struct map_copy c = {
		.width = plan->run, .height = 1, .to_host = t->to_host, .on_device = t->on_device
	};

	if (rows) {
		c.height = (size_t)rows->n;
		c.device_pitch = (size_t)(t->to_host ? rows->src : rows->dst);
		c.host_pitch = (size_t)(t->to_host ? rows->dst : rows->src);
	}
	c.device = t->device + (t->to_host ? plan->src_at : plan->dst_at);
	c.host = t->host + (t->to_host ? plan->dst_at : plan->src_at);
	return map_copy(&c, t->stream);
}

/* Loops over all axes but the one of the rows. */
static int copy_direct(const struct transfer *t, const struct copy_plan *plan,
		       const struct copy_plan_axis *rows)
{
	const struct copy_plan_axis *a = &plan->axes[0];
	struct copy_plan inner;

	if (plan->n_axes == 0)
		return copy_rows(t, plan, rows);
	copy_plan_inner(plan, &inner);
	for (int64_t i = 0; i < a->n; i++) {
		int r = copy_direct(t, &inner, rows);

		if (r < 0)
			return r;
		inner.dst_at += a->dst;
		inner.src_at += a->src;
	}
	return 0;
}

static int direct(const struct transfer *t, const struct copy_plan *plan)
{
	struct copy_plan outer = *plan;
	struct copy_plan_axis rows;
	int axis = rows_axis(plan);

	if (axis < 0)
		return copy_direct(t, plan, NULL);
	rows = plan->axes[axis];
	outer.n_axes--;
	memmove(outer.axes + axis, outer.axes + axis + 1,
		(size_t)(outer.n_axes - axis) * sizeof(rows));
	return copy_direct(t, &outer, &rows);
}

/* ---- through the buffer ---- */

static int need_buffer(struct transfer *t)
{
	if (!t->buffer)
		t->buffer = malloc(BUFFER_BYTES);
	return t->buffer ? 0 : error_set(ENOMEM, "no memory for the buffer of a strided copy");
}

static int gather(struct transfer *t, const struct copy_plan *plan, uint64_t span, int64_t before)
{
	struct map_copy c = { .device = t->device + plan->src_at - before,
			      .width = span,
			      .height = 1,
			      .to_host = true };
	struct copy_plan pick = *plan;
	int r = need_buffer(t);

	if (r < 0)
		return r;
	c.host = t->buffer;
	r = map_copy(&c, t->stream);
	if (r == 0)
		r = map_wait(t->stream);
	if (r < 0)
		return r;
	pick.src_at = before;
	copy_plan_copy(&pick, t->host, t->buffer, NULL);
	return 0;
}

int transfer_settle(void *stream, int r)
{
	if (r == 0)
		return map_wait(stream);
	error_guard();
	map_wait(stream);
	return r;
}

static int scatter(struct transfer *t, const struct copy_plan *pack, const struct copy_plan *place)
{
	struct transfer from_buffer;
	int r = need_buffer(t);

	if (r < 0)
		return r;
	copy_plan_copy(pack, t->buffer, t->host, NULL);
	from_buffer = *t;
	from_buffer.host = t->buffer;
	/* The buffer is freed later: also after a failed call, queued copies may read it. */
	return transfer_settle(t->stream, direct(&from_buffer, place));
}

/* ---- the choice ---- */

static int move(struct transfer *t, const struct copy_plan *plan);

/* Parts of the outermost axis, each of as many steps as fit the buffer, or of one. */
static int by_parts(struct transfer *t, const struct copy_plan *plan, uint64_t step_bytes)
{
	const struct copy_plan_axis *a = &plan->axes[0];
	int64_t steps = step_bytes < BUFFER_BYTES ? (int64_t)(BUFFER_BYTES / step_bytes) : 1;

	for (int64_t at = 0; at < a->n; at += steps) {
		int64_t n = steps < a->n - at ? steps : a->n - at;
		struct copy_plan part = *plan;
		int r;

		part.axes[0].n = n;
		if (n == 1)
			copy_plan_inner(plan, &part);
		part.dst_at += at * a->dst;
		part.src_at += at * a->src;
		r = move(t, &part);
		if (r < 0)
			return r;
	}
	return 0;
}

static int move_to_host(struct transfer *t, const struct copy_plan *plan)
{
	struct copy_plan inner;
	int64_t before;
	uint64_t span = source_span(plan, &before), step;

	if (plan->n_axes == 0 || count_calls(plan) == 1 || count_cost(plan) <= span)
		return direct(t, plan);
	if (span <= BUFFER_BYTES)
		return gather(t, plan, span, before);

	copy_plan_inner(plan, &inner);
	step = source_span(&inner, &before);
	/* n steps span (n - 1) strides and one step. */
	if ((uint64_t)llabs(plan->axes[0].src) > step)
		step = (uint64_t)llabs(plan->axes[0].src);
	return by_parts(t, plan, step);
}

static int move_to_device(struct transfer *t, const struct copy_plan *plan)
{
	struct copy_plan pack, place, inner;
	uint64_t bytes = copy_plan_bytes(plan), cost;

	copy_plan_split(plan, &pack, &place);
	if (plan->n_axes == 0 || count_calls(plan) == 1 ||
	    __builtin_add_overflow(count_cost(&place), bytes, &cost) || count_cost(plan) <= cost)
		return direct(t, plan);
	if (bytes <= BUFFER_BYTES)
		return scatter(t, &pack, &place);
	copy_plan_inner(plan, &inner);
	return by_parts(t, plan, copy_plan_bytes(&inner));
}

int transfer_staged(const struct copy_plan *plan, void *dst, void *src, void *stream)
{
	_cleanup_(free_ptr) char *staged = malloc(copy_plan_bytes(plan));
	struct copy_plan pack, place;
	int r;

	if (!staged)
		return error_set(ENOMEM, "no memory for the copy of an array on the host");
	copy_plan_split(plan, &pack, &place);
	r = transfer(&pack, src, staged, true, stream);
	if (r == 0)
		r = map_wait(stream);
	if (r == 0)
		r = transfer(&place, dst, staged, false, stream);
	return transfer_settle(stream, r);
}

/* Through the host each byte is copied twice. */
static int move_on_device(struct transfer *t, const struct copy_plan *plan)
{
	uint64_t bytes = copy_plan_bytes(plan);
	struct copy_plan inner;

	if (plan->n_axes == 0 || count_calls(plan) == 1 || count_cost(plan) / 2 <= bytes)
		return direct(t, plan);
	if (bytes <= BUFFER_BYTES)
		return transfer_staged(plan, t->device, t->host, t->stream);
	copy_plan_inner(plan, &inner);
	return by_parts(t, plan, copy_plan_bytes(&inner));
}

static int move(struct transfer *t, const struct copy_plan *plan)
{
	if (t->on_device)
		return move_on_device(t, plan);
	return t->to_host ? move_to_host(t, plan) : move_to_device(t, plan);
}

int transfer(const struct copy_plan *plan, void *device, void *host, bool to_host, void *stream)
{
	struct transfer t = { device, host, to_host, false, stream, NULL };
	int r = move(&t, plan);

	free(t.buffer);
	return r;
}

int transfer_on_device(const struct copy_plan *plan, void *dst, void *src, void *stream)
{
	struct transfer t = { .device = dst, .host = src, .on_device = true, .stream = stream };

	return move(&t, plan);
}
