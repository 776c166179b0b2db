/* SPDX-License-Identifier: MIT
 *
 * A list of transfers is searched: there are no more than connections, and mostly a few. Those that
 * are turned away may be thousands.
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

struct transfer {
	struct list link; /* transfers::list */
	struct key key;
	unsigned requests;
	uint64_t ended_ns; /* CLOCK_MONOTONIC: its last request, if it has none now */
};

/* One that was turned away. */
struct refusal {
	struct list link; /* transfers::refusals; the last one at the end */
	struct hashtable_link by_key;
	struct key key;
	uint64_t first_ns, last_ns; /* CLOCK_MONOTONIC */
};

struct transfers {
	pthread_mutex_t lock;
	struct list list, refusals;
	struct hashtable by_key; /* of refusals */
	size_t n;
};

struct transfers *transfers_new(void)
{
	struct transfers *t = calloc(1, sizeof(*t));

	if (!t || hashtable_init(&t->by_key) < 0)
		return free(t), NULL;
	pthread_mutex_init(&t->lock, NULL);
	list_init(&t->list);
	list_init(&t->refusals);
	return t;
}

static void drop(struct transfers *t, struct transfer *transfer)
{
	list_drop(&transfer->link);
	free(transfer);
	t->n--;
}

static void drop_refusal(struct transfers *t, struct refusal *refusal)
{
	list_drop(&refusal->link);
	hashtable_drop(&t->by_key, &refusal->by_key);
	free(refusal);
}

struct transfers *transfers_free(struct transfers *t)
{
	struct transfer *transfer;

	if (!t)
		return NULL;
	list_foreach (transfer, &t->list, link)
		drop(t, transfer);
	while (!list_empty(&t->refusals))
		drop_refusal(t, list_first(&t->refusals, struct refusal, link));
	hashtable_done(&t->by_key);
	pthread_mutex_destroy(&t->lock);
	free(t);
	return NULL;
}

static bool is_same(const struct key *a, const struct key *b)
{
	return strcmp(a->address, b->address) == 0 && strcmp(a->etag, b->etag) == 0;
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
	struct transfer *transfer;

	list_foreach (transfer, &t->list, link)
		if (transfer->requests == 0 && now - transfer->ended_ns > LINGER_NS)
			drop(t, transfer);
}

static struct transfer *find(struct transfers *t, const struct key *key)
{
	struct transfer *transfer;

	list_foreach (transfer, &t->list, link)
		if (is_same(&transfer->key, key))
			return transfer;
	return NULL;
}

/* ---- refusals ---- */

static void drop_old_refusals(struct transfers *t, uint64_t now)
{
	while (!list_empty(&t->refusals)) {
		struct refusal *oldest = list_first(&t->refusals, struct refusal, link);

		if (now - oldest->last_ns < FORGIVEN_NS && t->by_key.n < REFUSALS_MAX)
			return;
		drop_refusal(t, oldest);
	}
}

static struct refusal *find_refusal(struct transfers *t, const struct key *key)
{
	struct refusal *refusal;

	hashtable_foreach (refusal, &t->by_key, hashtable_hash(key, sizeof(*key)), by_key)
		if (is_same(&refusal->key, key))
			return refusal;
	return NULL;
}

static void note_refusal(struct transfers *t, const struct key *key)
{
	uint64_t now = clock_monotonic_ns();
	struct refusal *refusal;

	drop_old_refusals(t, now);
	refusal = find_refusal(t, key);
	if (refusal) {
		list_drop(&refusal->link);
	} else {
		refusal = calloc(1, sizeof(*refusal));
		if (!refusal)
			return;
		refusal->key = *key;
		refusal->first_ns = now;
		hashtable_insert(&t->by_key, &refusal->by_key, hashtable_hash(key, sizeof(*key)));
	}
	refusal->last_ns = now;
	list_insert(&t->refusals, &refusal->link);
}

uint64_t transfers_refused_ns(struct transfers *t, const char *address, const char *etag)
{
	const struct key key = key_of(address, etag);
	uint64_t now = clock_monotonic_ns();
	const struct refusal *refusal;

	lock_guard(&t->lock, LOCK_TRANSFERS);
	drop_old_refusals(t, now);
	refusal = find_refusal(t, &key);
	return refusal ? now - refusal->first_ns : 0;
}

/* ---- transfers ---- */

static struct transfer *add(struct transfers *t, const struct key *key, size_t max)
{
	struct transfer *transfer;

	drop_ended(t);
	if (max > 0 && t->n >= max)
		return NULL;
	transfer = calloc(1, sizeof(*transfer));
	if (!transfer)
		return NULL;
	transfer->key = *key;
	list_insert(&t->list, &transfer->link);
	t->n++;
	return transfer;
}

unsigned transfers_begin(struct transfers *t, const char *address, const char *etag, size_t max)
{
	const struct key key = key_of(address, etag);
	struct transfer *transfer;

	lock_guard(&t->lock, LOCK_TRANSFERS);
	transfer = find(t, &key);
	if (!transfer)
		transfer = add(t, &key, max);
	if (transfer)
		return ++transfer->requests;
	note_refusal(t, &key);
	return 0;
}

void transfers_end(struct transfers *t, const char *address, const char *etag)
{
	const struct key key = key_of(address, etag);
	struct transfer *transfer;

	lock_guard(&t->lock, LOCK_TRANSFERS);
	transfer = find(t, &key);
	if (transfer && transfer->requests > 0 && --transfer->requests == 0)
		transfer->ended_ns = clock_monotonic_ns();
}

size_t transfers_count(struct transfers *t)
{
	lock_guard(&t->lock, LOCK_TRANSFERS);
	drop_ended(t);
	return t->n;
}
