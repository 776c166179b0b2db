/* SPDX-License-Identifier: MIT
 *
 * A list is searched: there are no more transfers than connections, and mostly a few.
 */
#include "client/relay/transfers.h"

#include "proto/base/clock.h"
#include "proto/base/list.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between two requests a machine copies to its GPU, and writes digests. */
#define LINGER_NS 2000000000ull

struct key {
	char address[64], etag[64];
};

struct transfer {
	struct list link; /* transfers::list */
	struct key key;
	unsigned requests;
	uint64_t ended_ns; /* CLOCK_MONOTONIC: its last request, if it has none now */
};

struct transfers {
	pthread_mutex_t lock;
	struct list list;
	size_t n;
};

struct transfers *transfers_new(void)
{
	struct transfers *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	pthread_mutex_init(&t->lock, NULL);
	list_init(&t->list);
	return t;
}

static void drop(struct transfers *t, struct transfer *transfer)
{
	list_drop(&transfer->link);
	free(transfer);
	t->n--;
}

struct transfers *transfers_free(struct transfers *t)
{
	struct transfer *transfer;

	if (!t)
		return NULL;
	list_foreach (transfer, &t->list, link)
		drop(t, transfer);
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
	struct transfer *transfer;

	list_foreach (transfer, &t->list, link)
		if (transfer->requests == 0 && now - transfer->ended_ns > LINGER_NS)
			drop(t, transfer);
}

static struct transfer *find(struct transfers *t, const struct key *key)
{
	struct transfer *transfer;

	list_foreach (transfer, &t->list, link)
		if (strcmp(transfer->key.address, key->address) == 0 &&
		    strcmp(transfer->key.etag, key->etag) == 0)
			return transfer;
	return NULL;
}

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

bool transfers_begin(struct transfers *t, const char *address, const char *etag, size_t max)
{
	const struct key key = key_of(address, etag);
	struct transfer *transfer;

	pthread_mutex_lock(&t->lock);
	transfer = find(t, &key);
	if (!transfer)
		transfer = add(t, &key, max);
	if (transfer)
		transfer->requests++;
	pthread_mutex_unlock(&t->lock);
	return transfer != NULL;
}

void transfers_end(struct transfers *t, const char *address, const char *etag)
{
	const struct key key = key_of(address, etag);
	struct transfer *transfer;

	pthread_mutex_lock(&t->lock);
	transfer = find(t, &key);
	if (transfer && transfer->requests > 0 && --transfer->requests == 0)
		transfer->ended_ns = clock_monotonic_ns();
	pthread_mutex_unlock(&t->lock);
}

size_t transfers_count(struct transfers *t)
{
	size_t n;

	pthread_mutex_lock(&t->lock);
	drop_ended(t);
	n = t->n;
	pthread_mutex_unlock(&t->lock);
	return n;
}
