/* SPDX-License-Identifier: MIT
 *
 * The hash index: chains in a table that doubles when it holds more links than slots. It never
 * shrinks: a daemon that once held 100,000 buffers is likely to again, and the slots are 8 bytes
 * each. It knows nothing of what it indexes.
 */
#include "proto/base/hashtable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define HASHTABLE_SLOTS_MIN 64u

int hashtable_init(struct hashtable *x)
{
	struct hashtable_link **slots = calloc(HASHTABLE_SLOTS_MIN, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	*x = (struct hashtable){ .slots = slots, .n_slots = HASHTABLE_SLOTS_MIN };
	return 0;
}

void hashtable_done(struct hashtable *x)
{
	free(x->slots);
	*x = (struct hashtable){ 0 };
}

static struct hashtable_link **slot_of(const struct hashtable *x, uint64_t hash)
{
	return &x->slots[hash & (x->n_slots - 1)];
}

static void link_in(struct hashtable_link **slot, struct hashtable_link *link)
{
	link->next = *slot;
	link->at = slot;
	if (link->next)
		link->next->at = &link->next;
	*slot = link;
}

static void grow(struct hashtable *x)
{
	struct hashtable wide = { .n_slots = x->n_slots * 2, .n = x->n };

	wide.slots = calloc(wide.n_slots, sizeof(*wide.slots));
	if (!wide.slots)
		return;
	for (size_t i = 0; i < x->n_slots; i++) {
		for (struct hashtable_link *link = x->slots[i], *next; link; link = next) {
			next = link->next;
			link_in(slot_of(&wide, link->hash), link);
		}
	}
	free(x->slots);
	*x = wide;
}

void hashtable_insert(struct hashtable *x, struct hashtable_link *link, uint64_t hash)
{
	if (x->n >= x->n_slots)
		grow(x);
	link->hash = hash;
	link_in(slot_of(x, hash), link);
	x->n++;
}

void hashtable_drop(struct hashtable *x, struct hashtable_link *link)
{
	if (!link->at)
		return;
	*link->at = link->next;
	if (link->next)
		link->next->at = link->at;
	*link = (struct hashtable_link){ 0 };
	x->n--;
}

static struct hashtable_link *with_hash(struct hashtable_link *link, uint64_t hash)
{
	while (link && link->hash != hash)
		link = link->next;
	return link;
}

struct hashtable_link *hashtable_first(const struct hashtable *x, uint64_t hash)
{
	return with_hash(*slot_of(x, hash), hash);
}

struct hashtable_link *hashtable_next(const struct hashtable_link *link)
{
	return with_hash(link->next, link->hash);
}

static uint64_t seed(void)
{
	static uint64_t value;

	if (!value && getrandom(&value, sizeof(value), GRND_NONBLOCK) != sizeof(value))
		value = 0x9e3779b97f4a7c15u;
	return value;
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
