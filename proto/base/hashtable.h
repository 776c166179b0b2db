/* SPDX-License-Identifier: MIT
 *
 * A hash table of structs that contain their link. It finds a struct by a name, an id or a uid, and
 * owns only its buckets.
 */
#pragma once

#include "proto/base/own.h"

#include <stddef.h>
#include <stdint.h>

struct hashtable_link {
	struct hashtable_link *next, **at; /* at: the pointer to this link */
	uint64_t hash;
};

struct hashtable {
	struct hashtable_bucket *buckets; /* owned; n_buckets is a power of two */
	size_t n_buckets, n;
};

/* 0 or -ENOMEM. hashtable_done() may be called on a zeroed table and twice. libjansson has a
 * function of the same name, so a program that is linked with both archives needs another symbol.
 */
int hashtable_init(struct hashtable *x) __asm__("gpushm_hashtable_init");
void hashtable_done(struct hashtable *x);

/* Never fails: without memory to grow, chains get longer; without memory to shrink, it stays as it
 * is. */
void hashtable_insert(struct hashtable *x, struct hashtable_link *link, uint64_t hash);
void hashtable_drop(struct hashtable *x, struct hashtable_link *link);

/* The first link with that hash, and the next one after it, in the order of insertion; NULL when
 * there are no more. Different keys may share a hash: the caller compares. */
struct hashtable_link *hashtable_first(const struct hashtable *x, uint64_t hash);
struct hashtable_link *hashtable_next(const struct hashtable_link *link);

/* Visits every struct with that hash; member is its link. The body may drop it, but not go on then.
 */
#define hashtable_foreach(it, table, hash, member)                                    \
	for (struct hashtable_link *it##_at = hashtable_first(table, hash);           \
	     it##_at && ((it) = container_of(it##_at, __typeof__(*(it)), member), 1); \
	     it##_at = hashtable_next(it##_at))

/* Seeded once for each process by getrandom(), so that names can't be chosen to collide. */
uint64_t hashtable_hash(const void *key, size_t len);
uint64_t hashtable_hash_u64(uint64_t key);
