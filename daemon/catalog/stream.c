/* SPDX-License-Identifier: MIT
 *
 * A seat is taken before its words say so, and is free after they do, so that the journal can be
 * written in between: a daemon that dies there leaves a reader that nobody waits for.
 */
#include "daemon/catalog/stream.h"

#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/stream_atomic.h"

#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>

int stream_check_shape(const struct stream_shape *shape, uint64_t bytes, struct fault *f)
{
	uint64_t all;

	if (shape->slots < STREAM_SLOTS_MIN || shape->slots > STREAM_SLOTS_MAX)
		return fault(f, CODE_BAD_REQUEST, "STREAM: %" PRIu32 " slots; %u to %u are allowed",
			     shape->slots, STREAM_SLOTS_MIN, STREAM_SLOTS_MAX);
	if (shape->readers < 1 || shape->readers > STREAM_READERS_MAX)
		return fault(f, CODE_BAD_REQUEST,
			     "STREAM: %" PRIu32 " readers; 1 to %u are allowed", shape->readers,
			     STREAM_READERS_MAX);
	if (shape->delivery != STREAM_AT_LEAST_ONCE && shape->delivery != STREAM_AT_MOST_ONCE)
		return fault(f, CODE_BAD_REQUEST, "STREAM: unknown delivery %u", shape->delivery);
	if (shape->slot_bytes == 0 ||
	    __builtin_mul_overflow(shape->slot_bytes, (uint64_t)shape->slots, &all) || all > bytes)
		return fault(f, CODE_LAYOUT,
			     "STREAM: %" PRIu32 " slots of %" PRIu64
			     " bytes do not fit the buffer's %" PRIu64,
			     shape->slots, shape->slot_bytes, bytes);
	return 0;
}

static struct stream *alloc_stream(const struct stream_shape *shape)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->readers = calloc(shape->readers, sizeof(*s->readers));
	s->words.shape = *shape;
	s->state = STREAM_ORPHANED;
	list_init(&s->link);
	list_init(&s->work.link);
	return s->readers ? s : stream_free(s);
}

static void free_stream(struct stream **s)
{
	*s = stream_free(*s);
}

static void find_words(struct stream *s)
{
	s->words.head = s->head->map;
	s->words.group = s->group->map;
}

static size_t head_bytes(const struct stream_shape *shape)
{
	return stream_head_bytes(shape->slots, shape->readers);
}

int stream_new(struct accounts *a, uid_t uid, const struct stream_shape *shape, struct stream **ret,
	       struct fault *f)
{
	_cleanup_(free_stream) struct stream *s = alloc_stream(shape);
	int r = s ? stream_page_new(a, uid, head_bytes(shape), &s->head, f)
		  : fault(f, CODE_NO_MEMORY, "the daemon is out of memory");

	if (r == 0)
		r = stream_page_new(a, uid, stream_group_bytes(shape->slots), &s->group, f);
	if (r < 0)
		return r;
	find_words(s);
	stream_words_init(&s->words);
	*ret = take_ptr(s);
	return 0;
}

int stream_adopt(struct accounts *a, uid_t uid, const struct stream_shape *shape, int head,
		 int group, struct stream **ret)
{
	_cleanup_(close_fd) int head_fd = head, group_fd = group;
	_cleanup_(free_stream) struct stream *s = alloc_stream(shape);
	int r = s ? 0 : -ENOMEM;

	if (r == 0)
		r = stream_page_adopt(a, uid, head_bytes(shape), take_fd(&head_fd), &s->head);
	if (r == 0)
		r = stream_page_adopt(a, uid, stream_group_bytes(shape->slots), take_fd(&group_fd),
				      &s->group);
	if (r < 0)
		return r;
	find_words(s);
	*ret = take_ptr(s);
	return 0;
}

struct stream *stream_retire(struct stream *s, struct retired_pages *retired)
{
	if (!s)
		return NULL;
	for (uint32_t i = 0; i < s->words.shape.readers; i++)
		s->readers[i].page = stream_page_retire(s->readers[i].page, retired);
	s->group = stream_page_retire(s->group, retired);
	s->head = stream_page_retire(s->head, retired);
	return stream_free(s);
}

struct stream *stream_free(struct stream *s)
{
	if (!s)
		return NULL;
	list_drop(&s->link);
	work_drop(&s->work);
	for (uint32_t i = 0; s->readers && i < s->words.shape.readers; i++)
		stream_page_free(s->readers[i].page);
	stream_page_free(s->group);
	stream_page_free(s->head);
	free(s->readers);
	free(s);
	return NULL;
}

/* ---- the producer ---- */

/* A process that sleeps on the word looks again. */
static void wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void set_producer(struct stream *s, struct lease *producer, enum stream_state state)
{
	s->producer = producer;
	s->state = state;
}

void stream_take_producer(struct stream *s, struct lease *producer)
{
	set_producer(s, producer, STREAM_RUNNING);
	s->producers++;
}

void stream_refuse_producer(struct stream *s)
{
	set_producer(s, NULL, STREAM_ORPHANED);
	s->producers--;
}

void stream_begin(struct stream *s)
{
	stream_words_begin(&s->words, s->producers);
	wake(&s->words.head->wake);
}

void stream_adopt_producer(struct stream *s, struct lease *producer)
{
	set_producer(s, producer, STREAM_RUNNING);
	if (s->words.head->state == STREAM_ORPHANED)
		stream_begin(s);
}

void stream_end(struct stream *s)
{
	set_producer(s, NULL, STREAM_ENDED);
	stream_words_end(&s->words);
	wake(&s->words.head->wake);
}

void stream_orphan(struct stream *s)
{
	set_producer(s, NULL, STREAM_ORPHANED);
	stream_words_orphan(&s->words);
	wake(&s->words.head->wake);
}

bool stream_says_ended(const struct stream *s)
{
	const struct stream_head *h = s->words.head;

	return h->state == STREAM_ENDED || stream_load(&h->closed) != 0;
}

/* ---- a reader ---- */

static uint32_t free_seat(const struct stream *s)
{
	uint32_t i = 0;

	while (i < s->words.shape.readers && s->readers[i].page)
		i++;
	return i;
}

int stream_take_seat(struct accounts *a, struct stream *s, uid_t uid,
		     const struct stream_reader *reader, uint32_t *ret, struct fault *f)
{
	uint32_t i = free_seat(s);
	struct stream_page *page = NULL;
	int r;

	if (i == s->words.shape.readers)
		return fault(f, CODE_NO_SEAT,
			     "the stream has %" PRIu32 " readers, and may have no more (readers= "
			     "when it was created): close one (gpushmctl streams)",
			     s->words.shape.readers);
	r = stream_page_new(a, uid, stream_reader_bytes(s->words.shape.slots), &page, f);
	if (r < 0)
		return r;
	s->readers[i] = *reader;
	s->readers[i].page = page;
	s->readers[i].generation = ++s->joins;
	s->readers[i].joined_ns = clock_realtime_ns();
	s->n_readers++;
	*ret = i;
	return 0;
}

int stream_adopt_seat(struct accounts *a, struct stream *s, uid_t uid,
		      const struct stream_reader *reader, uint32_t index, int page)
{
	_cleanup_(close_fd) int fd = page;
	struct stream_page *adopted = NULL;
	int r = index < s->words.shape.readers && !s->readers[index].page ? 0 : -EBADMSG;

	if (r == 0)
		r = stream_page_adopt(a, uid, stream_reader_bytes(s->words.shape.slots),
				      take_fd(&fd), &adopted);
	if (r < 0)
		return r;
	s->readers[index] = *reader;
	s->readers[index].page = adopted;
	s->n_readers++;
	if (s->joins < reader->generation)
		s->joins = reader->generation;
	return 0;
}

static struct stream_reader_page *page_of(const struct stream *s, uint32_t index)
{
	return s->readers[index].page->map;
}

/* Those whom it held up look again, and it sees that it was dropped. */
static void wake_all(const struct stream *s, uint32_t index)
{
	wake(&s->words.head->wake);
	wake(&page_of(s, index)->released_count);
}

void stream_join(struct stream *s, uint32_t index, pid_t pid)
{
	const struct stream_reader *r = &s->readers[index];
	const struct stream_join join = { .generation = r->generation,
					  .now_ns = clock_monotonic_ns(),
					  .max_held = r->max_held,
					  .follow = r->follow,
					  .pid = pid };

	stream_words_init_reader(&s->words, page_of(s, index));
	stream_words_join(&s->words, index, page_of(s, index), &join);
	wake(&s->words.head->wake);
}

bool stream_has_joined(const struct stream *s, uint32_t index)
{
	const struct stream_head *h = s->words.head;

	return h->seats[index].generation == s->readers[index].generation &&
	       h->seats[index].state == STREAM_SEAT_TAKEN && h->active & 1ull << index;
}

bool stream_was_dropped(const struct stream *s, uint32_t index)
{
	const struct stream_seat *seat = &s->words.head->seats[index];

	return seat->generation == s->readers[index].generation &&
	       seat->state == STREAM_SEAT_DROPPED;
}

void stream_drop(struct stream *s, uint32_t index)
{
	s->readers[index].dropped = true;
	s->drops++;
	stream_words_drop(&s->words, index, page_of(s, index));
	wake_all(s, index);
}

void stream_leave(struct stream *s, uint32_t index)
{
	if (s->readers[index].dropped)
		stream_words_free_seat(&s->words, index, page_of(s, index));
	else
		stream_words_leave(&s->words, index, page_of(s, index));
	wake_all(s, index);
}

/* Nobody gets what a member held that was dropped, or that may get a frame at most once. */
static bool may_give_back(const struct stream *s, uint32_t index)
{
	const struct stream_reader *r = &s->readers[index];

	return r->page && r->follow == STREAM_SHARE && !r->dropped &&
	       s->words.shape.delivery == STREAM_AT_LEAST_ONCE;
}

/* Without a look at what it holds, because a process may follow many streams. While there is a
 * producer nobody asks; its end looks. */
void stream_suspect(struct stream *s, uint32_t index)
{
	if (s->state == STREAM_RUNNING || !may_give_back(s, index))
		return;
	s->leaving = true;
	stream_words_suspect(&s->words, index);
}

void stream_return(struct stream *s, uint32_t index)
{
	if (!s->leaving)
		return;
	stream_words_return(&s->words, index);
	wake(&s->words.head->wake);
}

void stream_find_leaving(struct stream *s, uint64_t left)
{
	struct stream_reader_page *pages[STREAM_READERS_MAX] = { NULL };

	for (uint32_t i = 0; i < s->words.shape.readers; i++)
		if (left & 1ull << i && may_give_back(s, i))
			pages[i] = page_of(s, i);
	s->leaving = stream_words_find_leaving(&s->words, pages) != 0;
	wake(&s->words.head->wake);
}

void stream_clear_seat(struct stream *s, uint32_t index)
{
	const struct stream_head *h = s->words.head;

	if (h->seats[index].state == STREAM_SEAT_FREE && !(h->active & 1ull << index))
		return;
	stream_words_leave(&s->words, index, NULL);
	wake(&s->words.head->wake);
}

uint64_t stream_find_stuck(struct stream *s, uint64_t now_ns)
{
	struct stream_reader_page *pages[STREAM_READERS_MAX] = { NULL };

	for (uint32_t i = 0; i < s->words.shape.readers; i++)
		pages[i] = s->readers[i].page ? page_of(s, i) : NULL;
	return stream_words_stuck(&s->words, pages, now_ns);
}

void stream_free_seat(struct stream *s, uint32_t index, struct retired_pages *retired)
{
	stream_page_retire(s->readers[index].page, retired);
	s->readers[index] = (struct stream_reader){ 0 };
	s->n_readers--;
}

void stream_drop_originals(struct stream *s)
{
	stream_page_drop_original(s->head);
	stream_page_drop_original(s->group);
}

/* ---- for people ---- */

struct stream_counts stream_counts(const struct stream *s)
{
	const struct stream_head *h = s->words.head;
	const struct stream_group_page *g = s->words.group;

	return (struct stream_counts){ .frames = h->newest,
				       .stalls = h->stalls,
				       .stalled_ns = h->stalled_ns,
				       .drops = s->drops,
				       .redone = g->redone,
				       .lost = g->lost };
}

/* Words that a producer has set back count nothing. */
static uint64_t since(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

void stream_counts_add(struct stream_counts *to, const struct stream *s)
{
	const struct stream_counts now = stream_counts(s), *before = &s->before;

	to->frames += since(now.frames, before->frames);
	to->stalls += since(now.stalls, before->stalls);
	to->stalled_ns += since(now.stalled_ns, before->stalled_ns);
	to->drops += since(now.drops, before->drops);
	to->redone += since(now.redone, before->redone);
	to->lost += since(now.lost, before->lost);
}

uint64_t stream_newest_ns(const struct stream *s)
{
	const struct stream_head *h = s->words.head;
	uint64_t newest = h->newest;
	uint32_t slot = newest ? *stream_order(h, s->words.shape.slots,
					       stream_order_size(s->words.shape.slots), newest)
			       : s->words.shape.slots;

	return slot < s->words.shape.slots ? h->slot[slot].time_ns : 0;
}
