/* SPDX-License-Identifier: MIT
 *
 * The requests of streams, sent without the library: who may do what, in which order, and what a
 * hostile client gets.
 */
#include "proto/base/own.h"
#include "tests/lib/census.h"
#include "tests/lib/stream_sides.h"
#include "tests/lib/suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define STRANGER 65531

/* ---- the fixture: a producer and a reader, each with a connection ---- */

static void setup(void)
{
	client_setup_with(CENSUS_CONFIG);
	raw_greet(&p, d.socket);
	raw_greet(&q, d.socket);
	sides_make_stream();
}

static void teardown(void)
{
	gpushm_unlink(c, "s");
	raw_close_lease(&q, reader);
	raw_close_lease(&p, producer);
	raw_close(&p);
	raw_close(&q);
	client_teardown();
}

/* ---- the order ---- */

START_TEST(a_stream_is_made_joined_and_left)
{
	const struct stream_group_page *g = raw_map_page(&p, producer, STREAM_PAGE_GROUP);
	const struct stream_reader_page *seen;
	struct stream_reader_page *own;
	uint32_t i;

	ck_assert_uint_eq(head->magic, STREAM_HEAD_MAGIC);
	ck_assert_uint_eq(head->slots, RAW_SLOTS);
	ck_assert_uint_eq(head->readers, RAW_READERS);
	ck_assert_uint_eq(head->slot_bytes, RAW_SLOT_BYTES);
	ck_assert_uint_eq(head->limit_ms, 10000);
	ck_assert_uint_eq(head->state, STREAM_RUNNING);
	ck_assert_uint_eq(head->producers, 1);
	ck_assert_uint_eq(g->magic, STREAM_GROUP_MAGIC);

	i = raw_join(&q, reader, STREAM_EVERY);
	ck_assert_uint_eq(head->seats[i].state, STREAM_SEAT_TAKEN);
	ck_assert_uint_eq(head->seats[i].generation, 1);
	ck_assert_uint_eq(head->active, 1u << i);
	ck_assert_uint_eq(head->every, 1u << i);
	own = raw_map_page(&q, reader, STREAM_PAGE_READER + i);
	seen = raw_map_page(&p, producer, STREAM_PAGE_READER + i);
	ck_assert_uint_eq(own->magic, STREAM_READER_MAGIC);
	own->taken = 7;
	ck_assert_uint_eq(seen->taken, 7);
	own->claims[2].claim = stream_claim_word(1, STREAM_CLAIMED);

	ck_assert_int_eq(raw_close_lease(&q, reader), 0);
	ck_assert_uint_eq(head->seats[i].state, STREAM_SEAT_FREE);
	ck_assert_uint_eq(head->active, 0);
	ck_assert_uint_eq(seen->claims[2].claim, 0);
	ck_assert_uint_eq(seen->claims[2].released, STREAM_RELEASED_ALL);

	ck_assert_int_eq(raw_close_lease(&p, producer), 0);
	ck_assert_uint_eq(head->state, STREAM_ENDED);
	ck_assert_int_eq(raw_continue(&p, "s", 0), CODE_EXISTS);
}
END_TEST

START_TEST(streams_says_what_the_words_say)
{
	const Gpushm__Proto__StreamInfo *m;
	struct stream_reader_page *own;
	uint32_t i = raw_join(&q, reader, STREAM_SHARE);

	own = raw_map_page(&q, reader, STREAM_PAGE_READER + i);
	own->taken = 4;
	own->held = 1;
	own->oldest = 5;
	own->oldest_ns = 1;
	raw_publish_frame(head, 1, 5, true);
	head->stalls = 2;
	head->stalled_ns = 99;
	m = raw_stream_info(&q, "s");
	ck_assert_ptr_nonnull(m);
	ck_assert_uint_eq(m->slots, RAW_SLOTS);
	ck_assert_uint_eq(m->readers_max, RAW_READERS);
	ck_assert_uint_eq(m->state, STREAM_RUNNING);
	ck_assert_int_eq(m->pid, getpid());
	ck_assert_uint_eq(m->newest, 5);
	ck_assert_uint_eq(m->newest_ns, 1005);
	ck_assert_uint_eq(m->stalls, 2);
	ck_assert_uint_eq(m->stalled_ns, 99);
	ck_assert_uint_eq(m->queued, 5);
	ck_assert_uint_eq(m->n_readers, 1);
	ck_assert_uint_eq(m->readers[0]->reader, i);
	ck_assert_uint_eq(m->readers[0]->follow, STREAM_SHARE);
	ck_assert_uint_eq(m->readers[0]->taken, 4);
	ck_assert_uint_eq(m->readers[0]->oldest, 5);
	ck_assert_uint_gt(m->readers[0]->oldest_ms, 0);
	ck_assert_int_eq(m->readers[0]->pid, getpid());
	ck_assert_ptr_null(raw_stream_info(&q, "sx"));
	ck_assert_int_eq(raw_call(&q, REQUEST(STAT, Stat, stat, BYTES(name, "s"))), 0);
	ck_assert(q.reply->stat->stream);
}
END_TEST

START_TEST(a_newest_frame_that_lies_nowhere_is_not_read)
{
	head->newest = 3;
	*stream_order(head, RAW_SLOTS, stream_order_size(RAW_SLOTS), 3) = 0x7fffffff;
	ck_assert_uint_eq(raw_stream_info(&q, "s")->newest_ns, 0);
}
END_TEST

START_TEST(a_lease_leaves_its_stream_for_good)
{
	uint32_t i = raw_join(&q, reader, STREAM_EVERY);

	ck_assert_int_eq(raw_leave(&q, reader), 0);
	ck_assert_uint_eq(head->seats[i].state, STREAM_SEAT_FREE);
	ck_assert_int_eq(raw_leave(&q, reader), 0);
	ck_assert_int_eq(raw_join_as(&q, reader, STREAM_EVERY, 1), CODE_STATE);
	ck_assert_int_eq(raw_page(&q, reader, 0), CODE_STATE);
	ck_assert_int_eq(raw_leave(&p, producer), 0);
	ck_assert_uint_eq(head->state, STREAM_ENDED);
	ck_assert_int_eq(raw_leave(&p, producer), 0);
	ck_assert_int_eq(raw_page(&p, producer, 0), CODE_STATE);
}
END_TEST

START_TEST(a_join_that_is_sent_again_gets_its_seat)
{
	uint32_t i = raw_join(&q, reader, STREAM_LATEST);

	ck_assert_uint_eq(raw_join(&q, reader, STREAM_LATEST), i);
	ck_assert_uint_eq(q.reply->joined->generation, 1);
	ck_assert_int_eq(raw_join_as(&q, reader, STREAM_EVERY, 1), CODE_STATE);
	ck_assert_int_eq(raw_join_as(&q, reader, STREAM_LATEST, 2), CODE_STATE);
	ck_assert_uint_eq(head->active, 1u << i);
}
END_TEST

/* Who may open a stream sees it; its owner sees whose processes follow it. */
START_TEST(a_stranger_does_not_learn_who_follows_a_stream)
{
	const Gpushm__Proto__StreamInfo *m;
	struct actor stranger;
	struct raw r;
	uint64_t lease;

	if (getuid() != 0) {
		puts("skipped: needs root, to become another user");
		return;
	}
	raw_join(&q, reader, STREAM_EVERY);
	lease = raw_create(&p, "own", 16384);
	ck_assert_int_eq(raw_make_stream(&p, lease, 4, 4096, 1), 0);
	ck_assert_ptr_null(raw_stream_info(&p, "own"));
	raw_publish(&p, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
	ck_assert_ptr_nonnull(raw_stream_info(&p, "own"));

	actor_start(&stranger, d.socket, STRANGER, STRANGER);
	raw_greet_as(&r, &stranger);
	m = raw_stream_info(&r, "s");
	ck_assert_ptr_nonnull(m);
	ck_assert(!m->has_pid && !m->has_command && m->n_readers == 1);
	ck_assert(!m->readers[0]->has_pid && !m->readers[0]->has_uid &&
		  !m->readers[0]->has_command);
	ck_assert_ptr_null(raw_stream_info(&r, "own"));
	raw_close(&r);
	actor_kill(&stranger);
	raw_close_lease(&p, lease);
	ck_assert_int_eq(gpushm_unlink(c, "own"), 0);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(wrong_sizes_of_a_stream_are_refused)
{
	static const struct {
		uint32_t slots;
		uint64_t slot_bytes;
		uint32_t readers;
		int code;
	} bad[] = {
		{ 0, 4096, 1, CODE_BAD_REQUEST },
		{ 1, 4096, 1, CODE_BAD_REQUEST },
		{ 4097, 1, 1, CODE_BAD_REQUEST },
		{ 4, 0, 1, CODE_LAYOUT },
		{ 4, 4097, 1, CODE_LAYOUT },
		{ 2, 1ull << 63, 1, CODE_LAYOUT },
		{ 4, (1ull << 62) + 1, 1, CODE_LAYOUT },
		{ UINT32_MAX, 4096, 1, CODE_BAD_REQUEST },
		{ 4, 4096, 0, CODE_BAD_REQUEST },
		{ 4, 4096, 65, CODE_BAD_REQUEST },
	};
	uint64_t lease = raw_create(&p, "t", 16384);

	for (size_t i = 0; i < array_size(bad); i++)
		ck_assert_int_eq(raw_make_stream(&p, lease, bad[i].slots, bad[i].slot_bytes,
						 bad[i].readers),
				 bad[i].code);
	ck_assert_int_eq(raw_call(&p, REQUEST(STREAM, Stream, stream, SET(lease, lease),
					      SET(slots, 4), SET(slot_bytes, 1),
					      SET(delivery, (Gpushm__Proto__Delivery)3))),
			 CODE_BAD_REQUEST);
	ck_assert_int_eq(raw_make_stream(&p, lease, 4, 4096, 64), 0);
	ck_assert_int_eq(raw_make_stream(&p, lease, 4, 4096, 64), CODE_STATE);
	ck_assert_int_eq(raw_close_lease(&p, lease), 0);
}
END_TEST

START_TEST(a_stream_of_a_wrong_buffer_is_refused)
{
	uint64_t lease = raw_create(&p, "t", 16384);

	ck_assert_int_eq(raw_make_stream(&q, lease, 4, 4096, 1), CODE_NO_LEASE);
	ck_assert_int_eq(raw_make_stream(&q, reader, 4, 4096, 1), CODE_STATE);
	ck_assert_int_eq(raw_make_stream(&p, producer, 4, 4096, 1), CODE_STATE);
	raw_publish(&p, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
	ck_assert_int_eq(raw_make_stream(&p, lease, 4, 4096, 1), CODE_STATE);
	ck_assert_int_eq(raw_join_as(&p, lease, STREAM_EVERY, 1), CODE_UNSUPPORTED);
	ck_assert_int_eq(raw_page(&p, lease, 0), CODE_UNSUPPORTED);
	ck_assert_int_eq(raw_drop(&p, lease, 0, 1), CODE_UNSUPPORTED);
	ck_assert_int_eq(raw_leave(&p, lease), CODE_UNSUPPORTED);
	ck_assert_int_eq(raw_close_lease(&p, lease), 0);
	ck_assert_int_eq(raw_continue(&p, "t", 0), CODE_EXISTS);
	ck_assert_int_eq(gpushm_unlink(c, "t"), 0);
}
END_TEST

START_TEST(a_stream_cannot_be_sealed)
{
	uint64_t lease = raw_create(&p, "t", 16384);

	ck_assert_int_eq(raw_make_stream(&p, lease, 4, 4096, 1), 0);
	ck_assert_int_eq(raw_call(&p, REQUEST(PUBLISH, Publish, publish, SET(lease, lease),
					      SET(state, GPUSHM__PROTO__STATE__STATE_SEALED))),
			 CODE_STATE);
	ck_assert_int_eq(raw_close_lease(&p, lease), 0);
}
END_TEST

START_TEST(a_wrong_join_is_refused)
{
	ck_assert_int_eq(raw_join_as(&q, producer, STREAM_EVERY, 1), CODE_NO_LEASE);
	ck_assert_int_eq(raw_join_as(&q, reader + 1000, STREAM_EVERY, 1), CODE_NO_LEASE);
	ck_assert_int_eq(raw_join_as(&p, producer, STREAM_EVERY, 1), CODE_STATE);
	ck_assert_int_eq(raw_join_as(&q, reader, 0, 1), CODE_BAD_REQUEST);
	ck_assert_int_eq(raw_join_as(&q, reader, 4, 1), CODE_BAD_REQUEST);
	ck_assert_int_eq(raw_join_as(&q, reader, STREAM_EVERY, 0), CODE_BAD_REQUEST);
	ck_assert_int_eq(raw_join_as(&q, reader, STREAM_EVERY, RAW_SLOTS), CODE_BAD_REQUEST);
	ck_assert_int_eq(raw_call(&q, REQUEST(JOIN, Join, join)), CODE_BAD_REQUEST);
	ck_assert_uint_eq(head->active, 0);
}
END_TEST

START_TEST(a_join_without_a_free_seat_is_refused)
{
	uint64_t leases[RAW_READERS], late = raw_open(&q, "s");

	for (uint32_t i = 0; i < RAW_READERS; i++) {
		leases[i] = raw_open(&q, "s");
		ck_assert_uint_eq(raw_join(&q, leases[i], STREAM_EVERY), i);
	}
	ck_assert_int_eq(raw_join_as(&q, late, STREAM_EVERY, 1), CODE_NO_SEAT);
	/* A reader that was dropped keeps its seat until its lease ends. */
	ck_assert_int_eq(raw_drop(&p, producer, 1, 2), 0);
	ck_assert_uint_eq(head->seats[1].state, STREAM_SEAT_DROPPED);
	ck_assert_uint_eq(head->active, 5);
	ck_assert_int_eq(raw_join_as(&q, late, STREAM_EVERY, 1), CODE_NO_SEAT);
	ck_assert_int_eq(raw_close_lease(&q, leases[1]), 0);
	ck_assert_uint_eq(raw_join(&q, late, STREAM_EVERY), 1);
	ck_assert_uint_eq(head->seats[1].generation, RAW_READERS + 1);
	/* The one before is not the one that is there. */
	ck_assert_int_eq(raw_drop(&p, producer, 1, 2), 0);
	ck_assert_uint_eq(head->active, 7);
	for (uint32_t i = 0; i < RAW_READERS; i++)
		raw_close_lease(&q, leases[i]);
	raw_close_lease(&q, late);
}
END_TEST

START_TEST(a_process_gets_its_own_pages_alone)
{
	uint64_t other = raw_open(&q, "s");
	uint32_t i;

	ck_assert_int_eq(raw_page(&q, reader, STREAM_PAGE_HEAD), CODE_STATE);
	i = raw_join(&q, reader, STREAM_EVERY);
	raw_join(&q, other, STREAM_SHARE);
	ck_assert_int_eq(raw_page(&q, other, STREAM_PAGE_READER + i), CODE_ACCESS);
	ck_assert_int_eq(raw_page(&q, reader, STREAM_PAGE_GROUP), CODE_ACCESS);
	ck_assert_int_eq(raw_page(&q, reader, STREAM_PAGE_READER + RAW_READERS), CODE_BAD_REQUEST);
	ck_assert_int_eq(raw_page(&q, reader, UINT32_MAX), CODE_BAD_REQUEST);
	ck_assert_int_eq(raw_page(&q, producer, 0), CODE_NO_LEASE);
	ck_assert_int_eq(raw_page(&p, producer, STREAM_PAGE_READER + 2), CODE_NOT_FOUND);
	ck_assert_int_eq(raw_page(&q, other, STREAM_PAGE_GROUP), 0);
	ck_assert(q.reply->page->writable);
	ck_assert_int_eq(raw_page(&p, producer, STREAM_PAGE_GROUP), 0);
	ck_assert(!p.reply->page->writable);
	raw_close_lease(&q, other);
}
END_TEST

/* What a process was given to read it can neither map for writing nor open again for it; and it
 * can't change the size of what it may write. */
START_TEST(a_page_is_used_only_as_it_was_lent)
{
	uint32_t i = raw_join(&q, reader, STREAM_EVERY);
	int fd;

	ck_assert_int_eq(raw_page(&q, reader, STREAM_PAGE_HEAD), 0);
	fd = q.frame.fds[0];
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	ck_assert_int_eq(raw_page(&q, reader, STREAM_PAGE_READER + i), 0);
	fd = q.frame.fds[0];
	ck_assert_int_lt(ftruncate(fd, 0), 0);
	ck_assert_int_lt(ftruncate(fd, 1 << 20), 0);
	ck_assert_int_lt(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	/* It makes a hole of its own page: the daemon reads zeros. */
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
	ck_assert_uint_eq(raw_stream_info(&q, "s")->n_readers, 1);
}
END_TEST

START_TEST(only_the_producer_drops_readers)
{
	uint64_t other = raw_open(&q, "s");
	uint32_t i = raw_join(&q, reader, STREAM_EVERY), k = raw_join(&q, other, STREAM_EVERY);

	ck_assert_int_eq(raw_drop(&q, reader, k, 2), CODE_ACCESS);
	ck_assert_int_eq(raw_drop(&q, producer, k, 2), CODE_NO_LEASE);
	ck_assert_int_eq(raw_drop(&p, producer, RAW_READERS, 1), CODE_BAD_REQUEST);
	ck_assert_int_eq(raw_drop(&p, producer, i, 77), 0);
	ck_assert_uint_eq(head->active, 3);
	raw_close_lease(&q, other);
}
END_TEST

START_TEST(a_reader_that_was_dropped_keeps_no_frame)
{
	const struct stream_reader_page *seen;
	struct stream_reader_page *own;
	uint32_t i = raw_join(&q, reader, STREAM_EVERY);

	own = raw_map_page(&q, reader, STREAM_PAGE_READER + i);
	seen = raw_map_page(&p, producer, STREAM_PAGE_READER + i);
	own->claims[0].claim = stream_claim_word(1, STREAM_RELEASING);
	ck_assert_int_eq(raw_drop(&p, producer, i, 1), 0);
	ck_assert_uint_eq(seen->claims[0].claim, 0);
	ck_assert_uint_eq(seen->claims[0].released, STREAM_RELEASED_ALL);
	ck_assert_uint_eq(raw_stream_info(&p, "s")->dropped, 1);
	ck_assert(raw_stream_info(&p, "s")->readers[0]->dropped);
	ck_assert_int_eq(raw_join_as(&q, reader, STREAM_EVERY, 1), CODE_STATE);
}
END_TEST

START_TEST(a_stream_is_not_opened_for_writing)
{
	int code = raw_call(&q, REQUEST(OPEN, Open, open, BYTES(name, "s"),
					SET(access, GPUSHM__PROTO__ACCESS__ACCESS_WRITE)));

	ck_assert_int_eq(code, CODE_STATE);
	ck_assert_ptr_nonnull(strstr(q.text, "GPUSHM_ADOPT"));
	ck_assert_int_eq(raw_continue(&q, "s", 0), CODE_STATE);
	ck_assert_int_eq(raw_continue(&q, "s", 20), CODE_STATE);
	ck_assert_int_eq(raw_call(&q,
				  REQUEST(OPEN, Open, open, BYTES(name, "s"), SET(produce, true))),
			 CODE_BAD_REQUEST);
}
END_TEST

/* ---- a page that a process keeps ---- */

START_TEST(a_page_that_a_process_keeps_is_counted)
{
	struct gpushm_status status = client_status();
	uint64_t before = status.retained_bytes;
	uint32_t i = raw_join(&q, reader, STREAM_EVERY);
	void *own = raw_map_page(&q, reader, STREAM_PAGE_READER + i);

	raw_close_lease(&q, reader);
	ck_assert_uint_eq(client_status().retained_bytes - before, 4096);
	munmap(own, stream_reader_bytes(RAW_SLOTS));
	client_await(client_status().retained_bytes == before);
}
END_TEST

START_TEST(a_stream_leaves_nothing)
{
	struct census before;
	uint64_t leases[2], made;

	census_take(&d, c, &before);
	for (int n = 0; n < 3; n++) {
		made = raw_produce(&p, "t");
		for (int i = 0; i < 2; i++) {
			leases[i] = raw_open(&q, "t");
			raw_join(&q, leases[i], STREAM_EVERY + (unsigned)i);
			ck_assert_int_eq(raw_page(&q, leases[i], STREAM_PAGE_HEAD), 0);
		}
		ck_assert_int_eq(raw_close_lease(&q, leases[1]), 0);
		ck_assert_int_eq(raw_close_lease(&p, made), 0);
		ck_assert_int_eq(raw_close_lease(&q, leases[0]), 0);
		ck_assert_int_eq(gpushm_unlink(c, "t"), 0);
	}
	census_await(&d, c, &before);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("stream_requests");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_stream_is_made_joined_and_left);
	tcase_add_test(tc, streams_says_what_the_words_say);
	tcase_add_test(tc, a_newest_frame_that_lies_nowhere_is_not_read);
	tcase_add_test(tc, a_lease_leaves_its_stream_for_good);
	tcase_add_test(tc, a_join_that_is_sent_again_gets_its_seat);
	tcase_add_test(tc, a_stranger_does_not_learn_who_follows_a_stream);
	tcase_add_test(tc, wrong_sizes_of_a_stream_are_refused);
	tcase_add_test(tc, a_stream_of_a_wrong_buffer_is_refused);
	tcase_add_test(tc, a_stream_cannot_be_sealed);
	tcase_add_test(tc, a_wrong_join_is_refused);
	tcase_add_test(tc, a_join_without_a_free_seat_is_refused);
	tcase_add_test(tc, a_process_gets_its_own_pages_alone);
	tcase_add_test(tc, a_page_is_used_only_as_it_was_lent);
	tcase_add_test(tc, only_the_producer_drops_readers);
	tcase_add_test(tc, a_reader_that_was_dropped_keeps_no_frame);
	tcase_add_test(tc, a_stream_is_not_opened_for_writing);
	tcase_add_test(tc, a_page_that_a_process_keeps_is_counted);
	tcase_add_test(tc, a_stream_leaves_nothing);
	return suite_run("stream_requests", tc, NULL);
}
