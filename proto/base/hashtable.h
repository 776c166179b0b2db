/* SPDX-License-Identifier: MIT
 *
 * A hash index of things that carry their own link: a name, an id or a uid finds its object. The
 * index owns its slots and nothing else.
 */
#ifndef GPUSHM_PROTO_BASE_HASHTABLE_H
#define GPUSHM_PROTO_BASE_HASHTABLE_H

#include <stddef.h>
#include <stdint.h>

struct hashtable_link {
	struct hashtable_link *next, **at; /* at: what points to this one */
	uint64_t hash;
};

struct hashtable {
	struct hashtable_link **slots; /* owned; n_slots is a power of two */
	size_t n_slots, n;
};

/* 0 or -ENOMEM. hashtable_done() may be called on a zeroed index and twice. */
int hashtable_init(struct hashtable *x);
void hashtable_done(struct hashtable *x);

/* Never fails: where there is no memory to grow, chains get longer. */
void hashtable_insert(struct hashtable *x, struct hashtable_link *link, uint64_t hash);
void hashtable_drop(struct hashtable *x, struct hashtable_link *link);

/* The first link with that hash, and the next one after it; NULL when there are no more. Different
 * keys may share a hash: the caller compares. */
struct hashtable_link *hashtable_first(const struct hashtable *x, uint64_t hash);
struct hashtable_link *hashtable_next(const struct hashtable_link *link);

/* Seeded once a process from getrandom(), so that names can't be chosen to collide. */
uint64_t hashtable_hash(const void *key, size_t len);
uint64_t hashtable_hash_u64(uint64_t key);

#endif
