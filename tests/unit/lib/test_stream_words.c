/* SPDX-License-Identifier: MIT
 *
 * The words of a stream between threads, in plain memory: a producer, readers that stay, and
 * readers that join and leave, with the contents of each frame under a sum. ThreadSanitizer sees an
 * access to a frame that the words do not order. The code is compiled here with operations that let
 * other threads in between.
 */
#define STREAM_STEPS "tests/unit/lib/stream_yield.h"
#include "client/lib/stream/reader.c"
#include "client/lib/stream/writer.c"
#include "daemon/catalog/stream_words.c"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define PAYLOAD 32 /* numbers in a frame */

struct fixture {
	struct stream_words words;
	struct stream_reader_page *pages[STREAM_READERS_MAX];
	uint64_t (*frames)[PAYLOAD];
	uint64_t first, n; /* of frames */
	pthread_mutex_t daemon;
	uint64_t joins;
};

struct member {
	struct fixture *f;
	uint32_t index;
	enum stream_follow follow;
	unsigned leaves_after; /* frames; 0: stays */
	uint64_t taken, bad;
	pthread_t thread;
};

static void *zeros(size_t bytes)
{
	size_t rounded = (bytes + 63) / 64 * 64;
	void *p = aligned_alloc(64, rounded);

	ck_assert_ptr_nonnull(p);
	return memset(p, 0, rounded);
}

static void set_up(struct fixture *f, uint32_t slots, uint32_t readers, uint64_t newest, uint64_t n)
{
	*f = (struct fixture){ .first = newest, .n = n };
	f->words.shape = (struct stream_shape){ .slots = slots,
						.readers = readers,
						.delivery = STREAM_AT_LEAST_ONCE,
						.slot_bytes = sizeof(f->frames[0]),
						.limit_ms = UINT64_MAX };
	f->words.head = zeros(stream_head_bytes(slots, readers));
	f->words.group = zeros(stream_group_bytes(slots));
	f->frames = zeros(slots * sizeof(f->frames[0]));
	pthread_mutex_init(&f->daemon, NULL);
	stream_words_init(&f->words);
	f->words.head->newest = newest;
	for (uint32_t i = 0; i < slots; i++)
		f->words.head->slot[i].ready = newest;
	stream_words_begin(&f->words, 1);
}

static void tear_down(struct fixture *f)
{
	for (uint32_t i = 0; i < STREAM_READERS_MAX; i++)
		free(f->pages[i]);
	free(f->frames);
	free(f->words.group);
	free(f->words.head);
	pthread_mutex_destroy(&f->daemon);
}

/* ---- the daemon ---- */

/* A page that a reader had may be in the producer's hands: it is used again, as a new one. */
static void join(struct member *m, struct reader *ret)
{
	struct fixture *f = m->f;
	struct stream_join join = { .max_held = 1, .follow = m->follow };
	struct stream_reader_page *page;

	pthread_mutex_lock(&f->daemon);
	if (!f->pages[m->index])
		f->pages[m->index] = zeros(stream_reader_bytes(f->words.shape.slots));
	page = f->pages[m->index];
	for (uint32_t i = 0; i < f->words.shape.slots; i++)
		stream_store(&page->claims[i].released, 0);
	stream_words_init_reader(&f->words, page);
	join.generation = ++f->joins;
	stream_words_join(&f->words, m->index, page, &join);
	reader_init(ret, f->words.head, f->words.shape.slots, page,
		    m->follow == STREAM_SHARE ? f->words.group : NULL, m->index, join.generation);
	pthread_mutex_unlock(&f->daemon);
}

static void leave(struct member *m)
{
	pthread_mutex_lock(&m->f->daemon);
	stream_words_leave(&m->f->words, m->index, m->f->pages[m->index]);
	pthread_mutex_unlock(&m->f->daemon);
}

/* ---- readers ---- */

static bool is_good(const struct member *m, const struct reader_frame *frame)
{
	const uint64_t *p = m->f->frames[frame->slot];
	uint64_t seq;

	memcpy(&seq, frame->meta, sizeof(seq));
	for (unsigned i = 0; i < PAYLOAD; i++)
		if (p[i] != frame->seq * (i + 1))
			return false;
	return frame->meta_bytes == sizeof(seq) && seq == frame->seq;
}

/* 0, or the error that ended it. */
static int follow(struct member *m, struct reader *r)
{
	uint64_t last = 0;

	for (unsigned n = 0; m->leaves_after == 0 || n < m->leaves_after;) {
		struct reader_frame frame;
		bool wake;
		int e = reader_take(r, &frame, &wake);

		if (e == -EAGAIN) {
			sched_yield();
			continue;
		}
		if (e < 0)
			return e;
		m->bad += !is_good(m, &frame) || reader_check(r, &frame) != 0;
		if (m->follow == STREAM_EVERY && last)
			m->bad += frame.seq != stream_next(last);
		last = frame.seq;
		reader_release(r, &frame);
		m->taken++;
		n++;
	}
	return 0;
}

static void *run_reader(void *data)
{
	struct member *m = data;
	struct reader r;
	int e;

	do {
		join(m, &r);
		e = follow(m, &r);
		leave(m);
	} while (e == 0);
	m->bad += e != -EPIPE;
	return NULL;
}

/* ---- the producer ---- */

static void map_pages(struct fixture *f, struct writer *w)
{
	uint32_t i;

	while (writer_unmapped(w, &i)) {
		pthread_mutex_lock(&f->daemon);
		if (stream_load(&f->words.head->seats[i].state) == STREAM_SEAT_TAKEN)
			writer_map(w, i, stream_load(&f->words.head->seats[i].generation),
				   f->pages[i]);
		pthread_mutex_unlock(&f->daemon);
	}
}

static void produce(struct fixture *f)
{
	struct writer_blocker blocker;
	struct writer_slot slot;
	struct writer w;

	ck_assert_int_eq(writer_init(&w, f->words.head, f->words.group, f->words.shape.slots,
				     f->words.shape.readers),
			 0);
	for (uint64_t n = 0; n < f->n;) {
		int r;

		map_pages(f, &w);
		r = writer_take(&w, false, 1, &slot, &blocker);
		if (r < 0) {
			sched_yield();
			continue;
		}
		for (unsigned i = 0; i < PAYLOAD; i++)
			f->frames[slot.slot][i] = slot.seq * (i + 1);
		writer_publish(&w, &slot, true, 1, &slot.seq, sizeof(slot.seq));
		n++;
	}
	pthread_mutex_lock(&f->daemon);
	stream_words_end(&f->words);
	pthread_mutex_unlock(&f->daemon);
	writer_done(&w);
}

/* ---- tests ---- */

static void run(struct fixture *f, struct member *m, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		m[i].f = f;
		m[i].index = i;
		ck_assert_int_eq(pthread_create(&m[i].thread, NULL, run_reader, &m[i]), 0);
	}
	while (__builtin_popcountll(stream_load(&f->words.head->active)) < (int)n)
		sched_yield();
	produce(f);
	for (unsigned i = 0; i < n; i++)
		pthread_join(m[i].thread, NULL);
	for (unsigned i = 0; i < n; i++)
		ck_assert_uint_eq(m[i].bad, 0);
}

START_TEST(frames_are_whole_for_all_kinds_of_readers)
{
	struct member m[4] = { { .follow = STREAM_EVERY },
			       { .follow = STREAM_LATEST },
			       { .follow = STREAM_SHARE },
			       { .follow = STREAM_SHARE } };
	struct fixture f;

	set_up(&f, 4, 4, 0, 20000);
	run(&f, m, 4);
	ck_assert_uint_eq(m[0].taken, 20000);
	ck_assert_uint_eq(m[2].taken + m[3].taken, 20000);
	tear_down(&f);
}
END_TEST

START_TEST(latest_readers_get_whole_frames_from_two_slots)
{
	struct member m[3] = { { .follow = STREAM_LATEST },
			       { .follow = STREAM_LATEST },
			       { .follow = STREAM_LATEST } };
	struct fixture f;

	set_up(&f, 2, 3, 0, 20000);
	run(&f, m, 3);
	tear_down(&f);
}
END_TEST

START_TEST(frames_are_whole_when_their_numbers_wrap)
{
	struct member m[2] = { { .follow = STREAM_EVERY }, { .follow = STREAM_SHARE } };
	struct fixture f;

	set_up(&f, 4, 2, UINT64_MAX - 500, 1000);
	run(&f, m, 2);
	ck_assert_uint_eq(m[0].taken, 1000);
	ck_assert_uint_eq(m[1].taken, 1000);
	ck_assert_uint_eq(f.words.head->newest, 500);
	tear_down(&f);
}
END_TEST

START_TEST(sixty_four_readers_get_their_frames)
{
	struct member m[STREAM_READERS_MAX] = { 0 };
	struct fixture f;
	uint64_t shared = 0;

	for (unsigned i = 0; i < STREAM_READERS_MAX; i++)
		m[i].follow = (enum stream_follow)(1 + i % 3);
	set_up(&f, 70, STREAM_READERS_MAX, 0, 500);
	run(&f, m, STREAM_READERS_MAX);
	for (unsigned i = 0; i < STREAM_READERS_MAX; i++) {
		if (m[i].follow == STREAM_EVERY)
			ck_assert_uint_eq(m[i].taken, 500);
		if (m[i].follow == STREAM_SHARE)
			shared += m[i].taken;
	}
	ck_assert_uint_eq(shared, 500);
	tear_down(&f);
}
END_TEST

START_TEST(readers_join_and_leave_under_load)
{
	struct member m[4] = { { .follow = STREAM_EVERY },
			       { .follow = STREAM_EVERY, .leaves_after = 40 },
			       { .follow = STREAM_LATEST, .leaves_after = 30 },
			       { .follow = STREAM_LATEST, .leaves_after = 20 } };
	struct fixture f;

	set_up(&f, 3, 4, 0, 5000);
	run(&f, m, 4);
	ck_assert_uint_eq(m[0].taken, 5000);
	tear_down(&f);
}
END_TEST

static _Atomic bool scribbles;

/* What a bad member may write to the group's page, all the time. */
static void *scribble(void *data)
{
	const struct stream_words *w = &((struct fixture *)data)->words;

	for (uint64_t n = 0; atomic_load(&scribbles); n++) {
		uint64_t newest = stream_load(&w->head->newest);
		uint32_t slot = n % w->shape.slots;

		if (n % 2)
			stream_store(&w->group->next, n % 3 ? newest - 7 + n % 15 : 0);
		else
			stream_store(&w->group->owner[slot],
				     stream_owner(newest - n % 3, n % 5 ? STREAM_REDO : n % 4));
		sched_yield();
	}
	return NULL;
}

/* The model finds an order of steps in which a member and the producer get out of each other's way
 * for ever, if `next` was rubbish: each step of one has to fall between two of the other. */
START_TEST(frames_go_on_and_are_whole_whatever_is_in_the_groups_page)
{
	struct member m[4] = { { .follow = STREAM_EVERY },
			       { .follow = STREAM_LATEST },
			       { .follow = STREAM_SHARE },
			       { .follow = STREAM_SHARE } };
	struct fixture f;
	pthread_t bad;

	set_up(&f, 2 + (uint32_t)_i, 4, 0, 1000);
	atomic_store(&scribbles, true);
	ck_assert_int_eq(pthread_create(&bad, NULL, scribble, &f), 0);
	run(&f, m, 4);
	atomic_store(&scribbles, false);
	pthread_join(bad, NULL);
	ck_assert_uint_eq(m[0].taken, 1000);
	tear_down(&f);
}
END_TEST

/* ---- members that may have died ---- */

static void produce_one(struct fixture *f)
{
	struct writer_blocker blocker;
	struct writer_slot slot;
	struct writer w;

	ck_assert_int_eq(writer_init(&w, f->words.head, f->words.group, f->words.shape.slots,
				     f->words.shape.readers),
			 0);
	map_pages(f, &w);
	ck_assert_int_eq(writer_take(&w, false, 1, &slot, &blocker), 0);
	writer_publish(&w, &slot, true, 1, NULL, 0);
	writer_done(&w);
}

static void expect(struct reader *r, int wanted, struct reader_frame *ret)
{
	bool wake;

	ck_assert_int_eq(reader_take(r, ret, &wake), wanted);
}

START_TEST(a_member_waits_for_the_frame_of_a_dead_one)
{
	struct stream_reader_page *pages[STREAM_READERS_MAX] = { NULL };
	struct reader dead, living;
	struct reader_frame frame;
	struct fixture f;
	struct member m[2] = { { .f = &f, .index = 0, .follow = STREAM_SHARE },
			       { .f = &f, .index = 1, .follow = STREAM_SHARE } };

	set_up(&f, 4, 2, 0, 1);
	join(&m[0], &dead);
	join(&m[1], &living);
	produce_one(&f);
	expect(&dead, 0, &frame);
	pages[0] = f.pages[0];
	pages[1] = f.pages[1];
	ck_assert_uint_eq(stream_words_find_leaving(&f.words, pages), 1);
	stream_words_end(&f.words);
	expect(&living, -EAGAIN, &frame);
	stream_words_return(&f.words, 0);
	expect(&living, -EPIPE, &frame);
	stream_words_suspect(&f.words, 0);
	expect(&living, -EAGAIN, &frame);
	leave(&m[0]);
	expect(&living, 0, &frame);
	ck_assert_uint_eq(frame.seq, 1);
	reader_release(&living, &frame);
	expect(&living, -EPIPE, &frame);
	tear_down(&f);
}
END_TEST

START_TEST(a_member_waits_only_for_unfinished_frames_of_others)
{
	struct stream_reader_page *pages[STREAM_READERS_MAX] = { NULL };
	struct reader_frame frame;
	struct reader reader;
	struct fixture f;
	struct member m = { .f = &f, .index = 0, .follow = STREAM_SHARE };

	set_up(&f, 4, 1, 0, 1);
	join(&m, &reader);
	produce_one(&f);
	expect(&reader, 0, &frame);
	stream_words_orphan(&f.words);
	stream_words_suspect(&f.words, 0);
	reader_release(&reader, &frame);
	expect(&reader, -EOWNERDEAD, &frame);
	pages[0] = f.pages[0];
	ck_assert_uint_eq(stream_words_find_leaving(&f.words, pages), 0);
	ck_assert_uint_eq(f.words.head->leaving, 0);
	tear_down(&f);
}
END_TEST

/* 0 is also what the slot has that the producer fills. */
START_TEST(a_bad_member_makes_no_frame_of_what_is_being_filled)
{
	struct writer_blocker blocker;
	struct reader_frame frame;
	struct writer_slot slot;
	struct reader reader;
	struct fixture f;
	struct writer w;
	struct member m = { .f = &f, .index = 0, .follow = STREAM_SHARE };

	set_up(&f, 2, 1, 0, 3);
	join(&m, &reader);
	for (uint64_t seq = 1; seq <= 2; seq++) {
		produce_one(&f);
		expect(&reader, 0, &frame);
		reader_release(&reader, &frame);
	}
	ck_assert_int_eq(writer_init(&w, f.words.head, f.words.group, 2, 1), 0);
	map_pages(&f, &w);
	ck_assert_int_eq(writer_take(&w, false, 1, &slot, &blocker), 0);
	f.words.group->next = 0;
	expect(&reader, -EAGAIN, &frame);
	writer_publish(&w, &slot, true, 1, NULL, 0);
	expect(&reader, 0, &frame);
	ck_assert_uint_eq(frame.seq, 3);
	writer_done(&w);
	tear_down(&f);
}
END_TEST

/* Its release would end both claims, and the producer fill what it holds. */
START_TEST(a_member_does_not_get_what_it_holds_once_more)
{
	struct reader_frame frame, other;
	struct reader reader;
	struct fixture f;
	struct member m = { .f = &f, .index = 0, .follow = STREAM_SHARE };

	set_up(&f, 4, 1, 0, 3);
	join(&m, &reader);
	reader.max_held = 2;
	produce_one(&f);
	expect(&reader, 0, &frame);
	f.words.group->owner[frame.slot] = _i == 0 ? stream_owner(1, STREAM_REDO) : 0;
	f.words.group->next = _i == 0 ? 2 : 1;
	f.words.group->redos++;
	expect(&reader, -EAGAIN, &other);
	produce_one(&f);
	expect(&reader, 0, &other);
	ck_assert_uint_eq(other.seq, 2);
	reader_release(&reader, &other);
	reader_release(&reader, &frame);
	tear_down(&f);
}
END_TEST

/* Frame 5 has the entry of frame 1, which somebody holds. */
START_TEST(a_member_looks_for_no_frame_that_has_lost_its_entry)
{
	struct reader_frame frame, held;
	struct reader readers[2];
	struct fixture f;
	struct member m[2] = { { .f = &f, .index = 0, .follow = STREAM_SHARE },
			       { .f = &f, .index = 1, .follow = STREAM_SHARE } };

	set_up(&f, 3, 2, 0, 6);
	join(&m[0], &readers[0]);
	join(&m[1], &readers[1]);
	produce_one(&f);
	expect(&readers[0], 0, &held);
	for (uint64_t seq = 2; seq <= 5; seq++) {
		produce_one(&f);
		expect(&readers[1], 0, &frame);
		reader_release(&readers[1], &frame);
	}
	f.words.group->next = 1;
	expect(&readers[1], -EAGAIN, &frame);
	produce_one(&f);
	expect(&readers[1], 0, &frame);
	ck_assert_uint_eq(frame.seq, 6);
	tear_down(&f);
}
END_TEST

/* A child of the producer before may have its page still, and write to it. */
START_TEST(a_producer_ignores_later_changes_of_the_head)
{
	struct writer_blocker blocker;
	struct writer_slot slot;
	struct fixture f;
	struct writer w;

	set_up(&f, 2, 1, 0, 1);
	f.words.head->slots = STREAM_SLOTS_MAX;
	f.words.head->order_size = 2 * STREAM_SLOTS_MAX;
	f.words.head->readers = STREAM_READERS_MAX;
	ck_assert_int_eq(writer_init(&w, f.words.head, f.words.group, 2, 1), 0);
	for (uint64_t seq = 1; seq <= 5; seq++) {
		ck_assert_int_eq(writer_take(&w, false, 1, &slot, &blocker), 0);
		ck_assert_uint_eq(slot.slot, (seq - 1) % 2);
		writer_publish(&w, &slot, true, 1, NULL, 0);
	}
	writer_done(&w);
	tear_down(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stream_words");
	TCase *t = tcase_create("threads");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, frames_are_whole_for_all_kinds_of_readers);
	tcase_add_test(t, latest_readers_get_whole_frames_from_two_slots);
	tcase_add_test(t, frames_are_whole_when_their_numbers_wrap);
	tcase_add_test(t, sixty_four_readers_get_their_frames);
	tcase_add_test(t, readers_join_and_leave_under_load);
	tcase_add_loop_test(t, frames_go_on_and_are_whole_whatever_is_in_the_groups_page, 0, 2);
	tcase_add_test(t, a_member_waits_for_the_frame_of_a_dead_one);
	tcase_add_test(t, a_member_waits_only_for_unfinished_frames_of_others);
	tcase_add_test(t, a_bad_member_makes_no_frame_of_what_is_being_filled);
	tcase_add_loop_test(t, a_member_does_not_get_what_it_holds_once_more, 0, 2);
	tcase_add_test(t, a_member_looks_for_no_frame_that_has_lost_its_entry);
	tcase_add_test(t, a_producer_ignores_later_changes_of_the_head);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
