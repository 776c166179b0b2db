/* SPDX-License-Identifier: MIT
 *
 * STREAMS: what the daemon says of the streams that this user may see, in as many requests as the
 * list needs.
 */
#include "client/gpushm_query.h"
#include "client/lib/base/error.h"
#include "client/lib/link/records.h"
#include "client/lib/link/request.h"

struct listing {
	struct result result;
	uint64_t after; /* id of the last one in the list */
	bool more;
};

/* The first frame that an `every` reader has not taken says how far behind it is; of others the
 * oldest frame that they hold does. */
static uint64_t lag(const Gpushm__Proto__StreamReader *from, uint64_t newest)
{
	if (from->follow == GPUSHM__PROTO__FOLLOW__FOLLOW_EVERY && from->cursor)
		return newest + 1 > from->cursor ? newest + 1 - from->cursor : 0;
	return from->oldest && newest > from->oldest ? newest - from->oldest : 0;
}

static int read_streams(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__StreamsReply *page = reply->streams;
	struct listing *l = to;

	for (size_t i = 0; i < page->n_streams; i++) {
		const Gpushm__Proto__StreamInfo *from = page->streams[i];
		struct gpushm_stream_info *s;
		int r = records_read(&l->result, records_stream_info, &from->base, (void **)&s);

		if (r < 0)
			return r;
		if (from->buffer <= l->after)
			return error_set(EPROTO, "the daemon's list of streams is not in order");
		for (size_t k = 0; k < s->n_readers; k++)
			s->readers[k]->lag = lag(from->readers[k], from->newest);
		l->after = from->buffer;
	}
	l->more = page->more && page->n_streams > 0;
	return 0;
}

int gpushm_streams(struct gpushm *c, const char *prefix, struct gpushm_stream_info ***ret,
		   size_t *ret_n)
{
	Gpushm__Proto__Streams streams = GPUSHM__PROTO__STREAMS__INIT;
	struct listing l = { .more = true };
	int r = 0;

	if (prefix && *prefix)
		SET(&streams, prefix, connection_bytes(prefix));
	while (r == 0 && l.more) {
		SET(&streams, after, l.after);
		r = request_read(c, request_with(STREAMS, streams, &streams), read_streams, &l);
	}
	if (r == 0)
		r = result_list(&l.result, ret_n, ret);
	result_done(&l.result);
	return r;
}
