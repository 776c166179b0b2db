/* SPDX-License-Identifier: MIT
 *
 * Streams in the catalog: who may make one, join it, produce it and drop a reader, and what the end
 * of a lease means for it. The journal has a reader before its claims count, and loses it after
 * they have ended, so that a daemon that dies in between leaves no claim that nobody ends.
 *
 * A reader's claims end with its lease: when it closes the stream, or when its process is really
 * gone, and its GPU's work with it. A producer that dies leaves frames that are not finished: a
 * word of each says that it is broken, so the buffer itself does not become dirty.
 */
#include "daemon/catalog/catalog.h"

#include "daemon/util/log.h"
#include "proto/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int refuse_other(const struct buffer *b, struct fault *f)
{
	return fault(f, CODE_UNSUPPORTED, "buffer \"%s\" is no stream", buffer_name(b));
}

/* ---- recording ---- */

static int record_stream(struct catalog *c, struct buffer *b)
{
	return b->state == BUFFER_FILLING ? 0 : catalog_record(c, record_stream, b);
}

/* ---- STREAM ---- */

static bool run_work(struct work *w);

/* The search begins at the end, where it mostly ends, too. */
void catalog_insert_stream(struct catalog *c, struct buffer *b, struct stream *s)
{
	struct list *behind = c->streams.prev;

	while (behind != &c->streams &&
	       container_of(behind, struct stream, link)->buffer->id > b->id)
		behind = behind->prev;
	list_insert(behind->next, &s->link);
	s->catalog = c;
	s->buffer = b;
	b->stream = s;
	work_init(&s->work, run_work);
	c->n_streams++;
}

int catalog_make_stream(struct catalog *c, struct lease *l, const struct stream_shape *spec,
			struct fault *f)
{
	struct buffer *b = l->buffer;
	struct stream *s = NULL;
	int r;

	if (b->state != BUFFER_FILLING || b->stream)
		return fault(f, CODE_STATE,
			     "STREAM: buffer \"%s\" is %s already; a buffer becomes a stream once, "
			     "before it is published",
			     buffer_name(b), b->stream ? "a stream" : "published");
	if (!kind_of(b->pool->config.kind)->read_only)
		return fault(f, CODE_UNSUPPORTED,
			     "STREAM: pool \"%s\" is a %s, whose memory can't be mapped for "
			     "reading only; choose a pool of another kind",
			     b->pool->config.name, kind_word(b->pool->config.kind));
	r = stream_check_shape(spec, b->bytes, f);
	if (r == 0)
		r = stream_new(&c->accounts, b->uid, spec, &s, f);
	if (r < 0)
		return r;
	catalog_insert_stream(c, b, s);
	stream_take_producer(s, l);
	stream_begin(s);
	return 0;
}

void catalog_free_stream(struct catalog *c, struct buffer *b)
{
	if (!b->stream)
		return;
	stream_counts_add(&c->past_streams, b->stream);
	c->n_streams--;
	b->stream = stream_retire(b->stream, &c->retired_pages);
}

/* ---- a new producer ---- */

int catalog_check_writer(const struct buffer *b, bool produce, struct fault *f)
{
	const struct stream *s = b->stream;

	if (!s)
		return produce ? fault(f, CODE_EXISTS,
				       "name \"%s\" is taken by a buffer that is no stream",
				       buffer_name(b))
			       : 0;
	if (!produce)
		return fault(f, CODE_STATE,
			     "buffer \"%s\" is a stream, which its producer alone writes; another "
			     "one may continue it with GPUSHM_ADOPT when that has died",
			     buffer_name(b));
	if (s->producer)
		return fault(f, CODE_STATE,
			     "the producer of stream \"%s\"%s: wait for its end, or unlink the "
			     "stream",
			     buffer_name(b),
			     s->producer->process->suspect_ns ? " closed its connection and still "
								"runs"
							      : " lives");
	if (s->state == STREAM_ENDED)
		return fault(f, CODE_EXISTS,
			     "stream \"%s\" has ended: unlink it, or choose another name",
			     buffer_name(b));
	return 0;
}

int catalog_produce(struct catalog *c, struct lease *l, struct fault *f)
{
	struct buffer *b = l->buffer;
	struct stream *s = b->stream;
	int r;

	stream_take_producer(s, l);
	r = record_stream(c, b);
	if (r < 0) {
		stream_refuse_producer(s);
		return catalog_refuse_unwritten(r, f);
	}
	stream_begin(s);
	event_log_add(&c->events, .type = EVENT_CONTINUED, .who = l->process, .buffer = b,
		      .access = ACCESS_WRITE);
	return 0;
}

/* ---- readers ---- */

static struct stream_reader *reader_of(const struct lease *l)
{
	return l->reader < 0 ? NULL : &l->buffer->stream->readers[l->reader];
}

/* Whose reply was lost with the daemon before asks once more. */
static int check_joined(const struct lease *l, const struct stream_reader *as, struct fault *f)
{
	const struct stream_reader *r = reader_of(l);

	if (r && r->follow == as->follow && r->max_held == as->max_held && !r->dropped)
		return 0;
	return fault(f, CODE_STATE, "JOIN: this lease %s stream \"%s\": open it anew",
		     r && !r->dropped ? "follows" : "has left", buffer_name(l->buffer));
}

static int check_join(const struct lease *l, const struct stream_reader *as, struct fault *f)
{
	const struct stream *s = l->buffer->stream;

	if (!s)
		return refuse_other(l->buffer, f);
	if (l->access != ACCESS_READ || l->buffer->state == BUFFER_FILLING)
		return fault(f, CODE_STATE,
			     "JOIN: this lease is the producer's; readers open the stream for "
			     "reading");
	if (as->follow < STREAM_EVERY || as->follow > STREAM_SHARE)
		return fault(f, CODE_BAD_REQUEST, "JOIN: unknown way to follow: %u", as->follow);
	if (as->max_held < 1 || as->max_held >= s->words.shape.slots)
		return fault(f, CODE_BAD_REQUEST,
			     "JOIN: max_held is %" PRIu32 "; 1 to %" PRIu32
			     " are allowed, less than the stream's slots",
			     as->max_held, s->words.shape.slots - 1);
	return 0;
}

static void free_seat(struct catalog *c, struct lease *l)
{
	struct stream *s = l->buffer->stream;
	uint32_t index = (uint32_t)l->reader;

	catalog_record(c, record_reader, l, READER_GONE);
	stream_free_seat(s, index, &c->retired_pages);
	lease_follow(l, -1);
	l->left = true;
}

/* Readers of the stream's owner and of an administrator may have all seats. */
static int check_seats(const struct catalog *c, const struct lease *l, struct fault *f)
{
	const struct stream *s = l->buffer->stream;
	const struct account *account = account_find(&c->accounts, l->process->uid);
	uint32_t seats = s->words.shape.readers, own = 0;

	if (l->process->uid == l->buffer->uid || (account && account->admin))
		return 0;
	for (uint32_t i = 0; i < seats; i++)
		own += s->readers[i].page && s->readers[i].lease->process->uid == l->process->uid;
	if (own < accounts_share(&c->accounts, l->process->uid, seats, s->n_readers, own))
		return 0;
	return fault(f, CODE_NO_SEAT,
		     "user %u has %" PRIu32 " of the stream's %" PRIu32
		     " seats, and leaves the others to other users (max-share): close one "
		     "(gpushmctl streams)",
		     l->process->uid, own, seats);
}

int catalog_join(struct catalog *c, struct lease *l, const struct stream_reader *as,
		 struct fault *f)
{
	struct stream_reader reader = *as;
	struct stream *s = l->buffer->stream;
	uint32_t index = 0;
	int r = check_join(l, as, f);

	if (r < 0)
		return r;
	if (l->reader >= 0 || l->left)
		return check_joined(l, as, f);
	reader.lease = l;
	r = check_seats(c, l, f);
	if (r < 0)
		return r;
	r = stream_take_seat(&c->accounts, s, l->process->uid, &reader, &index, f);
	if (r < 0)
		return r;
	lease_follow(l, (int)index);
	r = catalog_record(c, record_reader, l, READER_JOINED);
	if (r < 0) {
		free_seat(c, l);
		l->left = false;
		return catalog_refuse_unwritten(r, f);
	}
	stream_page_drop_original(s->readers[index].page);
	stream_join(s, index, l->process->pid);
	event_log_add(&c->events, .type = EVENT_JOINED, .who = l->process, .buffer = l->buffer);
	return 0;
}

static void drop_reader(struct catalog *c, struct stream *s, uint32_t index, const char *why)
{
	static const struct ratelimit_cause cause = { LOG_ID_DROPPED,
						      "readers of streams that were dropped" };
	struct stream_reader *r = &s->readers[index];
	const struct process *p = r->lease->process;
	struct log_about about = { LOG_ID_DROPPED, LOG_PROCESS(p), LOG_BUFFER(s->buffer) };

	stream_drop(s, index);
	catalog_record(c, record_reader, r->lease, READER_JOINED);
	record_stream(c, s->buffer);
	if (ratelimit_pass(&c->death_lines, &cause, p->uid, clock_monotonic_ns()))
		log_write(LOG_NOTICE, &about,
			  "process %d (%s) does not follow stream \"%s\" any more: %s", p->pid,
			  p->command, buffer_name(s->buffer), why);
	event_log_add(&c->events, .type = EVENT_DROPPED, .who = p, .buffer = s->buffer,
		      .text = why);
}

int catalog_drop_reader(struct catalog *c, struct lease *l, uint32_t index, uint64_t generation,
			struct fault *f)
{
	struct stream *s = l->buffer->stream;
	const struct stream_reader *r;

	if (!s)
		return refuse_other(l->buffer, f);
	if (s->producer != l)
		return fault(f, CODE_ACCESS,
			     "DROP: only the producer of stream \"%s\" may drop its readers",
			     buffer_name(l->buffer));
	if (index >= s->words.shape.readers)
		return fault(f, CODE_BAD_REQUEST, "DROP: the stream has no seat %" PRIu32, index);
	r = &s->readers[index];
	if (r->page && !r->dropped && r->generation == generation)
		drop_reader(c, s, index, "its producer has waited for it for too long");
	return 0;
}

/* ---- pages ---- */

static int refuse_page(const struct lease *l, uint32_t page, struct fault *f)
{
	return fault(f, CODE_ACCESS,
		     "PAGE: page %" PRIu32 " of stream \"%s\" is not for this lease", page,
		     buffer_name(l->buffer));
}

static int page_of_reader(const struct stream *s, uint32_t page, const struct stream_reader **ret,
			  struct fault *f)
{
	uint32_t index = page - STREAM_PAGE_READER;

	if (page < STREAM_PAGE_READER || index >= s->words.shape.readers)
		return fault(f, CODE_BAD_REQUEST, "PAGE: the stream has no page %" PRIu32, page);
	*ret = &s->readers[index];
	return (*ret)->page ? 0 : fault(f, CODE_NOT_FOUND, "PAGE: nobody has seat %" PRIu32, index);
}

static void lend(const struct stream_page *p, bool writable, uint64_t generation,
		 struct stream_lent *ret)
{
	*ret = (struct stream_lent){ .fd = writable ? p->fd : p->fd_read_only,
				     .bytes = p->bytes,
				     .writable = writable,
				     .generation = generation };
}

int catalog_lend_page(const struct lease *l, uint32_t page, struct stream_lent *ret,
		      struct fault *f)
{
	const struct stream *s = l->buffer->stream;
	const struct stream_reader *own = s ? reader_of(l) : NULL, *reader = NULL;
	bool produces = s && s->producer == l;
	int r;

	if (!s)
		return refuse_other(l->buffer, f);
	if (!produces && !own)
		return fault(f, CODE_STATE, "PAGE: this lease %s stream \"%s\"",
			     l->left ? "has left" : "has not joined", buffer_name(l->buffer));
	if (page == STREAM_PAGE_HEAD) {
		lend(s->head, produces, 0, ret);
		return 0;
	}
	if (page == STREAM_PAGE_GROUP && !produces && own->follow != STREAM_SHARE)
		return refuse_page(l, page, f);
	if (page == STREAM_PAGE_GROUP) {
		lend(s->group, !produces, 0, ret);
		return 0;
	}
	r = page_of_reader(s, page, &reader, f);
	if (r == 0 && !produces && reader != own)
		r = refuse_page(l, page, f);
	if (r == 0)
		lend(reader->page, !produces, reader->generation, ret);
	return r;
}

/* ---- members that may have died ---- */

void catalog_suspect_readers(struct process *p)
{
	struct lease *l;

	list_foreach (l, &p->readers, reader_link)
		stream_suspect(l->buffer->stream, (uint32_t)l->reader);
}

/* A connection may have ended although its turn to say so has not come: its user may have had too
 * many turns, or the process sent something before it died. */
void catalog_find_leaving(struct stream *s)
{
	uint64_t left = 0;

	for (uint32_t i = 0; i < s->words.shape.readers; i++) {
		const struct stream_reader *r = &s->readers[i];

		if (r->page && r->follow == STREAM_SHARE && process_has_left(r->lease->process))
			left |= 1ull << i;
	}
	stream_find_leaving(s, left);
}

/* ---- the end of a lease ---- */

/* The stream goes on without its producer. */
static void orphan(struct catalog *c, struct buffer *b, const struct process *p)
{
	static const struct ratelimit_cause cause = { LOG_ID_ORPHANED,
						      "streams whose producer died" };
	struct log_about about = { LOG_ID_ORPHANED, LOG_PROCESS(p), LOG_BUFFER(b) };

	stream_orphan(b->stream);
	if (record_stream(c, b) < 0)
		log_error_id(LOG_ID_STATE_NOT_WRITTEN,
			     "the journal can't be written; a restart finds out again that the "
			     "producer of stream \"%s\" died",
			     buffer_name(b));
	if (b->state == BUFFER_FILLING)
		return;
	if (ratelimit_pass(&c->death_lines, &cause, p->uid, clock_monotonic_ns()))
		log_write(LOG_NOTICE, &about,
			  "stream \"%s\" has lost its producer: process %d (%s) did not close it",
			  buffer_name(b), p->pid, p->command);
	event_log_add(&c->events, .type = EVENT_ORPHANED, .who = p, .buffer = b);
	c->producer_deaths++;
}

static void end_stream(struct catalog *c, struct buffer *b)
{
	stream_end(b->stream);
	if (record_stream(c, b) < 0)
		log_error_id(LOG_ID_STATE_NOT_WRITTEN,
			     "the journal can't be written; a restart would not know that stream "
			     "\"%s\" has ended",
			     buffer_name(b));
}

void catalog_producer_left(struct catalog *c, struct buffer *b, const struct process *p,
			   bool closed)
{
	catalog_find_leaving(b->stream);
	if (closed || stream_says_ended(b->stream))
		end_stream(c, b);
	else
		orphan(c, b, p);
	/* Another one may wait for that. */
	if (b->state != BUFFER_FILLING && b->key)
		catalog_tell(c, b, b->key, BUFFER_PRODUCER_LEFT);
}

void catalog_leave_stream(struct catalog *c, struct lease *l, bool closed)
{
	struct stream *s = l->buffer->stream;

	if (!s || l->left)
		return;
	/* The daemon ends, and the processes go on. */
	if (l->buffer->keep_memory) {
		s->producer = s->producer == l ? NULL : s->producer;
		return;
	}
	if (s->producer == l) {
		l->left = true;
		catalog_producer_left(c, l->buffer, l->process, closed);
	} else if (l->reader >= 0) {
		c->reader_deaths += !closed;
		stream_leave(s, (uint32_t)l->reader);
		free_seat(c, l);
	}
}

int catalog_give_up(struct catalog *c, struct lease *l, struct fault *f)
{
	struct buffer *b = l->buffer;

	if (!b->stream)
		return refuse_other(b, f);
	catalog_leave_stream(c, l, true);
	return 0;
}

/* ---- numbers ---- */

struct stream_counts catalog_stream_counts(const struct catalog *c)
{
	struct stream_counts all = c->past_streams;
	struct stream *s;

	list_foreach (s, &c->streams, link)
		stream_counts_add(&all, s);
	return all;
}

static bool has_waited(const struct stream *s, uint64_t now_ns)
{
	uint64_t since = s->words.head->waited_ns;

	return s->producer && since && now_ns > since && now_ns - since >= 1000000000u;
}

struct stream_states catalog_stream_states(const struct catalog *c, uint64_t now_ns)
{
	struct stream_states all = { 0 };
	const struct stream *s;

	list_foreach (s, &c->streams, link) {
		all.streams[s->state]++;
		all.waiting += has_waited(s, now_ns);
		for (uint32_t i = 0; i < s->words.shape.readers; i++)
			if (s->readers[i].page && !s->readers[i].dropped)
				all.readers[s->readers[i].follow]++;
	}
	return all;
}

/* ---- readers that hold up others ---- */

static bool run_work(struct work *w)
{
	struct stream *s = container_of(w, struct stream, work);
	uint64_t stuck = stream_find_stuck(s, clock_monotonic_ns());
	char why[96];

	snprintf(why, sizeof(why),
		 "its GPU has held up the producer's for more than %" PRIu64 " ms",
		 s->words.shape.limit_ms);
	for (uint32_t i = 0; i < s->words.shape.readers; i++)
		if (stuck & 1ull << i && s->readers[i].page && !s->readers[i].dropped)
			drop_reader(s->catalog, s, i, why);
	if (s->leaving)
		catalog_find_leaving(s);
	return false;
}

void catalog_look_at_streams(struct catalog *c, struct turns *turns)
{
	struct stream *s;

	list_foreach (s, &c->streams, link)
		if (s->leaving ||
		    (s->producer && s->n_readers && s->words.shape.limit_ms != UINT64_MAX))
			turns_add(turns, s->buffer->bytes_charge.account, &s->work);
}
