/* SPDX-License-Identifier: MIT
 *
 * Readers of streams that write what no library writes, while a producer and readers of the library
 * use the stream: they hurt nobody but themselves.
 */
#include "tests/lib/raw_stream.h"
#include "tests/lib/user.h"
#include "tests/system/lib/stream_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define MAX_FRAMES 300

/* A reader without the library. */
struct liar {
	struct raw raw;
	uint64_t lease;
	uint32_t seat;
	struct stream_reader_page *page;
	struct stream_group_page *group;
};

static struct liar liars[2];
static struct stream_head *head; /* as the first liar has it */

static void join(struct liar *l, enum stream_follow how)
{
	raw_greet(&l->raw, d.socket);
	l->lease = raw_open(&l->raw, "s");
	l->seat = raw_join(&l->raw, l->lease, how);
	l->page = raw_map_page(&l->raw, l->lease, STREAM_PAGE_READER + l->seat);
	if (how == STREAM_SHARE)
		l->group = raw_map_page(&l->raw, l->lease, STREAM_PAGE_GROUP);
	head = raw_map_page(&l->raw, l->lease, STREAM_PAGE_HEAD);
}

static uint32_t slots;

static size_t page_bytes(void)
{
	return stream_reader_bytes(slots);
}

static void make(struct gpushm_stream_spec spec)
{
	slots = spec.slots;
	create_with(spec);
}

static void leave(struct liar *l)
{
	if (l->lease && l->raw.socket >= 0) {
		raw_close_lease(&l->raw, l->lease);
		raw_close(&l->raw);
	}
	l->lease = 0;
}

static void end_liars(void)
{
	for (size_t i = 0; i < array_size(liars); i++)
		leave(&liars[i]);
	memset(liars, 0, sizeof(liars));
	teardown();
}

/* What wipes a page: its first words, all zeros, all ones. */
static void wipe(int how, void *page, size_t bytes)
{
	memset(page, how == 2 ? 0xff : 0, how == 0 ? 16 : bytes);
}

/* ---- the reader's own page ---- */

START_TEST(a_wiped_page_of_a_reader_ends_nothing)
{
	make((struct gpushm_stream_spec){ .slots = 8, .limit_ms = 100 });
	join(&liars[0], STREAM_EVERY);
	wipe(_i, liars[0].page, page_bytes());
	r = follow(GPUSHM_EVERY, 1);
	for (uint64_t seq = 1; seq <= MAX_FRAMES; seq++) {
		begins(60000); /* the liar may have to be dropped first */
		ck_assert_uint_eq(produce(), seq);
		expect_next(r, seq);
	}
}
END_TEST

/* Joining again and again, it wipes each page before the producer has mapped it. */
START_TEST(wiped_pages_of_one_seat_after_the_other_end_nothing)
{
	hostile_reader_stays_away("readers are counted");
	make((struct gpushm_stream_spec){ .slots = 4, .readers = 3, .limit_ms = 60000 });
	r = follow(GPUSHM_EVERY, 1);
	for (uint64_t seq = 1; seq <= 50; seq++) {
		join(&liars[0], STREAM_LATEST);
		wipe(0, liars[0].page, page_bytes());
		ck_assert_uint_eq(produce(), seq);
		expect_next(r, seq);
		leave(&liars[0]);
		ck_assert_int_eq(__builtin_popcountll(head->active), 1);
	}
}
END_TEST

/* ---- the group's page ---- */

static void wipe_group_and_leave(int how)
{
	join(&liars[0], STREAM_SHARE);
	wipe(how, liars[0].group, stream_group_bytes(slots));
	leave(&liars[0]);
	ck_assert_uint_eq(head->sharing, 0);
}

static const uint32_t queue_flags[] = { 0, GPUSHM_KEEP_QUEUE };

START_TEST(a_wiped_page_of_the_group_lets_others_join)
{
	make((struct gpushm_stream_spec){
		.slots = 4, .limit_ms = 200, .flags = queue_flags[_i % 2] });
	produce();
	wipe_group_and_leave(_i / 2);
	r = follow(GPUSHM_SHARE, 1);
	produce();
	/* With a queue the first frame may still be there. */
	ck_assert_uint_ge(gpushm_frame_seq(next(r)), 1);
}
END_TEST

/* The members that are there go on, with what the producer has still. */
START_TEST(a_wiped_page_of_the_group_leaves_its_members_at_work)
{
	uint64_t last = 0;

	make((struct gpushm_stream_spec){ .slots = 4, .limit_ms = 60000 });
	r = follow(GPUSHM_SHARE, 1);
	produce_many(3);
	expect_next(r, 1);
	join(&liars[0], STREAM_SHARE);
	wipe(_i, liars[0].group, stream_group_bytes(slots));
	for (int i = 0; i < 20; i++) {
		struct gpushm_frame *f = NULL;

		produce();
		if (gpushm_frame_next(r, NULL, 0, &f) < 0)
			continue; /* rubbish said that it was taken */
		ck_assert(streamer_is_right(f));
		last = gpushm_frame_seq(f);
		release(f);
	}
	ck_assert_uint_ge(last, 20);
}
END_TEST

static atomic_int worked; /* 0: it still takes frames */

static void *work(void *unused)
{
	struct gpushm_frame *f = NULL;
	int e;

	while ((e = gpushm_frame_next(r, NULL, 60000, &f)) == 0)
		gpushm_frame_release(f, NULL);
	atomic_store(&worked, e);
	return NULL;
}

/* That each slot's frame is to be redone, and nobody is told; or that all are still to be taken. It
 * seems to sleep, so that the producer would drop the honest member first. */
static void keep_queue(struct liar *l, bool redo)
{
	uint64_t oldest = head->newest;

	l->page->asleep = 1;
	for (uint32_t k = 0; k < slots; k++) {
		uint64_t seq = head->slot[k].seq;

		oldest = seq && seq < oldest ? seq : oldest;
		if (redo && seq)
			l->group->owner[k] = stream_owner(seq, STREAM_REDO);
	}
	if (!redo)
		l->group->next = oldest;
}

/* It wakes them when the group is in its way, before the limit is over. */
START_TEST(a_producer_drops_no_member_for_what_another_writes)
{
	pthread_t thread;

	make((struct gpushm_stream_spec){ .slots = 4, .limit_ms = 200 });
	r = follow(GPUSHM_SHARE, 1);
	join(&liars[0], STREAM_SHARE);
	produce_many(4);
	pthread_create(&thread, NULL, work, NULL);
	for (int i = 0; i < 20; i++) {
		struct gpushm_frame *f = NULL;

		client_await(liars[0].group->next > head->newest || atomic_load(&worked));
		ck_assert_int_eq(atomic_load(&worked), 0);
		keep_queue(&liars[0], _i == 0);
		ck_assert_msg(gpushm_frame_begin(p, NULL, 60000, &f) == 0, "%s", gpushm_error());
		fill_and_publish(f);
	}
	p = gpushm_stream_close(p);
	pthread_join(thread, NULL);
	ck_assert_int_eq(atomic_load(&worked), -EPIPE);
}
END_TEST

/* Makes the stream, and is killed. */
static int orphan_role(char **args)
{
	struct gpushm_stream_spec spec = { .slots = 4, .flags = GPUSHM_KEEP_QUEUE };

	if (gpushm_connect(args[0], &c) < 0 || streamer_create(c, "s", &spec, &p) < 0)
		return 1;
	puts("made");
	fflush(stdout);
	pause();
	return 0;
}

static const struct role roles[] = { { "orphan", orphan_role } };

START_TEST(a_stream_with_a_wiped_page_of_the_group_is_adopted)
{
	struct role_process orphan;
	char line[8];

	role_start(&orphan, "orphan", (const char *[]){ d.socket, NULL });
	role_read_line(&orphan, line, sizeof(line));
	slots = 4;
	join(&liars[0], STREAM_SHARE);
	wipe(_i, liars[0].group, stream_group_bytes(slots));
	kill(orphan.pid, SIGKILL);
	role_wait(&orphan);
	client_await(head->state == STREAM_ORPHANED);
	create_with((struct gpushm_stream_spec){ .slots = 4, .flags = GPUSHM_ADOPT });
	r = follow(GPUSHM_EVERY, 1);
	ck_assert_uint_eq(produce(), 1);
	expect_next(r, 1);
}
END_TEST

/* ---- claims that are passed on ---- */

static atomic_bool passing;

/* Every 20 ms the other one has the frame. */
static void *pass_claims(void *unused)
{
	for (unsigned i = 0; atomic_load(&passing); i++) {
		struct liar *from = &liars[i % 2], *to = &liars[(i + 1) % 2];

		for (uint32_t k = 0; k < slots; k++)
			to->page->claims[k].claim = stream_claim_word(1, STREAM_CLAIMED);
		for (uint32_t k = 0; k < slots; k++)
			from->page->claims[k].claim = 0;
		poll(NULL, 0, 20);
	}
	return NULL;
}

START_TEST(claims_that_are_passed_on_hold_a_producer_for_the_limit)
{
	struct gpushm_frame *f = NULL;
	pthread_t thread;
	int e;

	make((struct gpushm_stream_spec){ .slots = 2, .limit_ms = 100 });
	join(&liars[0], STREAM_SHARE);
	join(&liars[1], STREAM_SHARE);
	produce_many(2);
	liars[0].group->next = 3;
	atomic_store(&passing, true);
	pthread_create(&thread, NULL, pass_claims, NULL);
	e = gpushm_frame_begin(p, NULL, 20000, &f);
	atomic_store(&passing, false);
	pthread_join(thread, NULL);
	ck_assert_msg(e == 0, "%s", gpushm_error());
	gpushm_frame_cancel(f);
}
END_TEST

/* ---- seats ---- */

START_TEST(one_user_leaves_seats_to_others)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0644 };
	struct gpushm_stream_spec spec = { .struct_size = sizeof(spec),
					   .arrays = streamer_arrays,
					   .n_arrays = STREAMER_ARRAYS,
					   .slots = 4,
					   .readers = 8 };
	struct actor users[2];
	struct raw raws[16];
	unsigned taken[2] = { 0 }, n = 0;

	ck_assert_int_eq(gpushm_stream_create(c, "s", &spec, &o, &p), 0);
	for (unsigned u = 0; u < 2; u++) {
		actor_start(&users[u], d.socket, 65521 + u, 65521 + u);
		for (int e = 0; e == 0 && n < array_size(raws); n++) {
			raw_greet_as(&raws[n], &users[u]);
			e = raw_join_as(&raws[n], raw_open(&raws[n], "s"), STREAM_LATEST, 1);
			taken[u] += e == 0;
			ck_assert_msg(e == 0 || strstr(raws[n].text, "leaves the others"), "%s",
				      raws[n].text);
		}
	}
	ck_assert_uint_lt(taken[0], 8);
	ck_assert_uint_ge(taken[0], 2);
	ck_assert_uint_ge(taken[1], 1);
	r = follow(GPUSHM_LATEST, 1);
	while (n > 0)
		raw_close(&raws[--n]);
	actor_kill(&users[0]);
	actor_kill(&users[1]);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *own = tcase_create("own"), *group = tcase_create("group"),
	      *seats = tcase_create("seats");
	TCase *all[] = { own, group, seats };

	role_dispatch(argc, argv, roles, array_size(roles));
	for (size_t i = 0; i < array_size(all); i++) {
		tcase_add_checked_fixture(all[i], client_setup, end_liars);
		tcase_set_timeout(all[i], 120);
	}
	tcase_add_loop_test(own, a_wiped_page_of_a_reader_ends_nothing, 0, 3);
	tcase_add_test(own, wiped_pages_of_one_seat_after_the_other_end_nothing);
	tcase_add_loop_test(group, a_wiped_page_of_the_group_lets_others_join, 0, 6);
	tcase_add_loop_test(group, a_wiped_page_of_the_group_leaves_its_members_at_work, 0, 3);
	tcase_add_loop_test(group, a_producer_drops_no_member_for_what_another_writes, 0, 2);
	tcase_add_loop_test(group, a_stream_with_a_wiped_page_of_the_group_is_adopted, 0, 3);
	tcase_add_test(seats, claims_that_are_passed_on_hold_a_producer_for_the_limit);
	if (user_may_change())
		tcase_add_test(seats, one_user_leaves_seats_to_others);
	return suite_run("stream_hostile", own, group, seats, NULL);
}
