/* SPDX-License-Identifier: MIT
 *
 * A reader's beginning: OPEN, JOIN, and the pages that it needs.
 */
#include "client/lib/base/error.h"
#include "client/lib/stream/pages.h"
#include "client/lib/stream/stream.h"
#include "proto/stream_atomic.h"

static int start_follower(struct gpushm_stream *s, enum gpushm_follow follow, uint32_t max_held)
{
	struct follower *me = &s->follower;
	uint64_t generation = 0;
	uint32_t index = 0;
	int r = pages_join(s->buffer, follow, max_held, &index, &generation);

	if (r == 0)
		r = stream_map_head(s);
	if (r == 0)
		r = pages_map(s->buffer, STREAM_PAGE_READER + index, 0, &me->page, NULL);
	if (r == 0)
		r = stream_check_writable(s, &me->page);
	if (r == 0 && ((struct stream_reader_page *)me->page.host)->slots != s->slots)
		r = stream_error(s, EPROTO, "the reader's page has another number of slots");
	if (r == 0 && follow == GPUSHM_SHARE)
		r = stream_map_group(s);
	if (r == 0 && follow == GPUSHM_SHARE)
		r = stream_check_writable(s, &s->group);
	if (r == 0)
		r = stream_get_arrays(s);
	if (r < 0)
		return r;
	me->joined_at = stream_load(&stream_head(s)->newest);
	reader_init(&me->reader, stream_head(s), me->page.host, s->group.host, index, generation);
	return 0;
}

int gpushm_stream_open(struct gpushm *c, const char *name, enum gpushm_follow follow,
		       uint32_t max_held, uint64_t timeout_ms, const struct gpushm_options *options,
		       struct gpushm_stream **ret)
{
	struct gpushm_options o = { 0 };
	struct gpushm_buffer *b;
	struct gpushm_stream *s;
	int r = connection_check(c);

	if (r == 0)
		r = buffer_options(options, &o);
	if (r == 0 && follow != GPUSHM_EVERY && follow != GPUSHM_LATEST && follow != GPUSHM_SHARE)
		r = error_set(EINVAL, "a reader follows a stream as GPUSHM_EVERY, GPUSHM_LATEST or "
				      "GPUSHM_SHARE");
	if (r == 0 && o.flags & GPUSHM_COPY_ON_WRITE)
		r = error_set(EINVAL, "options: GPUSHM_COPY_ON_WRITE is for gpushm_open()");
	if (r == 0)
		r = gpushm_open(c, name, GPUSHM_READ, timeout_ms, options, &b);
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
	stream_set_spin(s, o.spin_us);
	*ret = s;
	return 0;
}
