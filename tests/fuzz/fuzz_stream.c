/* SPDX-License-Identifier: MIT
 *
 * Any words in what readers may write of a stream: the pages of two bad ones, and the group's. A
 * producer, a daemon and three honest readers, one of each kind, go on meanwhile; the code of all
 * of them is the real one. Frames that honest readers hold stay as they are, `every` misses none,
 * `latest` does not go back. When the bad readers have been dropped, each honest one gets frames.
 *
 * The first byte says what the stream is like. Then there are ops: a byte, and of some more.
 */
#include "client/lib/stream/reader.h"
#include "client/lib/stream/writer.h"
#include "daemon/catalog/stream_words.h"
#include "proto/base/own.h"
#include "proto/stream_atomic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

#define SLOTS_MAX 4u
#define HONEST 3u /* EVERY, LATEST, SHARE, in this order */
#define SEATS 5u
#define HELD_MAX 2u

#define require(x) ((x) ? (void)0 : abort())

/* A reader, honest or not. */
struct seat {
	struct stream_reader_page *page; /* owned; NULL: there is nobody */
	struct stream_reader_page *old;	 /* owned: of the one before, which may write still */
	bool dropped;
	bool in_group;	      /* a bad one has the group's page, also when it has left */
	struct reader reader; /* of an honest one */
	struct reader_frame held[HELD_MAX];
	uint32_t n_held;
	uint64_t last;	/* the frame it got last; 0: none */
	uint64_t first; /* every: that it must get first */
};

static struct {
	const unsigned char *at, *end;
	struct stream_words words;
	struct writer writer;
	bool gpu;
	uint64_t joins, now_ns;
	uint64_t contents[SLOTS_MAX]; /* the frame whose memory it is */
	struct seat seats[SEATS];
} f;

/* ---- the input ---- */

static uint8_t take_byte(void)
{
	return f.at < f.end ? *f.at++ : 0;
}

static uint64_t take_word(void)
{
	uint64_t word = 0;

	for (int i = 0; i < 8; i++)
		word = word << 8 | take_byte();
	return word;
}

/* What looks like a word of the protocol, or anything. */
static uint64_t take_value(void)
{
	uint8_t kind = take_byte();
	uint64_t newest = f.words.head->newest, near = newest + (uint64_t)(take_byte() % 16) - 8;

	switch (kind % 8) {
	case 0:
		return near;
	case 1:
		return stream_claim_word(near, (enum stream_claim_state)(kind >> 3 & 3));
	case 2:
		return stream_owner(near, STREAM_REDO);
	case 3:
		return stream_owner(near, (kind >> 3) % SEATS);
	case 4:
		return stream_claim_word(STREAM_TICKETS + (kind >> 3), STREAM_RELEASING);
	case 5:
		return STREAM_RELEASED_ALL - (kind >> 3);
	case 6:
		return 0;
	default:
		return take_word();
	}
}

/* ---- readers come and go ---- */

static void *zeros(size_t bytes)
{
	void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);

	require(memory);
	return memset(memory, 0, bytes);
}

static void join(uint32_t i, enum stream_follow follow)
{
	struct seat *s = &f.seats[i];
	uint32_t slots = f.words.shape.slots;
	struct stream_join how = { .generation = ++f.joins,
				   .now_ns = f.now_ns,
				   .max_held = HELD_MAX,
				   .follow = follow,
				   .pid = 1 };

	if (s->page)
		return;
	*s = (struct seat){ .old = s->old,
			    .page = zeros(stream_reader_bytes(slots)),
			    .in_group = s->in_group || follow == STREAM_SHARE };
	stream_words_init_reader(&f.words, s->page);
	stream_words_join(&f.words, i, s->page, &how);
	s->first = stream_next(f.words.head->newest);
	reader_init(&s->reader, f.words.head, slots, s->page,
		    follow == STREAM_SHARE ? f.words.group : NULL, i, how.generation);
}

static void join_honest(uint32_t i)
{
	join(i, (enum stream_follow)(STREAM_EVERY + i));
}

/* The producer may use the page of a reader that has left, until it has looked again. */
static void keep_old(struct seat *s)
{
	free(s->old);
	s->old = take_ptr(s->page);
	s->n_held = 0;
}

static void leave(uint32_t i)
{
	struct seat *s = &f.seats[i];
	uint32_t mapped;

	if (!s->page)
		return;
	while (writer_unmapped(&f.writer, &mapped))
		writer_map(&f.writer, mapped, f.words.head->seats[mapped].generation,
			   f.seats[mapped].page);
	if (s->dropped)
		stream_words_free_seat(&f.words, i, s->page);
	else
		stream_words_leave(&f.words, i, s->page);
	keep_old(s);
}

static void drop(uint32_t i)
{
	struct seat *s = &f.seats[i];

	if (!s->page || s->dropped)
		return;
	stream_words_drop(&f.words, i, s->page);
	s->dropped = true;
	s->n_held = 0;
}

/* ---- an honest reader ---- */

static void check_frame(const struct seat *s, uint32_t i, const struct reader_frame *got)
{
	uint64_t seq;

	require(got->seq != 0 && got->slot < f.words.shape.slots);
	require(got->meta_bytes == sizeof(seq));
	memcpy(&seq, got->meta, sizeof(seq));
	require(seq == got->seq);
	require(f.gpu || f.contents[got->slot] == got->seq);
	if (i == 0)
		require(got->seq == (s->last ? stream_next(s->last) : s->first));
	if (i == 1)
		require(!s->last || stream_before(s->last, got->seq));
}

static bool take_frame(uint32_t i)
{
	struct seat *s = &f.seats[i];
	struct reader_frame got = { 0 };
	bool wake;
	int r;

	if (!s->page)
		return false;
	r = reader_take(&s->reader, &got, &wake);
	require(r == 0 || r == -EAGAIN || r == -ENOBUFS || (r == -ESTALE && s->dropped) ||
		(r == -EOWNERDEAD && f.words.head->state == STREAM_ORPHANED));
	if (r < 0)
		return false;
	check_frame(s, i, &got);
	s->last = got.seq;
	s->held[s->n_held++] = got;
	return true;
}

static void release_frame(uint32_t i)
{
	struct seat *s = &f.seats[i];

	if (s->n_held == 0)
		return;
	require(f.gpu || f.contents[s->held[0].slot] == s->held[0].seq);
	reader_release(&s->reader, &s->held[0]);
	s->held[0] = s->held[1];
	s->n_held--;
}

/* Whether it has got one. */
static bool use_frames(uint32_t i)
{
	bool any = false;

	while (f.seats[i].n_held > 0)
		release_frame(i);
	for (; take_frame(i); any = true)
		release_frame(i);
	return any;
}

/* ---- the producer ---- */

static bool is_held(uint32_t slot)
{
	for (uint32_t i = 0; i < HONEST; i++)
		for (uint32_t k = 0; k < f.seats[i].n_held; k++)
			if (f.seats[i].held[k].slot == slot)
				return true;
	return false;
}

/* A GPU waits for bad readers alone: honest ones release on the host. */
static void check_waits(const struct writer_slot *slot)
{
	require(f.gpu || slot->n_waits == 0);
	for (size_t i = 0; i < slot->n_waits; i++) {
		uint32_t reader = slot->waits[i].reader;

		require(reader >= HONEST && reader < SEATS);
		require(!stream_before(STREAM_RELEASED_ALL, slot->waits[i].value));
		require(f.words.head->slot[slot->slot].waits & 1ull << reader);
	}
}

static void publish(const struct writer_slot *slot)
{
	require(!is_held(slot->slot));
	f.contents[slot->slot] = slot->seq;
	writer_publish(&f.writer, slot, true, f.now_ns, &slot->seq, sizeof(slot->seq));
}

/* Meanwhile the readers look. */
static void fill(const struct writer_slot *slot)
{
	uint8_t choice = take_byte();

	require(slot->slot < f.words.shape.slots && !is_held(slot->slot));
	check_waits(slot);
	f.contents[slot->slot] = 0;
	if (choice % 4 == 1)
		take_frame(choice / 4 % HONEST);
	if (choice % 8 == 7)
		writer_cancel(&f.writer, slot);
	else
		publish(slot);
}

/* Returns whether there was a slot; else *ret_blocker is who is in the way. */
static bool produce(struct writer_blocker *ret_blocker)
{
	struct writer_slot slot;
	uint32_t i;
	int r;

	while (writer_unmapped(&f.writer, &i)) {
		require(i < SEATS && f.seats[i].page);
		writer_map(&f.writer, i, f.words.head->seats[i].generation, f.seats[i].page);
	}
	r = writer_take(&f.writer, f.gpu, f.gpu ? ++f.now_ns : 0, &slot, ret_blocker);
	require(r == 0 || r == -EAGAIN);
	require(r == 0 || ret_blocker->reader <= STREAM_READERS_MAX);
	if (r < 0)
		return false;
	fill(&slot);
	return true;
}

/* The producer dies, and another one goes on. */
static void adopt(void)
{
	struct stream_words *w = &f.words;

	stream_words_orphan(w);
	for (uint32_t i = 0; i < HONEST; i++)
		take_frame(i);
	writer_done(&f.writer);
	stream_words_begin(w, w->head->producers + 1);
	require(writer_init(&f.writer, w->head, w->group, w->shape.slots, w->shape.readers) == 0);
}

/* ---- bad readers ---- */

/* Most often a word by which others decide something. */
static size_t take_place(const void *page, size_t bytes)
{
	uint8_t choice = take_byte(), k = choice / 8 % f.words.shape.slots;
	size_t claim = sizeof(struct stream_reader_page) + k * sizeof(struct stream_claim);

	if (choice >= 128)
		return (size_t)take_byte() * 8 % bytes;
	if (page == f.words.group)
		return choice % 8 == 0	 ? offsetof(struct stream_group_page, next)
		       : choice % 8 == 1 ? offsetof(struct stream_group_page, redos)
					 : sizeof(struct stream_group_page) + k * sizeof(uint64_t);
	return choice % 8 == 0	 ? offsetof(struct stream_reader_page, cursor)
	       : choice % 8 == 1 ? offsetof(struct stream_reader_page, asleep)
	       : choice % 8 == 2 ? claim + offsetof(struct stream_claim, released)
				 : claim;
}

static void scribble(void *page, size_t bytes)
{
	size_t at = take_place(page, bytes);
	uint64_t value = take_value();

	memcpy((unsigned char *)page + at, &value,
	       bytes - at < sizeof(value) ? bytes - at : sizeof(value));
}

static void wipe(void *page, size_t bytes)
{
	memset(page, take_byte(), bytes);
}

/* Of the page of a bad reader, of the one before, or of the group's. */
static void do_harm(void (*harm)(void *page, size_t bytes))
{
	uint8_t choice = take_byte();
	const struct seat *s = &f.seats[HONEST + choice % (SEATS - HONEST)];
	uint32_t slots = f.words.shape.slots;

	if (choice & 64 && s->in_group)
		harm(f.words.group, stream_group_bytes(slots));
	else if (choice & 32 && s->old)
		harm(s->old, stream_reader_bytes(slots));
	else if (s->page)
		harm(s->page, stream_reader_bytes(slots));
}

/* ---- the daemon ---- */

static void find_pages(struct stream_reader_page **ret)
{
	for (uint32_t i = 0; i < SEATS; i++)
		ret[i] = f.seats[i].page;
}

static void look_who_left(void)
{
	struct stream_reader_page *pages[STREAM_READERS_MAX] = { NULL };
	uint64_t found;

	pages[HONEST] = f.seats[HONEST].page;
	pages[HONEST + 1] = f.seats[HONEST + 1].page;
	found = stream_words_find_leaving(&f.words, pages);
	require((found & ~(3ull << HONEST)) == 0);
	stream_words_return(&f.words, HONEST);
	stream_words_return(&f.words, HONEST + 1);
	require(f.words.head->leaving == 0);
}

/* Whatever it has written since. */
static void check_dropped(const struct seat *s)
{
	for (uint32_t i = 0; i < f.words.shape.slots; i++)
		require(s->page->claims[i].released == STREAM_RELEASED_ALL);
}

/* A GPU waits for bad readers alone. When they are dropped, it waits no longer. */
static void drop_stuck(void)
{
	struct stream_reader_page *pages[STREAM_READERS_MAX] = { NULL };
	uint64_t stuck;

	find_pages(pages);
	stuck = stream_words_stuck(&f.words, pages, f.now_ns + 1000000000u);
	require((stuck & ~(3ull << HONEST)) == 0);
	for (uint32_t i = HONEST; i < SEATS; i++)
		if (stuck & 1ull << i)
			drop(i);
	require(stream_words_stuck(&f.words, pages, f.now_ns + 1000000000u) == 0);
	for (uint32_t i = HONEST; i < SEATS; i++)
		if (f.seats[i].dropped && f.seats[i].page)
			check_dropped(&f.seats[i]);
}

/* ---- an input ---- */

static void begin(uint8_t kind)
{
	struct stream_words *w = &f.words;
	uint32_t slots = STREAM_SLOTS_MIN + kind % 3;

	w->shape = (struct stream_shape){ .slots = slots,
					  .readers = SEATS,
					  .delivery = kind & 4 ? STREAM_AT_MOST_ONCE
							       : STREAM_AT_LEAST_ONCE,
					  .keep_queue = kind & 8,
					  .slot_bytes = 1,
					  .limit_ms = 1 };
	w->head = zeros(stream_head_bytes(slots, SEATS));
	w->group = zeros(stream_group_bytes(slots));
	f.gpu = kind & 16;
	f.now_ns = 1;
	stream_words_init(w);
	stream_words_begin(w, 1);
	require(writer_init(&f.writer, w->head, w->group, slots, SEATS) == 0);
	for (uint32_t i = 0; i < HONEST; i++)
		join_honest(i);
}

static void do_op(uint8_t op)
{
	uint32_t honest = op / 16 % HONEST, bad = HONEST + op / 16 % (SEATS - HONEST);
	struct writer_blocker blocker;

	switch (op % 16) {
	case 0:
	case 1:
		produce(&blocker);
		break;
	case 2:
		take_frame(honest);
		break;
	case 3:
		release_frame(honest);
		break;
	case 4:
		use_frames(honest);
		break;
	case 5:
		join(bad, (enum stream_follow)(STREAM_EVERY + take_byte() % 3));
		break;
	case 6:
		leave(bad);
		break;
	case 7:
		drop(bad);
		break;
	case 8:
		leave(honest);
		break;
	case 9:
		join_honest(honest);
		break;
	case 10:
		adopt();
		break;
	case 11:
		look_who_left();
		break;
	case 12:
		drop_stuck();
		break;
	case 13:
		do_harm(wipe);
		break;
	default:
		do_harm(scribble);
	}
	stream_words_queued(&f.words);
}

/* The producer's limit has ended the bad readers. Honest ones have taken all that there is, also
 * what is rubbish in the group's page, so that none of them is in its way. */
static void check_everybody_goes_on(void)
{
	uint32_t n[HONEST] = { 0 }, rounds = 8 * f.words.shape.slots;
	struct writer_blocker blocker;

	f.at = f.end;
	for (uint32_t i = HONEST; i < SEATS; i++) {
		drop(i);
		leave(i);
	}
	for (uint32_t i = 0; i < HONEST; i++)
		join_honest(i);
	for (uint32_t k = 0; k < rounds; k++) {
		for (uint32_t i = 0; i < HONEST; i++)
			n[i] += use_frames(i);
		require(produce(&blocker));
	}
	require(n[0] >= rounds - 1 && n[1] >= rounds - 1 && n[2] >= rounds / 2);
	require(f.words.head->active == 7 && f.words.head->sharing == 4);
}

static void end(void)
{
	writer_done(&f.writer);
	for (uint32_t i = 0; i < SEATS; i++) {
		free(f.seats[i].page);
		free(f.seats[i].old);
	}
	free(f.words.group);
	free(f.words.head);
	memset(&f, 0, sizeof(f));
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	f.at = data;
	f.end = data + size;
	begin(take_byte());
	for (int n = 0; f.at < f.end && n < 200; n++)
		do_op(take_byte());
	check_everybody_goes_on();
	end();
	return 0;
}
