/* SPDX-License-Identifier: MIT
 *
 * A reader's beginning: OPEN, JOIN, and the pages that it needs.
 */
#include "client/lib/base/error.h"
#include "client/lib/stream/pages.h"
#include "client/lib/stream/stream.h"
#include "proto/base/sized.h"
#include "proto/stream_atomic.h"

static int start_follower(struct gpushm_stream *s, enum gpushm_follow follow, uint32_t max_held)
{
	struct follower *me = &s->follower;
	struct joined seat = { 0 };
	int r = pages_join(s->buffer, follow, max_held, &seat);

	if (r == 0)
		r = stream_map_head(s);
	if (r == 0)
		r = pages_map(s->buffer, STREAM_PAGE_READER + seat.reader,
			      stream_reader_bytes(s->slots), 0, &me->page, NULL);
	if (r == 0)
		r = stream_check_writable(s, &me->page);
	if (r == 0 && follow == GPUSHM_SHARE)
		r = stream_map_group(s);
	if (r == 0 && follow == GPUSHM_SHARE)
		r = stream_check_writable(s, &s->group);
	if (r == 0)
		r = stream_get_arrays(s);
	if (r < 0)
		return r;
	me->joined_at = stream_load(&stream_head(s)->newest);
	reader_init(&me->reader, stream_head(s), s->slots, me->page.host, s->group.host,
		    seat.reader, seat.generation);
	return 0;
}

#define FOLLOW_FLAGS (GPUSHM_REFUSE_DIRTY | GPUSHM_SET_DEVICE)

/* *ret: how the buffer is opened. */
static int read_options(const struct gpushm_follow_options *from, struct gpushm_open_options *ret,
			uint64_t *ret_spin_us)
{
	struct gpushm_follow_options o;
	int r = error_wrong("options", sized_read(from, &o, sizeof(o)));

	if (r == 0)
		r = stream_check_spin(o.spin_us);
	if (r == 0)
		r = error_flags(o.flags, FOLLOW_FLAGS);
	*ret = (struct gpushm_open_options){ sizeof(*ret), o.flags, o.device };
	*ret_spin_us = o.spin_us;
	return r;
}

int gpushm_stream_open(struct gpushm *c, const char *name, enum gpushm_follow follow,
		       uint32_t max_held, uint64_t timeout_ms,
		       const struct gpushm_follow_options *options, struct gpushm_stream **ret)
{
	struct gpushm_open_options o;
	uint64_t spin_us = 0;
	struct gpushm_buffer *b;
	struct gpushm_stream *s;
	int r = connection_check(c);

	if (r == 0)
		r = read_options(options, &o, &spin_us);
	if (r == 0 && follow != GPUSHM_EVERY && follow != GPUSHM_LATEST && follow != GPUSHM_SHARE)
		r = error_set(EINVAL, "a reader follows a stream as GPUSHM_EVERY, GPUSHM_LATEST or "
				      "GPUSHM_SHARE");
	if (r == 0)
		r = gpushm_open(c, name, GPUSHM_READ, timeout_ms, &o, &b);
	if (r < 0)
		return r;
	s = client_stream_new(b);
	if (!s) {
		gpushm_close(b);
		return error_set(ENOMEM, "out of memory for a stream");
	}
	r = stream_check_pool(b);
	if (r == 0)
		r = start_follower(s, follow, max_held ? max_held : 1);
	if (r < 0)
		return stream_give_up(s, r);
	stream_set_spin(s, spin_us);
	*ret = s;
	return 0;
}
