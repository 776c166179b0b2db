/* SPDX-License-Identifier: MIT
 *
 * The ring that a load's threads share: how it is cut, which slot a thread gets, and how long it
 * waits for one. Over the fake driver.
 */
#include "client/gpushm_private.h"
#include "client/models/copy/ring.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

static struct gpu *gpu;
static struct ring ring;

static void setup(void)
{
	ck_assert_msg(gpu_open(0, &gpu) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpu_enter(gpu), 0);
	ck_assert_int_eq(ring_open(&ring, gpu), 0);
}

static void teardown(void)
{
	ring_close(&ring);
	gpu_leave();
	gpu = gpu_close(gpu);
}

/* Memory for so many threads, at an address where there is none: most tests never touch it. */
static struct ring_piece piece_for(unsigned threads)
{
	return (struct ring_piece){ .memory = (char *)0x100000000, .bytes = RING_BYTES(threads) };
}

static void cut(unsigned threads, unsigned most)
{
	struct ring_piece piece = piece_for(threads);

	ck_assert_int_eq(ring_cut(&ring, &piece, 1, threads, most), 0);
}

static struct slot *join(uint64_t group)
{
	struct slot *s = NULL;

	ck_assert_int_eq(ring_join(&ring, group, &s), 0);
	return s;
}

/* ---- cutting ---- */

static size_t slot_bytes(void)
{
	return ring.blocks == 1 ? SLOT_BYTES : (size_t)ring.blocks * BLOCK_BYTES;
}

static bool is_inside(const struct slot *s, const struct ring_piece *piece)
{
	return s->memory >= piece->memory &&
	       s->memory + slot_bytes() <= piece->memory + piece->bytes;
}

static bool overlaps(const struct slot *a, const struct slot *b)
{
	return a->memory < b->memory + slot_bytes() && b->memory < a->memory + slot_bytes();
}

static void expect_slots(const struct ring_piece *pieces, size_t n)
{
	for (unsigned i = 0; i < ring.n; i++) {
		bool inside = false;

		for (size_t p = 0; p < n; p++)
			inside |= is_inside(&ring.slots[i], &pieces[p]);
		ck_assert(inside);
		for (unsigned k = 0; k < i; k++)
			ck_assert(!overlaps(&ring.slots[i], &ring.slots[k]));
	}
}

START_TEST(threads_find_enough_slots)
{
	for (unsigned threads = 1; threads <= RING_THREADS_MAX; threads++)
		for (unsigned most = 1; most <= RING_BLOCKS_MAX; most++) {
			struct ring_piece piece = piece_for(threads);

			cut(threads, most);
			ck_assert_uint_ge(ring.blocks, 1);
			ck_assert_uint_le(ring.blocks, most);
			if (ring.blocks == 1)
				ck_assert_uint_eq(ring.n, 2 * threads);
			else
				ck_assert_uint_ge(ring.n * ring.blocks, threads + 2 * ring.blocks);
			expect_slots(&piece, 1);
		}
}
END_TEST

/* What the loader has on most machines: 12 threads, six slots of 16 MiB. */
START_TEST(twelve_threads_get_six_slots_of_four_blocks)
{
	cut(12, RING_BLOCKS_MAX);
	ck_assert_uint_eq(ring.blocks, 4);
	ck_assert_uint_eq(ring.n, 6);
}
END_TEST

/* A save takes more memory for a larger part. */
START_TEST(a_slot_lies_in_one_piece)
{
	const struct ring_piece pieces[] = {
		{ .memory = (char *)0x100000000, .bytes = RING_BYTES(1) },
		{ .memory = (char *)0x200000000, .bytes = RING_BYTES(2) },
		{ .memory = (char *)0x300000000, .bytes = RING_BYTES(9) },
	};

	for (unsigned most = 1; most <= RING_BLOCKS_MAX; most++) {
		ck_assert_int_eq(ring_cut(&ring, pieces, 3, 12, most), 0);
		expect_slots(pieces, 3);
		ck_assert_uint_ge(ring.n * ring.blocks, 12 + 2 * ring.blocks);
	}
}
END_TEST

/* ---- slots ---- */

START_TEST(threads_of_one_group_share_a_slot)
{
	struct slot *a, *b;

	cut(12, 4);
	a = join(0);
	b = join(1);
	ck_assert_ptr_ne(a, b);
	ck_assert_ptr_eq(join(0), a);
	ck_assert(!ring_filled(&ring, a, 3));
	ck_assert_ptr_eq(join(0), a);
	ck_assert(!ring_filled(&ring, a, 3));
	ck_assert(ring_filled(&ring, a, 3));
	ck_assert(ring_filled(&ring, b, 1));
}
END_TEST

START_TEST(slots_come_in_the_order_in_which_they_were_given_back)
{
	struct slot *s[6];

	cut(12, 4);
	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 6; i++)
			s[i] = join(100 * round + i);
		for (unsigned i = 0; i < 6; i++) {
			ck_assert_int_eq(ring_mark(&ring, s[5 - i]), 0);
			ring_give(&ring, s[5 - i]);
		}
		for (unsigned i = 0; i < 6; i++)
			ck_assert_ptr_eq(join(100 * round + 50 + i), s[5 - i]);
		for (unsigned i = 0; i < 6; i++)
			ring_give(&ring, s[i]);
	}
}
END_TEST

/* ---- many threads ---- */

#define THREADS 12u
#define GROUPS 3000u

static _Atomic uint64_t next_block, groups;

/* The place of a block in its group's slot. */
static uint64_t *place(struct slot *s, uint64_t block)
{
	return (void *)(s->memory + block % ring.blocks * BLOCK_BYTES);
}

static void expect_group(struct slot *s, uint64_t first)
{
	for (uint64_t block = first; block < first + ring.blocks; block++)
		ck_assert_uint_eq(*place(s, block), block);
	groups++;
}

static void *fill_slots(void *arg)
{
	uint64_t block;

	ck_assert_int_eq(gpu_enter(gpu), 0);
	while ((block = next_block++) < (uint64_t)GROUPS * ring.blocks) {
		struct slot *s = join(block / ring.blocks);

		*place(s, block) = block;
		if (!ring_filled(&ring, s, ring.blocks))
			continue;
		expect_group(s, block - block % ring.blocks);
		ck_assert_int_eq(ring_mark(&ring, s), 0);
		ring_give(&ring, s);
	}
	gpu_leave();
	return NULL;
}

START_TEST(a_slot_has_blocks_of_one_group)
{
	struct ring_piece piece = { .bytes = RING_BYTES(THREADS) };
	pthread_t threads[THREADS];

	piece.memory = mmap(NULL, piece.bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(piece.memory, MAP_FAILED);
	for (unsigned most = 1; most <= RING_BLOCKS_MAX; most++) {
		next_block = groups = 0;
		ck_assert_int_eq(ring_cut(&ring, &piece, 1, THREADS, most), 0);
		for (unsigned i = 0; i < THREADS; i++)
			ck_assert_int_eq(pthread_create(&threads[i], NULL, fill_slots, NULL), 0);
		for (unsigned i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		ck_assert_uint_eq(groups, GROUPS);
	}
	munmap(piece.memory, piece.bytes);
}
END_TEST

/* ---- waiting ---- */

struct waiter {
	pthread_t thread;
	uint64_t group;
	struct slot *slot;
	_Atomic bool ended;
};

static void *wait_for_slot(void *arg)
{
	struct waiter *w = arg;

	w->slot = join(w->group);
	w->ended = true;
	return NULL;
}

/* Takes all slots, so that the waiter finds none. */
static void start_waiter(struct waiter *w, uint64_t group)
{
	cut(12, 4);
	for (unsigned i = 0; i < ring.n; i++)
		join(i);
	*w = (struct waiter){ .group = group };
	ck_assert_int_eq(pthread_create(&w->thread, NULL, wait_for_slot, w), 0);
	usleep(20000);
	ck_assert(!w->ended);
}

START_TEST(a_waiting_thread_gets_a_slot_that_was_given_back)
{
	struct waiter w;

	start_waiter(&w, 77);
	ring_give(&ring, &ring.slots[3]);
	pthread_join(w.thread, NULL);
	ck_assert_ptr_eq(w.slot, &ring.slots[3]);
	ck_assert_uint_eq(w.slot->group, 77);
}
END_TEST

/* Two of one group wait; one slot is free for both. */
START_TEST(a_waiting_thread_gets_the_slot_of_its_group)
{
	struct waiter w, other = { .group = 77 };

	start_waiter(&w, 77);
	ck_assert_int_eq(pthread_create(&other.thread, NULL, wait_for_slot, &other), 0);
	usleep(20000);
	ring_give(&ring, &ring.slots[2]);
	pthread_join(w.thread, NULL);
	pthread_join(other.thread, NULL);
	ck_assert_ptr_eq(w.slot, &ring.slots[2]);
	ck_assert_ptr_eq(other.slot, w.slot);
}
END_TEST

START_TEST(a_stopped_ring_wakes_its_threads)
{
	struct waiter w;

	start_waiter(&w, 77);
	ring_stop(&ring);
	pthread_join(w.thread, NULL);
	ck_assert_ptr_null(w.slot);
	ck_assert_ptr_null(join(3));
	cut(12, 4);
	ck_assert_ptr_nonnull(join(3));
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("ring");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, threads_find_enough_slots);
	tcase_add_test(t, twelve_threads_get_six_slots_of_four_blocks);
	tcase_add_test(t, a_slot_lies_in_one_piece);
	tcase_add_test(t, threads_of_one_group_share_a_slot);
	tcase_add_test(t, slots_come_in_the_order_in_which_they_were_given_back);
	tcase_add_test(t, a_slot_has_blocks_of_one_group);
	tcase_add_test(t, a_waiting_thread_gets_a_slot_that_was_given_back);
	tcase_add_test(t, a_waiting_thread_gets_the_slot_of_its_group);
	tcase_add_test(t, a_stopped_ring_wakes_its_threads);
	return suite_run("ring", t, NULL);
}
