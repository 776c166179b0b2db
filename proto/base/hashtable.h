/* SPDX-License-Identifier: MIT
 *
 * A hash index of things that carry their own link: a name, an id or a uid finds its object. The
 * index owns its slots and nothing else.
 */
#ifndef GPUSHM_PROTO_BASE_HASHTABLE_H
#define GPUSHM_PROTO_BASE_HASHTABLE_H

#include <stddef.h>
#include <stdint.h>

struct index_link {
	struct index_link *next, **at; /* at: what points to this one */
	uint64_t hash;
};

struct index {
	struct index_link **slots; /* owned; n_slots is a power of two */
	size_t n_slots, n;
};

/* 0 or -ENOMEM. index_done() may be called on a zeroed index and twice. */
int index_init(struct index *x);
void index_done(struct index *x);

/* Never fails: where there is no memory to grow, chains get longer. */
void index_insert(struct index *x, struct index_link *link, uint64_t hash);
void index_drop(struct index *x, struct index_link *link);

/* The first link with that hash, and the next one after it; NULL when there are no more. Different
 * keys may share a hash: the caller compares. */
struct index_link *index_first(const struct index *x, uint64_t hash);
struct index_link *index_next(const struct index_link *link);

/* Seeded once a process from getrandom(), so that names can't be chosen to collide. */
uint64_t index_hash(const void *key, size_t len);
uint64_t index_hash_u64(uint64_t key);

#endif
