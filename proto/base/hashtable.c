/* SPDX-License-Identifier: MIT
 *
 * A hash table with chains, each in the order of insertion. It has twice the buckets when it would
 * have more links than buckets, and a quarter of them when only one bucket in eight would have a
 * link.
 */
#include "proto/base/hashtable.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define BUCKETS_MIN 64u

struct hashtable_bucket {
	struct hashtable_link *first, **end; /* end: where the next link goes */
};

static struct hashtable_bucket *new_buckets(size_t n)
{
	struct hashtable_bucket *buckets = calloc(n, sizeof(*buckets));

	for (size_t i = 0; buckets && i < n; i++)
		buckets[i].end = &buckets[i].first;
	return buckets;
}

int hashtable_init(struct hashtable *x)
{
	struct hashtable_bucket *buckets = new_buckets(BUCKETS_MIN);

	if (!buckets)
		return -ENOMEM;
	*x = (struct hashtable){ .buckets = buckets, .n_buckets = BUCKETS_MIN };
	return 0;
}

void hashtable_done(struct hashtable *x)
{
	free(x->buckets);
	*x = (struct hashtable){ 0 };
}

static struct hashtable_bucket *bucket_of(const struct hashtable *x, uint64_t hash)
{
	return &x->buckets[hash & (x->n_buckets - 1)];
}

static void link_in(struct hashtable_bucket *bucket, struct hashtable_link *link)
{
	link->next = NULL;
	link->at = bucket->end;
	*bucket->end = link;
	bucket->end = &link->next;
}

static void resize(struct hashtable *x, size_t n_buckets)
{
	struct hashtable fresh = { .n_buckets = n_buckets, .n = x->n };

	fresh.buckets = new_buckets(n_buckets);
	if (!fresh.buckets)
		return;
	for (size_t i = 0; i < x->n_buckets; i++) {
		for (struct hashtable_link *link = x->buckets[i].first, *next; link; link = next) {
			next = link->next;
			link_in(bucket_of(&fresh, link->hash), link);
		}
	}
	free(x->buckets);
	*x = fresh;
}

void hashtable_insert(struct hashtable *x, struct hashtable_link *link, uint64_t hash)
{
	if (x->n >= x->n_buckets)
		resize(x, x->n_buckets * 2);
	link->hash = hash;
	link_in(bucket_of(x, hash), link);
	x->n++;
}

void hashtable_drop(struct hashtable *x, struct hashtable_link *link)
{
	if (!link->at)
		return;
	*link->at = link->next;
	if (link->next)
		link->next->at = link->at;
	else
		bucket_of(x, link->hash)->end = link->at;
	*link = (struct hashtable_link){ 0 };
	x->n--;
	if (x->n < x->n_buckets / 8 && x->n_buckets > BUCKETS_MIN)
		resize(x, x->n_buckets / 4 > BUCKETS_MIN ? x->n_buckets / 4 : BUCKETS_MIN);
}

static struct hashtable_link *with_hash(struct hashtable_link *link, uint64_t hash)
{
	while (link && link->hash != hash)
		link = link->next;
	return link;
}

struct hashtable_link *hashtable_first(const struct hashtable *x, uint64_t hash)
{
	return with_hash(bucket_of(x, hash)->first, hash);
}

struct hashtable_link *hashtable_next(const struct hashtable_link *link)
{
	return with_hash(link->next, link->hash);
}

/* The same for all threads of a process, also for those that ask for it first at once. */
static uint64_t seed(void)
{
	static _Atomic uint64_t value;
	uint64_t fresh, there = value;

	if (there)
		return there;
	if (getrandom(&fresh, sizeof(fresh), GRND_NONBLOCK) != sizeof(fresh) || !fresh)
		fresh = 0x9e3779b97f4a7c15u;
	return atomic_compare_exchange_strong(&value, &there, fresh) ? fresh : there;
}

/* The finaliser of MurmurHash3 (Appleby): every input bit reaches every output bit. */
uint64_t hashtable_hash_u64(uint64_t key)
{
	uint64_t h = key ^ seed();

	h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
	h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
	return h ^ (h >> 33);
}

uint64_t hashtable_hash(const void *key, size_t len)
{
	const unsigned char *p = key;
	uint64_t h = len, word;

	for (; len >= sizeof(word); len -= sizeof(word), p += sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		h = hashtable_hash_u64(h ^ word);
	}
	word = 0;
	memcpy(&word, p, len);
	return hashtable_hash_u64(h ^ word);
}
