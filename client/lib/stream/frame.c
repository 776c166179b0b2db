/* SPDX-License-Identifier: MIT
 *
 * A frame in this process's hands: what it is and which arrays it has. Frames that were freed are
 * kept for the next ones, so that a frame costs no allocation.
 */
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/stream/stream.h"
#include "proto/stream_atomic.h"

#include <string.h>

/* ---- life ---- */

/* Under s->lock. NULL if no frame is spare. */
static struct gpushm_frame *take_spare(struct gpushm_stream *s)
{
	struct gpushm_frame *f;

	if (list_empty(&s->spare))
		return NULL;
	f = list_first(&s->spare, struct gpushm_frame, link);
	list_drop(&f->link);
	return f;
}

struct gpushm_frame *frame_new(struct gpushm_stream *s)
{
	struct gpushm_frame *f = s->fresh;

	if (!f) {
		f = malloc(sizeof(*f));
		if (!f)
			return NULL;
		list_init(&f->link);
		f->stream = s;
		s->fresh = f;
	}
	f->in_graph = false;
	return f;
}

/* For people: the frame that this reader has held for the longest time. Under s->lock. */
static void tell_oldest(struct gpushm_stream *s)
{
	struct stream_reader_page *p = s->follower.page.host;
	const struct gpushm_frame *f = list_first(&s->frames, struct gpushm_frame, link);
	bool holds = !list_empty(&s->frames);

	if (s->is_producer)
		return;
	stream_put(&p->oldest_ns, holds ? f->taken_ns : 0);
	stream_put(&p->oldest, holds ? f->at.seq : 0);
}

void frame_keep(struct gpushm_frame *f)
{
	struct gpushm_stream *s = f->stream;

	lock_guard(&s->lock, LOCK_STREAM);
	list_insert(&s->frames, &f->link);
	s->fresh = take_spare(s);
	tell_oldest(s);
}

void frame_free(struct gpushm_frame *f)
{
	struct gpushm_stream *s = f->stream;

	lock_guard(&s->lock, LOCK_STREAM);
	list_drop(&f->link);
	list_insert(&s->spare, &f->link);
	tell_oldest(s);
}

static int publish_ops(struct gpushm_frame *f, struct order_op *ops, size_t *ret_n)
{
	struct gpushm_stream *s = f->stream;
	int r = stream_register(s, &s->head);

	if (r < 0)
		return r;
	ops[0] = (struct order_op){
		.write = true,
		.address = order_address(&s->head, &stream_head(s)->slot[f->at.slot].ready),
		.value = f->at.seq
	};
	*ret_n = 1;
	return 0;
}

static int release_ops(struct gpushm_frame *f, struct order_op *ops, size_t *ret_n)
{
	struct follower *me = &f->stream->follower;
	uint64_t after = reader_release_after(&me->reader, &f->at), address;
	int r = stream_register(f->stream, &me->page);
	size_t n = 0;

	if (r < 0)
		return r;
	address = order_address(&me->page, &me->reader.page->claims[f->at.slot].released);
	if (after)
		ops[n++] = (struct order_op){ .address = address, .value = after };
	ops[n++] = (struct order_op){ .write = true,
				      .address = address,
				      .value = reader_release_value(&f->at) };
	*ret_n = n;
	return 0;
}

int frame_end_ops(struct gpushm_frame *f, struct order_op *ops, size_t *ret_n)
{
	return f->stream->is_producer ? publish_ops(f, ops, ret_n) : release_ops(f, ops, ret_n);
}

/* Whether what is queued on that CUDA stream comes after the last word of the slot. */
static bool is_behind(const struct gpushm_stream *s, uint32_t slot, void *cuda_stream)
{
	return s->ended_on[slot] && s->ended_on[slot] == order_stream_id(s->device, cuda_stream);
}

/* A reader's own wait is for its last release of the slot: see release_ops(). */
int frame_enqueue_end(struct gpushm_frame *f, void *cuda_stream)
{
	struct gpushm_stream *s = f->stream;
	uint32_t slot = f->at.slot;
	struct order_op ops[FRAME_END_OPS];
	size_t n, first = 0;
	int r;

	if (f->in_graph) {
		s->ended_on[slot] = 0;
		return 0;
	}
	r = frame_end_ops(f, ops, &n);
	if (r == 0 && n > 1 && is_behind(s, slot, cuda_stream))
		first = n - 1;
	if (r == 0)
		r = order_enqueue(s->device, cuda_stream, ops + first, n - first);
	s->ended_on[slot] = r == 0 ? order_stream_id(s->device, cuda_stream) : 0;
	return r;
}

/* ---- begin and cancel ---- */

int frame_take(struct gpushm_stream *s, bool on_host, uint64_t timeout_ms, struct order_op *ops,
	       size_t *ret_n, struct gpushm_frame **ret)
{
	return s->is_producer ? producer_begin(s, on_host, timeout_ms, ops, ret_n, ret)
			      : follower_next(s, on_host, timeout_ms, ops, ret_n, ret);
}

/* Whether the last of the waits, that for the producer's own frame in the slot, is of no use. */
static bool is_behind_itself(const struct gpushm_stream *s, void *cuda_stream)
{
	const struct writer_slot *slot = &s->producer.slot;

	return s->is_producer && slot->finished && is_behind(s, slot->slot, cuda_stream);
}

static int begin(struct gpushm_stream *s, bool producer, void *cuda_stream, uint64_t timeout_ms,
		 struct gpushm_frame **ret)
{
	struct order_op ops[ORDER_OPS_MAX];
	struct gpushm_frame *f;
	bool on_host;
	size_t n;
	int r = stream_check_role(s, producer);

	if (r == 0)
		r = stream_on_host(s, cuda_stream, &on_host);
	if (r == 0)
		r = frame_take(s, on_host, timeout_ms, ops, &n, &f);
	if (r < 0)
		return r;
	if (n > 0 && is_behind_itself(s, cuda_stream))
		n--;
	if (n > 0)
		r = order_enqueue(s->device, cuda_stream, ops, n);
	if (r < 0)
		frame_give_back(f);
	else
		*ret = f;
	return r;
}

int gpushm_frame_begin(struct gpushm_stream *s, void *cuda_stream, uint64_t timeout_ms,
		       struct gpushm_frame **ret)
{
	return begin(s, true, cuda_stream, timeout_ms, ret);
}

int gpushm_frame_next(struct gpushm_stream *s, void *cuda_stream, uint64_t timeout_ms,
		      struct gpushm_frame **ret)
{
	return begin(s, false, cuda_stream, timeout_ms, ret);
}

void frame_give_back(struct gpushm_frame *f)
{
	error_guard();
	if (f->stream->is_producer)
		producer_cancel(f);
	else
		follower_release(f, GPUSHM_ON_HOST);
}

struct gpushm_frame *gpushm_frame_cancel(struct gpushm_frame *f)
{
	if (f && stream_check(f->stream) == 0)
		frame_give_back(f);
	return NULL;
}

/* ---- arrays ---- */

static int compare(const void *name, const void *array)
{
	return strcmp(name, (*(struct gpushm_array *const *)array)->text);
}

int gpushm_frame_array(struct gpushm_frame *f, const char *name, struct gpushm_array **ret)
{
	struct gpushm_array *const *found;
	struct array_layout l;
	int r = error_null(f, "frame");

	if (r == 0)
		r = stream_check(f->stream);
	if (r == 0 && !name)
		r = stream_error(f->stream, EINVAL, "an array needs a name");
	if (r < 0)
		return r;
	found = bsearch(name, f->stream->arrays, f->stream->n_arrays, sizeof(*found), compare);
	if (!found)
		return stream_error(f->stream, ENOENT, "its frames have no array called \"%s\"",
				    name);
	array_copy_layout(&l, &(*found)->layout, 1);
	l.offset += f->at.slot * f->stream->slot_bytes;
	return array_derive(*found, &l, ret);
}

/* ---- getters ---- */

uint64_t gpushm_frame_seq(const struct gpushm_frame *f)
{
	return error_null(f, "frame") < 0 ? 0 : f->at.seq;
}

uint64_t gpushm_frame_time(const struct gpushm_frame *f)
{
	return error_null(f, "frame") < 0 ? 0 : f->at.time_ns;
}

const void *gpushm_frame_meta(const struct gpushm_frame *f, size_t *ret_n)
{
	if (error_null(f, "frame") < 0)
		return NULL;
	if (ret_n)
		*ret_n = f->at.meta_bytes;
	return f->at.meta;
}

uint64_t gpushm_frame_skipped(const struct gpushm_frame *f)
{
	return error_null(f, "frame") < 0 ? 0 : f->at.skipped;
}

uint32_t gpushm_frame_slot(const struct gpushm_frame *f)
{
	return error_null(f, "frame") < 0 ? 0 : f->at.slot;
}
