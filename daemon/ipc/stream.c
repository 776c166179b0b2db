/* SPDX-License-Identifier: MIT
 *
 * STREAM, JOIN, PAGE, DROP and STREAMS: how processes come to a stream and leave it. No request is
 * made for a frame. STREAMS reads the words of the pages, which their processes may change at the
 * same time. The client's half is client/lib/stream.
 */
#include "daemon/ipc/request.h"
#include "daemon/ipc/service.h"
#include "proto/base/clock.h"

#define DEFAULT_READERS 8u
#define DEFAULT_LIMIT_MS 10000u
#define STREAMS_MAX 256u		 /* in one reply */
#define STREAMS_BYTES (FRAME_MAX - 256u) /* of them; the rest is for the reply around them */

_Static_assert((int)STREAM_EVERY == (int)GPUSHM__PROTO__FOLLOW__FOLLOW_EVERY &&
		       (int)STREAM_SHARE == (int)GPUSHM__PROTO__FOLLOW__FOLLOW_SHARE &&
		       (int)STREAM_AT_MOST_ONCE ==
			       (int)GPUSHM__PROTO__DELIVERY__DELIVERY_AT_MOST_ONCE,
	       "proto/stream.h differs from gpushm.proto");

int request_stream(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		   struct fault *f)
{
	const Gpushm__Proto__Stream *m = q->stream;
	const struct stream_shape shape = {
		.slot_bytes = m->slot_bytes,
		.limit_ms = m->has_limit_ms ? m->limit_ms : DEFAULT_LIMIT_MS,
		.slots = m->slots,
		.readers = m->has_readers ? m->readers : DEFAULT_READERS,
		.delivery =
			m->has_delivery ? (enum stream_delivery)m->delivery : STREAM_AT_LEAST_ONCE,
		.keep_queue = m->has_keep_queue && m->keep_queue,
	};
	struct lease *l = NULL;
	int r = request_lease(s, "STREAM", m->has_lease, m->lease, &l, f);

	if (r == 0)
		r = catalog_make_stream(&s->service->catalog, l, &shape, f);
	return reply_result(reply, r);
}

int request_join(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		 struct fault *f)
{
	const Gpushm__Proto__Join *m = q->join;
	const struct stream_reader as = { .follow = m->has_follow ? (enum stream_follow)m->follow
								  : STREAM_EVERY,
					  .max_held = m->has_max_held ? m->max_held : 1 };
	Gpushm__Proto__JoinReply *done;
	struct lease *l = NULL;
	int r = request_lease(s, "JOIN", m->has_lease, m->lease, &l, f);

	if (r == 0)
		r = catalog_join(&s->service->catalog, l, &as, f);
	if (r < 0)
		return r;
	done = reply_begin(reply, joined, JOINED, join_reply);
	SET_SOME(done, reader, (uint32_t)l->reader);
	SET_SOME(done, generation, l->buffer->stream->readers[l->reader].generation);
	return 0;
}

int request_page(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		 struct fault *f)
{
	const Gpushm__Proto__Page *m = q->page;
	Gpushm__Proto__PageReply *done;
	struct stream_lent lent;
	struct lease *l = NULL;
	int r = request_lease(s, "PAGE", m->has_lease, m->lease, &l, f);

	if (r == 0)
		r = catalog_lend_page(l, m->page, &lent, f);
	if (r < 0)
		return r;
	done = reply_begin(reply, page, PAGE, page_reply);
	SET_SOME(done, page, m->page);
	SET_SOME(done, bytes, lent.bytes);
	SET_SOME(done, generation, lent.generation);
	SET_SOME(done, writable, lent.writable);
	reply->fds[reply->n_fds++] = lent.fd;
	return 0;
}

int request_drop(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		 struct fault *f)
{
	const Gpushm__Proto__Drop *m = q->drop;
	struct catalog *c = &s->service->catalog;
	struct lease *l = NULL;
	int r = request_lease(s, "DROP", m->has_lease, m->lease, &l, f);

	if (r == 0 && m->has_reader)
		r = catalog_drop_reader(c, l, m->reader, m->generation, f);
	else if (r == 0)
		r = catalog_give_up(c, l, f);
	return reply_result(reply, r);
}

/* ---- STREAMS ---- */

static uint64_t ms_since(uint64_t ns, uint64_t now)
{
	return ns && now > ns ? (now - ns) / 1000000u : 0;
}

static void fill_reader(Gpushm__Proto__StreamReader *m, const struct stream *s, uint32_t index,
			bool owner, uint64_t now)
{
	const struct stream_reader *r = &s->readers[index];
	const struct stream_reader_page *page = stream_reader_page(r);
	const struct process *p = r->lease->process;

	SET_SOME(m, reader, index);
	SET_SOME(m, generation, r->generation);
	SET_SOME(m, follow, (Gpushm__Proto__Follow)r->follow);
	SET_SOME(m, max_held, r->max_held);
	SET_SOME(m, dropped, r->dropped);
	SET_SOME(m, joined_ns, r->joined_ns);
	SET_SOME(m, suspect, p->suspect_ns != 0);
	if (owner) {
		SET_SOME(m, pid, p->pid);
		SET(m, uid, p->uid);
		SET(m, command, reply_text(p->command));
	}
	SET_SOME(m, cursor, page->cursor);
	SET_SOME(m, taken, page->taken);
	SET_SOME(m, skipped, page->skipped);
	SET_SOME(m, held, page->held);
	SET_SOME(m, oldest, page->oldest);
	if (m->oldest)
		SET_SOME(m, oldest_ms, ms_since(page->oldest_ns, now));
	SET_SOME(m, asleep, page->asleep != 0);
}

static int fill_readers(Gpushm__Proto__StreamInfo *m, struct session *session,
			const struct stream *s, bool owner)
{
	reply_list(session->service, m, readers, s->n_readers);
	for (uint32_t i = 0; i < s->words.shape.readers; i++) {
		Gpushm__Proto__StreamReader *it;

		if (!s->readers[i].page)
			continue;
		it = reply_append(session->service, m, readers, stream_reader);
		if (!it)
			return -ENOMEM;
		fill_reader(it, s, i, owner, m->now_ns);
	}
	return 0;
}

static void fill_shape(Gpushm__Proto__StreamInfo *m, const struct stream_shape *shape)
{
	SET_SOME(m, slots, shape->slots);
	SET_SOME(m, slot_bytes, shape->slot_bytes);
	SET_SOME(m, readers_max, shape->readers);
	SET_SOME(m, delivery, (Gpushm__Proto__Delivery)shape->delivery);
	SET_SOME(m, keep_queue, shape->keep_queue);
	SET_SOME(m, limit_ms, shape->limit_ms);
}

static void fill_words(Gpushm__Proto__StreamInfo *m, const struct stream *s)
{
	const struct stream_counts counts = stream_counts(s);
	const struct stream_head *h = s->words.head;

	SET_SOME(m, newest, counts.frames);
	SET_SOME(m, newest_ns, stream_newest_ns(s));
	SET_SOME(m, stalls, counts.stalls);
	SET_SOME(m, stalled_ns, counts.stalled_ns);
	SET_SOME(m, waiting_ms, ms_since(h->waited_ns, m->now_ns));
	SET_SOME(m, queued, stream_words_queued(&s->words));
	SET_SOME(m, redone, counts.redone);
	SET_SOME(m, lost, counts.lost);
	SET_SOME(m, dropped, (uint32_t)counts.drops);
}

static int fill_info(Gpushm__Proto__StreamInfo *m, struct session *session, const struct stream *s)
{
	const struct buffer *b = s->buffer;
	bool owner = buffer_owned_by(b, session->process);

	SET_SOME(m, buffer, b->id);
	SET(m, uid, b->uid);
	SET(m, pool_name, reply_text(b->pool->config.name));
	SET_SOME(m, state, s->state);
	SET_SOME(m, producers, s->producers);
	SET_SOME(m, now_ns, clock_monotonic_ns());
	if (owner && s->producer) {
		SET_SOME(m, pid, s->producer->process->pid);
		SET(m, command, reply_text(s->producer->process->command));
	}
	fill_shape(m, &s->words.shape);
	fill_words(m, s);
	m->has_name = b->key != NULL;
	if (b->key && reply_name(session, b->key, &m->name) < 0)
		return -ENOMEM;
	return fill_readers(m, session, s, owner);
}

int request_streams(struct session *session, const Gpushm__Proto__Request *q, struct reply *reply,
		    struct fault *f)
{
	const Gpushm__Proto__Streams *asked = q->streams;
	Gpushm__Proto__StreamsReply *m =
		reply_build(session, reply, streams, STREAMS, streams_reply);
	struct stream *s;
	size_t bytes = 0;

	if (!reply_list(session->service, m, streams, STREAMS_MAX))
		return reply_no_memory(f);
	list_foreach (s, &session->service->catalog.streams, link) {
		Gpushm__Proto__StreamInfo *item;

		if (s->buffer->id <= asked->after || s->buffer->state == BUFFER_FILLING ||
		    !request_lists(session, s->buffer, asked->prefix))
			continue;
		item = reply_message(session->service, &gpushm__proto__stream_info__descriptor);
		if (!item || fill_info(item, session, s) < 0)
			return m->n_streams ? (SET(m, more, true), 0) : reply_no_memory(f);
		bytes += gpushm__proto__stream_info__get_packed_size(item) + 8;
		if (m->n_streams == STREAMS_MAX || bytes > STREAMS_BYTES) {
			SET(m, more, true);
			break;
		}
		m->streams[m->n_streams++] = item;
	}
	return 0;
}
