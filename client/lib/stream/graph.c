/* SPDX-License-Identifier: MIT
 *
 * Frames inside captured CUDA graphs. A graph has a node that acquires the frame (waits for words,
 * and writes the address of the frame's slot where the graph's kernels find it) and one that
 * ends it. Both are batches of operations on words, whose addresses and values can be changed in
 * the instantiated graph, but not their number: a node has as many waits as there may ever be, and
 * those that a frame does not need wait for a word that is reached already.
 */
#include "client/lib/stream/stream.h"

#include "proto/stream_atomic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct gpushm_graph_frame {
	struct gpushm_stream *stream;
	void *acquire, *release; /* CUgraphNode; release: NULL before gpushm_graph_release() */
	uint64_t where;		 /* 0: none */
	size_t n_waits;
};

/* A wait that is over: a slot's ready word only grows. */
static struct order_op reached(const struct gpushm_stream *s, uint32_t slot)
{
	struct stream_slot *at = &stream_head(s)->slot[slot];

	return (struct order_op){ .address = order_address(&s->head, &at->ready),
				  .value = stream_load(&at->ready) };
}

static uint64_t slot_address(const struct gpushm_stream *s, uint32_t slot)
{
	return (uintptr_t)s->buffer->map->device_ptr + slot * s->slot_bytes;
}

/* The n operations in ops become those of the node. Returns their number. */
static size_t complete(const struct gpushm_graph_frame *g, uint32_t slot, size_t n,
		       struct order_op ops[ORDER_OPS_MAX])
{
	const struct gpushm_stream *s = g->stream;

	while (n < g->n_waits)
		ops[n++] = reached(s, slot);
	if (g->where)
		ops[n++] = (struct order_op){ .write = true,
					      .address = g->where,
					      .value = slot_address(s, slot) };
	return n;
}

/* What ends a frame, with n operations in ops, becomes those of the node: a reader's has a wait
 * before its write, a producer's has none. Returns their number. */
static size_t complete_end(const struct gpushm_stream *s, uint32_t slot, size_t n,
			   struct order_op ops[FRAME_END_OPS])
{
	if (s->is_producer || n == FRAME_END_OPS)
		return n;
	ops[1] = ops[0];
	ops[0] = reached(s, slot);
	return FRAME_END_OPS;
}

/* The end of a frame in slot 0 that has ended. */
static size_t ended(const struct gpushm_stream *s, struct order_op ops[FRAME_END_OPS])
{
	const struct stream_reader_page *page = s->follower.page.host;

	if (s->is_producer) {
		ops[0] = reached(s, 0);
	} else {
		ops[0].address = order_address(&s->follower.page, &page->claims[0].released);
		ops[0].value = stream_load(&page->claims[0].released);
	}
	ops[0].write = true;
	return complete_end(s, 0, 1, ops);
}

static int check(const struct gpushm_stream *s)
{
	int r = stream_check(s);

	if (r == 0 && !s->on_gpu)
		return stream_error(s, ENOTSUP, "it is in host memory, which no CUDA graph uses");
	return r;
}

static int register_pages(struct gpushm_stream *s)
{
	int r = stream_register(s, &s->head);

	return r < 0 || s->is_producer ? r : stream_register(s, &s->follower.page);
}

static int capture_acquire(struct gpushm_graph_frame *g, void *capturing)
{
	struct order_op ops[ORDER_OPS_MAX];

	return order_capture(g->stream->device, capturing, ops, complete(g, 0, 0, ops),
			     &g->acquire);
}

int gpushm_graph_acquire(struct gpushm_stream *s, void *capturing, void *where,
			 struct gpushm_graph_frame **ret)
{
	struct gpushm_graph_frame *g;
	int r = check(s);

	if (r == 0)
		r = order_check_stream(s->device, capturing);
	if (r == 0)
		r = register_pages(s);
	if (r < 0)
		return r;
	g = calloc(1, sizeof(*g));
	if (!g)
		return stream_error(s, ENOMEM, "out of memory");
	g->stream = s;
	g->where = (uintptr_t)where;
	/* A producer's: one for each reader, and one for the GPU work of the frame before. */
	g->n_waits = s->is_producer ? s->readers + 1 : 1;
	r = capture_acquire(g, capturing);
	if (r < 0)
		g = gpushm_graph_free(g);
	else
		*ret = g;
	return r;
}
_Static_assert(ORDER_OPS_MAX >= STREAM_READERS_MAX + 2, "all waits, and the slot's address");

int gpushm_graph_release(struct gpushm_graph_frame *g, void *capturing)
{
	struct order_op ops[FRAME_END_OPS];
	int r = error_null(g, "graph frame");

	if (r == 0)
		r = stream_check(g->stream);
	if (r == 0)
		r = order_check_stream(g->stream->device, capturing);
	if (r < 0)
		return r;
	if (g->release)
		return stream_error(g->stream, EINVAL, "the graph has the frame's end already");
	return order_capture(g->stream->device, capturing, ops, ended(g->stream, ops), &g->release);
}

int gpushm_graph_offset(const struct gpushm_stream *s, const char *array, uint64_t *ret)
{
	const char *base;
	int r = check(s);

	if (r == 0 && !array)
		r = stream_error(s, EINVAL, "an array needs a name");
	if (r < 0)
		return r;
	base = s->buffer->map->device_ptr;
	for (size_t i = 0; i < s->n_arrays; i++) {
		if (strcmp(gpushm_array_name(s->arrays[i]), array) != 0)
			continue;
		*ret = (uint64_t)((const char *)gpushm_array_device_ptr(s->arrays[i]) - base);
		return 0;
	}
	return stream_error(s, ENOENT, "it has no array \"%s\"", array);
}

/* ---- before each launch ---- */

static int set_nodes(struct gpushm_graph_frame *g, void *graph_exec, struct gpushm_frame *f,
		     struct order_op ops[ORDER_OPS_MAX], size_t n)
{
	struct gpushm_stream *s = g->stream;
	struct order_op end[FRAME_END_OPS];
	size_t n_end = 0;
	int r;

	if (n > g->n_waits)
		return stream_error(s, EPROTO, "the slot needs %zu waits, and the graph has %zu", n,
				    g->n_waits);
	r = order_set_node(s->device, graph_exec, g->acquire, ops, complete(g, f->at.slot, n, ops));
	if (r == 0)
		r = frame_end_ops(f, end, &n_end);
	if (r < 0)
		return r;
	return order_set_node(s->device, graph_exec, g->release, end,
			      complete_end(s, f->at.slot, n_end, end));
}

int gpushm_graph_next(struct gpushm_graph_frame *g, void *graph_exec, uint64_t timeout_ms,
		      struct gpushm_frame **ret)
{
	struct order_op ops[ORDER_OPS_MAX];
	struct gpushm_frame *f;
	size_t n = 0;
	int r = error_null(g, "graph frame");

	if (r == 0)
		r = stream_check(g->stream);
	if (r == 0)
		r = error_null(graph_exec, "instantiated graph");
	if (r < 0)
		return r;
	if (!g->release)
		return stream_error(g->stream, EINVAL,
				    "the graph does not release the frame: call "
				    "gpushm_graph_release() while it is captured");
	r = frame_take(g->stream, false, timeout_ms, ops, &n, &f);
	if (r < 0)
		return r;
	r = set_nodes(g, graph_exec, f, ops, n);
	if (r < 0) { /* no launch has used it */
		frame_give_back(f);
		return r;
	}
	f->in_graph = true;
	*ret = f;
	return 0;
}

struct gpushm_graph_frame *gpushm_graph_free(struct gpushm_graph_frame *g)
{
	free(g);
	return NULL;
}
