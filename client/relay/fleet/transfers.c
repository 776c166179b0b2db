/* SPDX-License-Identifier: MIT
 *
 * Those that are let in are no more than connections, and mostly a few. Those that are turned away
 * may be thousands.
 */
#include "client/relay/fleet/transfers.h"

#include "client/relay/locks.h"
#include "proto/base/clock.h"
#include "proto/base/hashtable.h"
#include "proto/base/list.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between two requests a machine copies to its GPU, and writes digests. */
#define LINGER_NS 2000000000ull
#define FORGIVEN_NS 5000000000ull /* without another one a refusal is forgotten */
#define REFUSALS_MAX 4096u

/* Zero behind its texts, so that it can be hashed. */
struct key {
	char address[64], etag[64];
};

/* One that was let in, or turned away. */
struct transfer {
	struct list link; /* transfers::list, or transfers::refused */
	struct hashtable_link by_key;
	struct key key;
	unsigned requests;
	/* CLOCK_MONOTONIC. refused_ns: when it was turned away for the first time; 0: it was let
	 * in. last_ns: for the last time, or when its last request ended. */
	uint64_t refused_ns, last_ns;
};

struct transfers {
	pthread_mutex_t lock;
	struct list list;    /* that were let in */
	struct list refused; /* the last one at the end */
	struct hashtable by_key;
	size_t n; /* of the list */
};

struct transfers *transfers_new(void)
{
	struct transfers *t = calloc(1, sizeof(*t));

	if (!t || hashtable_init(&t->by_key) < 0)
		return free(t), NULL;
	pthread_mutex_init(&t->lock, NULL);
	list_init(&t->list);
	list_init(&t->refused);
	return t;
}

static void drop(struct transfers *t, struct transfer *it)
{
	list_drop(&it->link);
	hashtable_drop(&t->by_key, &it->by_key);
	t->n -= !it->refused_ns;
	free(it);
}

struct transfers *transfers_free(struct transfers *t)
{
	struct transfer *it;

	if (!t)
		return NULL;
	list_move(&t->refused, &t->list);
	list_foreach (it, &t->list, link)
		drop(t, it);
	hashtable_done(&t->by_key);
	pthread_mutex_destroy(&t->lock);
	free(t);
	return NULL;
}

static struct key key_of(const char *address, const char *etag)
{
	struct key key = { "", "" };

	snprintf(key.address, sizeof(key.address), "%s", address);
	snprintf(key.etag, sizeof(key.etag), "%s", etag);
	return key;
}

static void drop_ended(struct transfers *t)
{
	uint64_t now = clock_monotonic_ns();
	struct transfer *it;

	list_foreach (it, &t->list, link)
		if (it->requests == 0 && now - it->last_ns > LINGER_NS)
			drop(t, it);
}

static void forgive(struct transfers *t, uint64_t now)
{
	struct transfer *it;

	list_foreach (it, &t->refused, link) {
		if (now - it->last_ns < FORGIVEN_NS && t->by_key.n - t->n < REFUSALS_MAX)
			return;
		drop(t, it);
	}
}

static struct transfer *find(struct transfers *t, const struct key *key)
{
	struct transfer *it;

	hashtable_foreach (it, &t->by_key, hashtable_hash(key, sizeof(*key)), by_key)
		if (memcmp(&it->key, key, sizeof(*key)) == 0)
			return it;
	return NULL;
}

/* Not let in yet. */
static struct transfer *add(struct transfers *t, const struct key *key, uint64_t now)
{
	struct transfer *it = calloc(1, sizeof(*it));

	if (!it)
		return NULL;
	it->key = *key;
	it->refused_ns = now;
	list_insert(&t->refused, &it->link);
	hashtable_insert(&t->by_key, &it->by_key, hashtable_hash(key, sizeof(*key)));
	return it;
}

static void let_in(struct transfers *t, struct transfer *it)
{
	it->refused_ns = 0;
	list_drop(&it->link);
	list_insert(&t->list, &it->link);
	t->n++;
}

unsigned transfers_begin(struct transfers *t, const char *address, const char *etag, size_t max)
{
	const struct key key = key_of(address, etag);
	uint64_t now = clock_monotonic_ns();
	struct transfer *it;

	lock_guard(&t->lock, LOCK_TRANSFERS);
	forgive(t, now);
	it = find(t, &key);
	if (!it)
		it = add(t, &key, now);
	if (!it)
		return 0;
	if (it->refused_ns)
		drop_ended(t);
	if (it->refused_ns && (max == 0 || t->n < max))
		let_in(t, it);
	if (!it->refused_ns)
		return ++it->requests;
	it->last_ns = now;
	list_drop(&it->link);
	list_insert(&t->refused, &it->link);
	return 0;
}

uint64_t transfers_refused_ns(struct transfers *t, const char *address, const char *etag)
{
	const struct key key = key_of(address, etag);
	uint64_t now = clock_monotonic_ns();
	const struct transfer *it;

	lock_guard(&t->lock, LOCK_TRANSFERS);
	forgive(t, now);
	it = find(t, &key);
	return it && it->refused_ns ? now - it->refused_ns : 0;
}

void transfers_end(struct transfers *t, const char *address, const char *etag)
{
	const struct key key = key_of(address, etag);
	struct transfer *it;

	lock_guard(&t->lock, LOCK_TRANSFERS);
	it = find(t, &key);
	if (it && it->requests > 0 && --it->requests == 0)
		it->last_ns = clock_monotonic_ns();
}
