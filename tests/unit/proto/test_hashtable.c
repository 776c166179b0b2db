/* SPDX-License-Identifier: MIT
 *
 * The hash table: growing and shrinking lose no link, and an empty table takes little memory.
 */
#include "proto/base/hashtable.h"
#include "proto/base/own.h"
#include "tests/lib/forked.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <pthread.h>
#include <stdbool.h>

#define N 10000

struct item {
	uint64_t key;
	struct hashtable_link link;
};

static struct item items[N];
static struct hashtable table;

static bool is_in(uint64_t key)
{
	struct item *it;

	hashtable_foreach (it, &table, hashtable_hash_u64(key), link)
		if (it->key == key)
			return true;
	return false;
}

static void insert_all(void)
{
	ck_assert_int_eq(hashtable_init(&table), 0);
	for (uint64_t i = 0; i < N; i++) {
		items[i].key = i;
		hashtable_insert(&table, &items[i].link, hashtable_hash_u64(i));
	}
}

START_TEST(a_table_that_grows_or_shrinks_keeps_every_link)
{
	insert_all();
	ck_assert_uint_eq(table.n, N);
	for (uint64_t dropped = 0; dropped < N; dropped++) {
		hashtable_drop(&table, &items[dropped].link);
		ck_assert(!is_in(dropped));
		if (dropped % 100 == 0)
			for (uint64_t i = dropped + 1; i < N; i++)
				ck_assert(is_in(i));
	}
	ck_assert_uint_eq(table.n, 0);
	hashtable_done(&table);
}
END_TEST

START_TEST(an_emptied_table_gives_its_buckets_back)
{
	size_t empty;

	ck_assert_int_eq(hashtable_init(&table), 0);
	empty = table.n_buckets;
	hashtable_done(&table);
	insert_all();
	ck_assert_uint_ge(table.n_buckets, N);
	for (size_t i = 0; i < N; i++)
		hashtable_drop(&table, &items[i].link);
	ck_assert_uint_eq(table.n_buckets, empty);
	hashtable_done(&table);
}
END_TEST

/* A table that is resized at each insert and drop would be slow. */
START_TEST(a_table_keeps_its_buckets_around_one_size)
{
	const void *buckets;

	insert_all();
	buckets = table.buckets;
	for (int i = 0; i < 100; i++) {
		hashtable_drop(&table, &items[0].link);
		hashtable_insert(&table, &items[0].link, hashtable_hash_u64(0));
	}
	for (size_t i = 0; i < N / 2; i++)
		hashtable_drop(&table, &items[i].link);
	ck_assert_ptr_eq(table.buckets, buckets);
	hashtable_done(&table);
}
END_TEST

/* Whoever has waited for a name for the longest time comes first. */
START_TEST(links_of_one_hash_keep_their_order)
{
	struct hashtable_link same[64] = { 0 };
	const struct hashtable_link *it;
	size_t i = 1;

	ck_assert_int_eq(hashtable_init(&table), 0);
	for (size_t k = 0; k < N; k++) {
		if (k % (N / 64 + 1) == 0)
			hashtable_insert(&table, &same[k / (N / 64 + 1)], 7);
		hashtable_insert(&table, &items[k].link, hashtable_hash_u64(k));
	}
	hashtable_drop(&table, &same[0]);
	hashtable_drop(&table, &same[63]);
	hashtable_drop(&table, &same[62]);
	hashtable_insert(&table, &same[62], 7);
	for (size_t k = 0; k < N; k++)
		hashtable_drop(&table, &items[k].link);
	for (it = hashtable_first(&table, 7); it; it = hashtable_next(it))
		ck_assert_ptr_eq(it, &same[i++]);
	ck_assert_uint_eq(i, 63);
	hashtable_done(&table);
}
END_TEST

struct first_hash {
	pthread_barrier_t *begin;
	uint64_t hash;
};

static void *hash_first(void *arg)
{
	struct first_hash *f = arg;

	pthread_barrier_wait(f->begin);
	f->hash = hashtable_hash_u64(1);
	return NULL;
}

/* In a process that has not hashed yet: how many threads got another hash than the next caller. */
static int hash_at_once(void *arg)
{
	struct first_hash of[4];
	pthread_t threads[array_size(of)];
	pthread_barrier_t begin;
	int wrong = 0;

	pthread_barrier_init(&begin, NULL, array_size(of));
	for (size_t i = 0; i < array_size(of); i++) {
		of[i].begin = &begin;
		pthread_create(&threads[i], NULL, hash_first, &of[i]);
	}
	for (size_t i = 0; i < array_size(of); i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < array_size(of); i++)
		wrong += of[i].hash != hashtable_hash_u64(1);
	pthread_barrier_destroy(&begin);
	return wrong;
}

START_TEST(the_first_hashes_of_threads_agree)
{
	for (unsigned i = 0; i < 100; i++)
		ck_assert_int_eq(forked(hash_at_once, NULL), 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("hashtable");

	tcase_set_timeout(t, 60); /* forks take their time under a sanitizer */
	tcase_add_test(t, a_table_that_grows_or_shrinks_keeps_every_link);
	tcase_add_test(t, an_emptied_table_gives_its_buckets_back);
	tcase_add_test(t, a_table_keeps_its_buckets_around_one_size);
	tcase_add_test(t, links_of_one_hash_keep_their_order);
	tcase_add_test(t, the_first_hashes_of_threads_agree);
	return suite_run("hashtable", t, NULL);
}
