/* SPDX-License-Identifier: MIT
 *
 * One list for all files, the machine that was heard last at its end: what is forgotten, for its
 * age or for want of space, is at its beginning. Tables find one by its URL, and those of a file.
 */
#include "client/relay/fleet/mirrors.h"

#include "client/relay/locks.h"
#include "proto/base/clock.h"
#include "proto/base/hashtable.h"
#include "proto/base/list.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIRRORS_MAX 4096u
#define OF_ONE_ADDRESS_MAX (MIRRORS_MAX / 16)
#define REMEMBERED_NS (120 * 1000000000ull)
#define BY_AGE (MIRRORS_NAMED / 2)
#define ETAG_MAX 64u

struct mirror {
	struct list link; /* mirrors::list */
	struct hashtable_link by_url, by_etag;
	uint64_t heard_ns; /* CLOCK_MONOTONIC */
	char etag[ETAG_MAX];
	uint64_t network; /* see network_of() */
	bool near;	  /* to the one that asks now */
	struct announcement says;
};

struct mirrors {
	pthread_mutex_t lock;
	struct list list;
	struct hashtable by_url, by_etag;
	unsigned chance; /* of rand_r() */
};

struct mirrors *mirrors_new(void)
{
	struct mirrors *m = calloc(1, sizeof(*m));

	if (!m || hashtable_init(&m->by_url) < 0 || hashtable_init(&m->by_etag) < 0) {
		if (m)
			hashtable_done(&m->by_url);
		return free(m), NULL;
	}
	pthread_mutex_init(&m->lock, NULL);
	list_init(&m->list);
	m->chance = (unsigned)clock_monotonic_ns();
	return m;
}

static uint64_t hash_of(const char *text)
{
	return hashtable_hash(text, strlen(text));
}

static void insert(struct mirrors *m, struct mirror *mirror)
{
	list_insert(&m->list, &mirror->link);
	hashtable_insert(&m->by_url, &mirror->by_url, hash_of(mirror->says.url));
	hashtable_insert(&m->by_etag, &mirror->by_etag, hash_of(mirror->etag));
}

static void drop(struct mirrors *m, struct mirror *mirror)
{
	list_drop(&mirror->link);
	hashtable_drop(&m->by_url, &mirror->by_url);
	hashtable_drop(&m->by_etag, &mirror->by_etag);
}

static void forget(struct mirrors *m, struct mirror *mirror)
{
	drop(m, mirror);
	free(mirror);
}

struct mirrors *mirrors_free(struct mirrors *m)
{
	struct mirror *mirror;

	if (!m)
		return NULL;
	list_foreach (mirror, &m->list, link)
		forget(m, mirror);
	hashtable_done(&m->by_url);
	hashtable_done(&m->by_etag);
	pthread_mutex_destroy(&m->lock);
	free(m);
	return NULL;
}

static void forget_old(struct mirrors *m, uint64_t now)
{
	struct mirror *mirror;

	list_foreach (mirror, &m->list, link) {
		if (m->by_url.n < MIRRORS_MAX && now - mirror->heard_ns < REMEMBERED_NS)
			return;
		forget(m, mirror);
	}
}

/* So that nobody fills the list alone. */
static void forget_one_of(struct mirrors *m, const char *address)
{
	struct mirror *mirror, *oldest = NULL;
	size_t n = 0;

	list_foreach (mirror, &m->list, link) {
		if (strcmp(mirror->says.address, address) != 0)
			continue;
		n++;
		oldest = oldest ? oldest : mirror;
	}
	if (n >= OF_ONE_ADDRESS_MAX)
		forget(m, oldest);
}

/* A URL means one file at a time, so another ETag replaces the one before. */
static struct mirror *find(struct mirrors *m, const char *url)
{
	struct mirror *mirror;

	hashtable_foreach (mirror, &m->by_url, hash_of(url), by_url)
		if (strcmp(mirror->says.url, url) == 0)
			return mirror;
	return NULL;
}

/* A /24 of IPv4, or a /64 of IPv6: what one switch connects, mostly. 0: it is not known. */
static uint64_t network_of(const char *address)
{
	uint8_t bytes[sizeof(struct in6_addr)] = { 0 };
	uint64_t ret;

	if (inet_pton(AF_INET, address, bytes) == 1)
		bytes[3] = 0;
	else
		inet_pton(AF_INET6, address, bytes);
	memcpy(&ret, bytes, sizeof(ret));
	return ret;
}

void mirrors_note(struct mirrors *m, const char *etag, const struct announcement *a)
{
	uint64_t now = clock_monotonic_ns();
	struct mirror *mirror;

	if (strlen(etag) >= ETAG_MAX)
		return;
	lock_guard(&m->lock, LOCK_MIRRORS);
	mirror = find(m, a->url);
	if (mirror) {
		drop(m, mirror);
	} else {
		forget_one_of(m, a->address);
		forget_old(m, now);
		mirror = calloc(1, sizeof(*mirror));
	}
	if (mirror) {
		mirror->heard_ns = now;
		mirror->says = *a;
		mirror->network = network_of(a->address);
		memcpy(mirror->etag, etag, strlen(etag) + 1);
		insert(m, mirror);
	}
}

static bool suits(const struct mirror *mirror, const char *etag, const struct announcement *asks,
		  enum mirrors_age age)
{
	if (strcmp(mirror->etag, etag) != 0)
		return false;
	return !asks || (strcmp(mirror->says.url, asks->url) != 0 &&
			 (age == MIRRORS_ANY || announcement_before(&mirror->says, asks)));
}

/* Those of the same network come first, and of them those that began last. */
static int by_nearness(const void *x, const void *y)
{
	const struct mirror *a = *(struct mirror *const *)x, *b = *(struct mirror *const *)y;

	if (a->near != b->near)
		return a->near ? -1 : 1;
	if (a->says.since != b->says.since)
		return a->says.since > b->says.since ? -1 : 1;
	return strcmp(b->says.url, a->says.url);
}

/* Brings those that are named to the front, and returns how many they are. Behind the first ones
 * each of the others has the same chance. */
static size_t choose(struct mirrors *m, struct mirror **all, size_t n)
{
	size_t near = 0, sorted, from, named;

	qsort(all, n, sizeof(struct mirror *), by_nearness);
	while (near < n && all[near]->near)
		near++;
	sorted = near > 0 ? near : n;
	from = near < BY_AGE ? n : near;
	named = from < MIRRORS_NAMED ? from : MIRRORS_NAMED;
	for (size_t i = sorted < BY_AGE ? sorted : BY_AGE; i < named; i++) {
		size_t k = i + (size_t)rand_r(&m->chance) % (from - i);
		struct mirror *chosen = all[k];

		all[k] = all[i];
		all[i] = chosen;
	}
	return named;
}

size_t mirrors_choose(struct mirrors *m, const char *etag, const struct announcement *asks,
		      enum mirrors_age age, struct announcement ret[MIRRORS_NAMED])
{
	const uint64_t network = network_of(asks ? asks->address : "");
	struct mirror *mirror, *found[MIRRORS_MAX];
	size_t n = 0;

	lock_guard(&m->lock, LOCK_MIRRORS);
	forget_old(m, clock_monotonic_ns());
	hashtable_foreach (mirror, &m->by_etag, hash_of(etag), by_etag)
		if (suits(mirror, etag, asks, age)) {
			mirror->near = network && mirror->network == network;
			found[n++] = mirror;
		}
	n = choose(m, found, n);
	for (size_t i = 0; i < n; i++)
		ret[i] = found[i]->says;
	return n;
}

bool mirrors_has_older(struct mirrors *m, const char *etag, const struct announcement *asks)
{
	struct mirror *mirror;

	lock_guard(&m->lock, LOCK_MIRRORS);
	forget_old(m, clock_monotonic_ns());
	hashtable_foreach (mirror, &m->by_etag, hash_of(etag), by_etag)
		if (suits(mirror, etag, asks, MIRRORS_OLDER))
			return true;
	return false;
}

char *mirrors_link(struct mirrors *m, const char *etag, const struct announcement *asks)
{
	struct announcement chosen[MIRRORS_NAMED];
	size_t n = mirrors_choose(m, etag, asks, MIRRORS_OLDER, chosen), size;
	char *text = NULL;
	FILE *to;

	if (n == 0)
		n = mirrors_choose(m, etag, asks, MIRRORS_ANY, chosen);
	if (n == 0)
		return NULL;
	to = open_memstream(&text, &size);
	if (!to)
		return NULL;
	for (size_t i = 0; i < n; i++)
		fprintf(to, "%s<%s>; rel=duplicate", i > 0 ? ", " : "", chosen[i].url);
	fclose(to);
	return text;
}
