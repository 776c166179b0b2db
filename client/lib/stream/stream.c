/* SPDX-License-Identifier: MIT
 *
 * What a stream is in this process, and what it can be asked: pages, arrays and numbers.
 */
#include "client/lib/stream/stream.h"

#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/stream/pages.h"
#include "client/lib/stream/wait.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/sized.h"
#include "proto/stream_atomic.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(GPUSHM_META_MAX == STREAM_META_MAX, "one holds the other");

int stream_check_role(const struct gpushm_stream *s, bool producer)
{
	int r = stream_check(s);

	if (r < 0 || s->is_producer == producer)
		return r;
	return stream_error(s, EBADF, "%s",
			    producer ? "this process reads it; its producer fills frames"
				     : "this process produces it; open it to read frames");
}

int stream_on_host(const struct gpushm_stream *s, void *cuda_stream, bool *ret)
{
	*ret = cuda_stream == GPUSHM_ON_HOST || !s->on_gpu;
	if (!cuda_stream || cuda_stream == GPUSHM_ON_HOST)
		return 0;
	if (s->on_gpu)
		return order_check_stream(s->device, cuda_stream);
	return stream_error(s, ENOTSUP,
			    "it is in a host pool, which no GPU can use: pass GPUSHM_ON_HOST");
}

int stream_register(struct gpushm_stream *s, struct order_page *p)
{
	lock_guard(&s->lock, LOCK_STREAM);
	return order_register(p, s->device);
}

uint64_t stream_spin_end(const struct gpushm_stream *s, uint64_t begun, uint64_t now,
			 uint64_t deadline)
{
	uint64_t least = now + (s->spin_ns < WAIT_SPIN_NS ? s->spin_ns : WAIT_SPIN_NS);
	uint64_t end = begun + s->spin_ns;

	end = end > least ? end : least;
	return end < deadline ? end : deadline;
}

bool stream_is_idle(struct gpushm_stream *s, uint64_t begun, uint64_t ns)
{
	if (s->idle_since == 0)
		s->idle_since = begun;
	if (clock_monotonic_ns() - s->idle_since < ns)
		return false;
	s->idle_since = 0;
	return true;
}

int stream_check_daemon(struct gpushm_stream *s)
{
	int r = 0;

	if (stream_is_idle(s, clock_monotonic_ns(), WAIT_IDLE_NS))
		r = wait_check_daemon(s->buffer, &s->outage);
	return r < 0 ? r : -EAGAIN;
}

/* ---- arrays ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct gpushm_array *const *)a)->text,
		      (*(struct gpushm_array *const *)b)->text);
}

void stream_free_arrays(struct gpushm_stream *s)
{
	while (s->n_arrays > 0)
		gpushm_array_free(s->arrays[--s->n_arrays]);
	free_ptr(&s->arrays);
}

/* The table is the creator's: each array must have the slots. */
static int check_array(const struct gpushm_stream *s, const struct gpushm_array *a)
{
	if (a->layout.ndim > 0 && a->layout.shape[0] == (int64_t)s->slots &&
	    (uint64_t)a->layout.strides[0] == s->slot_bytes)
		return 0;
	return stream_error(s, EPROTO, "array \"%s\" has no dimension of %" PRIu32 " slots",
			    a->text, s->slots);
}

int stream_get_arrays(struct gpushm_stream *s)
{
	size_t n = gpushm_buffer_arrays(s->buffer);
	int r = 0;

	s->arrays = calloc(n + 1, sizeof(*s->arrays));
	if (!s->arrays)
		return stream_error(s, ENOMEM, "out of memory for its arrays");
	while (s->n_arrays < n && r == 0) {
		r = gpushm_array_at(s->buffer, s->n_arrays, &s->arrays[s->n_arrays]);
		if (r == 0)
			r = check_array(s, s->arrays[s->n_arrays++]);
	}
	qsort(s->arrays, s->n_arrays, sizeof(*s->arrays), by_name);
	return r;
}

/* ---- making one ---- */

struct gpushm_stream *client_stream_new(struct gpushm_buffer *b)
{
	struct gpushm_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->buffer = b;
	b->of_stream = true;
	buffer_get(b);
	s->on_gpu = kind_of(b->pool->map.kind)->by_driver;
	s->device = b->device;
	s->spin_ns = WAIT_SPIN_NS;
	pthread_mutex_init(&s->lock, NULL);
	list_init(&s->frames);
	list_init(&s->spare);
	return s;
}

#define SPIN_US_MAX 1000000u

int stream_check_spin(uint64_t spin_us)
{
	return spin_us <= SPIN_US_MAX
		       ? 0
		       : error_set(EINVAL, "spin_us is %" PRIu64 "; at most %u is possible",
				   spin_us, SPIN_US_MAX);
}

void stream_set_spin(struct gpushm_stream *s, uint64_t spin_us)
{
	if (spin_us > 0)
		s->spin_ns = spin_us * 1000;
}

int stream_check_pool(const struct gpushm_buffer *b)
{
	if (!kind_of(b->pool->map.kind)->read_only)
		return error_of("stream", b->name, ENOTSUP,
				"pool \"%s\" is a %s, whose memory readers could write to: "
				"use a pool of another kind",
				b->pool->name, kind_word(b->pool->map.kind));
	return b->device < 0 ? 0 : order_check(b->device);
}

int stream_map_head(struct gpushm_stream *s)
{
	struct page_shape shape;
	int r = pages_map(s->buffer, STREAM_PAGE_HEAD, 0, 0, &s->head, NULL);

	if (r == 0)
		r = pages_read_shape(&s->head, s->buffer->bytes, &shape);
	if (r < 0)
		return r;
	s->slots = shape.slots;
	s->readers = shape.readers;
	s->slot_bytes = shape.slot_bytes;
	s->limit_ms = shape.limit_ms;
	s->ended_on = s->on_gpu ? calloc(s->slots, sizeof(*s->ended_on)) : NULL;
	return s->on_gpu && !s->ended_on ? stream_error(s, ENOMEM, "out of memory for its slots")
					 : 0;
}

int stream_map_group(struct gpushm_stream *s)
{
	return pages_map(s->buffer, STREAM_PAGE_GROUP, stream_group_bytes(s->slots), 0, &s->group,
			 NULL);
}

void stream_unmap(const struct gpushm_stream *s, struct order_page *p)
{
	order_unregister(p, s->device);
	pages_unmap(p);
}

int stream_check_writable(const struct gpushm_stream *s, const struct order_page *p)
{
	return p->writable ? 0 : stream_error(s, EPROTO, "the daemon sent a page for reading only");
}

/* ---- getters ---- */

struct gpushm_buffer *gpushm_stream_buffer(struct gpushm_stream *s)
{
	return error_null(s, "stream") < 0 ? NULL : s->buffer;
}

uint32_t gpushm_stream_slots(const struct gpushm_stream *s)
{
	return error_null(s, "stream") < 0 ? 0 : s->slots;
}

static void follower_stats(const struct gpushm_stream *s, struct gpushm_stream_stats *st)
{
	const struct follower *me = &s->follower;
	const struct stream_reader_page *p = me->page.host;
	uint64_t last = me->reader.last ? me->reader.last : me->joined_at;

	st->taken = stream_load(&p->taken);
	st->skipped = stream_load(&p->skipped);
	st->held = stream_load(&p->held);
	st->lag = stream_before(last, st->newest) ? st->newest - last : 0;
}

int gpushm_stream_stats(const struct gpushm_stream *s, struct gpushm_stream_stats *ret)
{
	struct gpushm_stream_stats st = { 0 };
	struct stream_head *h;
	const char *wrong;
	int r = stream_check(s);

	if (r == 0)
		r = error_null(ret, "place for the numbers");
	if (r < 0)
		return r;
	h = stream_head(s);
	st.state = (enum gpushm_stream_state)stream_load(&h->state);
	st.newest = stream_load(&h->newest);
	st.readers = (uint32_t)__builtin_popcountll(stream_load(&h->active));
	st.stalls = stream_load(&h->stalls);
	st.stalled_ns = stream_load(&h->stalled_ns);
	if (!s->is_producer)
		follower_stats(s, &st);
	wrong = sized_write(ret, &st, sizeof(st));
	return wrong ? stream_error(s, EINVAL, "the place for the numbers: %s", wrong) : 0;
}
