/* SPDX-License-Identifier: MIT
 *
 * STREAMS: what the daemon says of the streams that this user may see, in as many requests as the
 * list needs.
 */
#include "client/gpushm_stream.h"
#include "client/lib/base/error.h"
#include "client/lib/link/request.h"

struct listing {
	struct gpushm_stream_info *streams; /* owned */
	size_t n;
	uint64_t after; /* id of the last one in the list */
	bool more;
};

struct gpushm_stream_info *gpushm_streams_free(struct gpushm_stream_info *streams, size_t n)
{
	for (size_t i = 0; streams && i < n; i++)
		free(streams[i].readers);
	free(streams);
	return NULL;
}

static int nonsense(const char *what)
{
	return error_set(EPROTO, "the daemon's list of streams makes no sense: %s", what);
}

/* The first frame that an `every` reader has not taken says how far behind it is; of others the
 * oldest frame that they hold does. */
static uint64_t lag(const Gpushm__Proto__StreamReader *from, uint64_t newest)
{
	if (from->follow == GPUSHM__PROTO__FOLLOW__FOLLOW_EVERY && from->cursor)
		return newest + 1 > from->cursor ? newest + 1 - from->cursor : 0;
	return from->oldest && newest > from->oldest ? newest - from->oldest : 0;
}

static int decode_reader(const Gpushm__Proto__StreamReader *from, uint64_t newest,
			 struct gpushm_stream_reader *ret)
{
	*ret = (struct gpushm_stream_reader){ .index = from->reader,
					      .follow = (enum gpushm_follow)from->follow,
					      .max_held = from->max_held,
					      .dropped = from->dropped,
					      .suspect = from->suspect,
					      .pid = from->pid,
					      .uid = from->has_uid ? from->uid : (uid_t)-1,
					      .joined_ns = from->joined_ns,
					      .lag = lag(from, newest),
					      .taken = from->taken,
					      .skipped = from->skipped,
					      .held = from->held,
					      .oldest = from->oldest,
					      .oldest_ms = from->oldest_ms };
	return decode_text("a reader's command", from->has_command, from->command, ret->command,
			   sizeof(ret->command));
}

static int decode_readers(const Gpushm__Proto__StreamInfo *from, struct gpushm_stream_info *to)
{
	int r = 0;

	to->readers = calloc(from->n_readers + 1, sizeof(*to->readers));
	if (!to->readers)
		return error_set(ENOMEM, "out of memory for a list of streams");
	for (; to->n_readers < from->n_readers && r == 0; to->n_readers++)
		r = decode_reader(from->readers[to->n_readers], from->newest,
				  &to->readers[to->n_readers]);
	return r;
}

/* Whatever this returns, gpushm_streams_free() frees what it has allocated. */
static int decode_stream(const Gpushm__Proto__StreamInfo *from, struct gpushm_stream_info *to)
{
	if (from->state < GPUSHM_STREAM_RUNNING || from->state > GPUSHM_STREAM_ORPHANED)
		return nonsense("state");
	*to = (struct gpushm_stream_info){ .buffer = from->buffer,
					   .uid = from->uid,
					   .slots = from->slots,
					   .readers_max = from->readers_max,
					   .producers = from->producers,
					   .slot_bytes = from->slot_bytes,
					   .state = (enum gpushm_stream_state)from->state,
					   .delivery = (enum gpushm_delivery)from->delivery,
					   .keep_queue = from->keep_queue,
					   .limit_ms = from->limit_ms,
					   .pid = from->pid,
					   .newest = from->newest,
					   .newest_ns = from->newest_ns,
					   .now_ns = from->now_ns,
					   .stalls = from->stalls,
					   .stalled_ns = from->stalled_ns,
					   .waiting_ms = from->waiting_ms,
					   .queued = from->queued,
					   .redone = from->redone,
					   .lost = from->lost,
					   .dropped = from->dropped };
	if (decode_text("name", from->has_name, from->name, to->name, sizeof(to->name)) < 0 ||
	    decode_text("pool name", from->has_pool_name, from->pool_name, to->pool,
			sizeof(to->pool)) < 0 ||
	    decode_text("the producer's command", from->has_command, from->command, to->command,
			sizeof(to->command)) < 0)
		return -EPROTO;
	return decode_readers(from, to);
}

static int append(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__StreamsReply *from = reply->streams;
	struct listing *l = to;
	struct gpushm_stream_info *streams =
		reallocarray(l->streams, l->n + from->n_streams + 1, sizeof(*streams));

	if (!streams)
		return error_set(ENOMEM, "out of memory for a list of streams");
	l->streams = streams;
	for (size_t i = 0; i < from->n_streams; i++) {
		int r;

		if (from->streams[i]->buffer <= l->after)
			return nonsense("their order");
		l->after = from->streams[i]->buffer;
		streams[l->n] = (struct gpushm_stream_info){ 0 };
		r = decode_stream(from->streams[i], &streams[l->n++]);
		if (r < 0)
			return r;
	}
	l->more = from->more && from->n_streams > 0;
	return 0;
}

int gpushm_streams(struct gpushm *c, const char *prefix, struct gpushm_stream_info **ret,
		   size_t *ret_n)
{
	Gpushm__Proto__Streams message = GPUSHM__PROTO__STREAMS__INIT;
	struct listing l = { 0 };
	int r;

	message.has_prefix = prefix && *prefix;
	message.prefix = connection_bytes(prefix ? prefix : "");
	do {
		message.has_after = true;
		message.after = l.after;
		r = request_read(c, request_with(STREAMS, streams, &message), append, &l);
	} while (r == 0 && l.more);
	if (r < 0) {
		gpushm_streams_free(l.streams, l.n);
		return r;
	}
	*ret = l.streams;
	*ret_n = l.n;
	return 0;
}
