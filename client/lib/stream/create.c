/* SPDX-License-Identifier: MIT
 *
 * A producer's beginning: a new stream, or one whose producer died.
 *
 * A stream's buffer is transient unless it is to keep its name: a stream without a process is
 * freed.
 */
#include "client/gpushm_query.h"
#include "client/lib/base/error.h"
#include "client/lib/link/request.h"
#include "client/lib/stream/pages.h"
#include "client/lib/stream/stream.h"
#include "proto/base/clock.h"
#include "proto/base/sized.h"

#include <inttypes.h>
#include <string.h>

#define SLOTS_DEFAULT 8u
#define READERS_DEFAULT 8u
#define LIMIT_MS_DEFAULT 10000u
#define STREAM_FLAGS (GPUSHM_ADOPT | GPUSHM_KEEP_QUEUE | GPUSHM_KEEP_STREAM)
#define ADOPT_TRIES_MAX 16

/* ---- the spec ---- */

static int check_spec(const struct gpushm_stream_spec *spec)
{
	if (spec->slots < STREAM_SLOTS_MIN || spec->slots > STREAM_SLOTS_MAX)
		return error_set(EINVAL, "%" PRIu32 " slots; a stream has %u to %u of them",
				 spec->slots, STREAM_SLOTS_MIN, STREAM_SLOTS_MAX);
	if (spec->readers > STREAM_READERS_MAX)
		return error_set(EINVAL, "%" PRIu32 " readers; a stream has at most %u",
				 spec->readers, STREAM_READERS_MAX);
	if (spec->delivery != GPUSHM_AT_LEAST_ONCE && spec->delivery != GPUSHM_AT_MOST_ONCE)
		return error_set(EINVAL, "delivery is GPUSHM_AT_LEAST_ONCE or GPUSHM_AT_MOST_ONCE");
	return error_flags(spec->flags, STREAM_FLAGS);
}

static int read_spec(const struct gpushm_stream_spec *from, struct gpushm_stream_spec *ret)
{
	struct gpushm_stream_spec spec;
	int r = error_null(from, "stream's spec");

	if (r == 0)
		r = error_wrong("the stream's spec", sized_read(from, &spec, sizeof(spec)));
	if (r < 0)
		return r;
	spec.slots = spec.slots ? spec.slots : SLOTS_DEFAULT;
	spec.readers = spec.readers ? spec.readers : READERS_DEFAULT;
	spec.delivery = spec.delivery ? spec.delivery : GPUSHM_AT_LEAST_ONCE;
	spec.limit_ms = spec.limit_ms ? spec.limit_ms : LIMIT_MS_DEFAULT;
	r = check_spec(&spec);
	if (r == 0)
		r = stream_check_spin(spec.spin_us);
	if (r == 0)
		*ret = spec;
	return r;
}

/* ---- the producer ---- */

static int start_producer(struct gpushm_stream *s)
{
	int r = stream_map_head(s);

	s->is_producer = true;
	if (r == 0)
		r = stream_check_writable(s, &s->head);
	if (r == 0)
		r = stream_map_group(s);
	if (r == 0)
		r = stream_get_arrays(s);
	if (r < 0)
		return r;
	return writer_init(&s->producer.writer, stream_head(s), s->group.host, s->slots,
			   s->readers) < 0
		       ? stream_error(s, ENOMEM, "out of memory for its slots")
		       : 0;
}

static int make_stream(struct gpushm_stream *s, const struct gpushm_stream_spec *spec,
		       const struct layout *l)
{
	int r = gpushm_describe(s->buffer, l->specs, l->n);

	if (r == 0)
		r = pages_make_stream(s->buffer, spec, l->slot_bytes);
	return r < 0 ? r : gpushm_publish(s->buffer, GPUSHM_SHARED);
}

/* What remains after OPEN or CREATE. *ret_again: the buffer was lost with its daemon before it was
 * published. */
static int finish(struct gpushm_buffer *b, const struct gpushm_stream_spec *spec,
		  const struct layout *l, bool adopted, struct gpushm_stream **ret, bool *ret_again)
{
	struct gpushm_stream *s = client_stream_new(b);
	int r;

	*ret_again = false;
	b->discard = adopted; /* for as long as this may fail */
	if (!s) {
		buffer_discard(b);
		return error_set(ENOMEM, "out of memory for a stream");
	}
	r = stream_check_pool(b);
	if (r == 0 && !adopted)
		r = make_stream(s, spec, l);
	*ret_again = r == -ECONNRESET && b->lease.lost && b->state == GPUSHM_FILLING;
	if (r == 0)
		r = start_producer(s);
	if (r < 0)
		return stream_give_up(s, r);
	b->discard = false;
	s->keep_name = spec->flags & GPUSHM_KEEP_STREAM;
	*ret = s;
	return 0;
}

static int create_new(struct gpushm *c, const char *name, const struct gpushm_stream_spec *spec,
		      const struct gpushm_create_options *options, const struct layout *l,
		      struct gpushm_stream **ret)
{
	uint64_t deadline = clock_deadline(options->wait_ms);
	struct gpushm_create_options o = *options;
	struct gpushm_buffer *b;
	int tries = 0, r;
	bool again;

	if (!(spec->flags & GPUSHM_KEEP_STREAM))
		o.flags |= GPUSHM_TRANSIENT;
	do {
		again = false;
		r = gpushm_create(c, name, l->bytes, &o, &b);
		if (r == 0)
			r = finish(b, spec, l, false, ret, &again);
		o.wait_ms = clock_wait_left_ms(o.wait_ms, deadline);
	} while (again && ++tries < BUFFER_CREATES_MAX);
	return r;
}

static int differs(const char *name)
{
	return error_of("stream", name, EEXIST,
			"the name is taken by another kind of buffer, or by a stream with other "
			"arrays or slots");
}

/* Before the stream is taken over, because its end would be its readers' end, too. */
static int check_existing(struct gpushm *c, const char *name, const struct layout *l)
{
	struct gpushm_stat *st = NULL;
	uint64_t digest;
	int r = gpushm_stat(c, name, 0, 0, &st);

	if (r == -EAGAIN)
		return error_of("stream", name, EBUSY, "another process is creating it");
	if (r == 0)
		r = layout_digest(l, &digest);
	if (r == 0 && (st->digest != digest || st->bytes != l->bytes))
		r = differs(name);
	gpushm_free(st);
	return r;
}

static int adopt(struct gpushm *c, const char *name, const struct gpushm_stream_spec *spec,
		 const struct gpushm_create_options *options, const struct layout *l,
		 struct gpushm_stream **ret)
{
	const struct gpushm_open_options o = buffer_mapped_as(options);
	struct gpushm_buffer *b;
	int r = check_existing(c, name, l);

	if (r < 0)
		return r;
	r = buffer_open_name(c, name, GPUSHM_WRITE, options->wait_ms, BUFFER_OPEN_PRODUCE, &o, &b);
	if (r == -ENOTSUP)
		return differs(name);
	return r < 0 ? r : finish(b, spec, l, true, ret, &(bool){ false });
}

/* All its waits together take no longer than options say. */
static int create_or_adopt(struct gpushm *c, const char *name,
			   const struct gpushm_stream_spec *spec,
			   const struct gpushm_create_options *options, const struct layout *l,
			   struct gpushm_stream **ret)
{
	uint64_t deadline = clock_deadline(options->wait_ms);
	struct gpushm_create_options o = *options;
	int r = -ENOENT;

	/* Others may create and free the name between two requests. */
	for (int tries = 0; tries < ADOPT_TRIES_MAX; tries++) {
		if (spec->flags & GPUSHM_ADOPT)
			r = adopt(c, name, spec, &o, l, ret);
		if (r != -ENOENT)
			return r;
		o.wait_ms = clock_wait_left_ms(o.wait_ms, deadline);
		r = create_new(c, name, spec, &o, l, ret);
		if (r != -EEXIST || !(spec->flags & GPUSHM_ADOPT))
			return r;
		o.wait_ms = clock_wait_left_ms(o.wait_ms, deadline);
		r = -ENOENT;
	}
	return error_of("stream", name, EBUSY, "other processes create and free it");
}

int gpushm_stream_create(struct gpushm *c, const char *name, const struct gpushm_stream_spec *spec,
			 const struct gpushm_create_options *options, struct gpushm_stream **ret)
{
	struct gpushm_stream_spec wanted;
	struct gpushm_create_options o;
	struct layout l;
	int r = connection_check(c);

	if (r == 0)
		r = read_spec(spec, &wanted);
	if (r == 0)
		r = buffer_create_options(options, &o);
	if (r == 0)
		r = layout_init(&l, wanted.arrays, wanted.n_arrays, wanted.slots);
	if (r < 0)
		return r;
	r = create_or_adopt(c, name, &wanted, &o, &l, ret);
	if (r == 0)
		stream_set_spin(*ret, wanted.spin_us);
	layout_done(&l);
	return r;
}
