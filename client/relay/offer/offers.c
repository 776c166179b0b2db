/* SPDX-License-Identifier: MIT
 *
 * The thread waits for the daemon's events and then lists all buffers again: an event only says
 * that something has changed, so none can be misread, and a lost one is made up by the next. It has
 * a connection of its own, and holds no lock while it waits.
 */
#include "client/relay/offer/offers.h"

#include "client/gpushm_events.h"
#include "client/gpushm_private.h"
#include "client/relay/locks.h"
#include "proto/base/clock.h"
#include "proto/base/grow.h"
#include "proto/base/own.h"
#include "proto/base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVENTS "published,renamed,replaced,unlinked,freed,lost,started,continued"
#define EVENTS_MS 10000u /* a wait; then all is listed again */
#define RETRY_MS 500u	 /* between two tries to reach the daemon */
#define FIRST_TRY_NS 5000000000u
#define IDLE_NS 10000000000u
#define RETIRED_IDLE_NS 3000000000u

struct offers {
	const char *socket; /* of the daemon; borrowed */
	struct daemon_link *link;

	pthread_mutex_t lock;	/* of all that follows */
	pthread_cond_t changed; /* on CLOCK_MONOTONIC */
	struct offer **items;	/* owned: a reference each; in the order of their names */
	size_t n;
	struct offer **retired; /* owned: had a name, and are still open */
	size_t n_retired;
	bool tried, known; /* to get the daemon's list; and this daemon's was got */
	/* Lists that the daemon was asked for, and the last of them that has come: one that was
	 * asked for before it is dropped. */
	uint64_t asked, last;
};

/* ---- the table ---- */

static int by_name(const void *x, const void *y)
{
	struct offer *const *a = x, *const *b = y;

	return strcmp(offer_name(*a), offer_name(*b));
}

static int compare_name(const void *name, const void *item)
{
	return strcmp(name, offer_name(*(struct offer *const *)item));
}

static struct offer **find(struct offer **items, size_t n, const char *name)
{
	return n > 0 ? bsearch(name, items, n, sizeof(*items), compare_name) : NULL;
}

static bool has_etag(struct offer *o, const char *etag)
{
	struct offer_facts facts;

	offer_facts(o, &facts);
	return facts.etag[0] && strcmp(facts.etag, etag) == 0;
}

struct offer *offers_find(struct offers *o, const char *name, const char *etag)
{
	struct offer **at;

	lock_guard(&o->lock, LOCK_OFFERS);
	for (size_t i = 0; etag && i < o->n_retired; i++)
		if (strcmp(offer_name(o->retired[i]), name) == 0 && has_etag(o->retired[i], etag))
			return offer_ref(o->retired[i]);
	at = find(o->items, o->n, name);
	return at ? offer_ref(*at) : NULL;
}

int offers_list(struct offers *o, struct offer ***ret, size_t *ret_n)
{
	struct offer **list;

	lock_guard(&o->lock, LOCK_OFFERS);
	list = calloc(o->n + 1, sizeof(struct offer *));
	for (size_t i = 0; list && i < o->n; i++)
		list[i] = offer_ref(o->items[i]);
	*ret_n = o->n;
	*ret = list;
	return list ? 0 : -ENOMEM;
}

/* ---- refresh ---- */

static bool is_offered(const struct config *c, const struct gpushm_stat *s)
{
	return s->state == GPUSHM_SEALED && !s->stream && s->published_ns && s->name[0] &&
	       config_offers(c, s->name);
}

/* Under the lock. An offer whose buffer has lost its name, but may still be read. */
static void retire(struct offers *o, struct offer *old)
{
	struct offer **at =
		offer_is_open(old) ? grow_append(&o->retired, &o->n_retired, sizeof(old)) : NULL;

	if (at)
		*at = old;
	else
		offer_release(old);
}

/* Under the lock. What is pulled stays; what is the same buffer stays, too. */
static void merge(struct offers *o, struct offer **fresh, size_t n)
{
	for (size_t i = 0; i < o->n; i++) {
		struct offer *old = o->items[i], **at = find(fresh, n, offer_name(old));
		struct offer_facts was, is;

		offer_facts(old, &was);
		if (at)
			offer_facts(*at, &is);
		if (at && (!was.complete || was.id == is.id)) {
			offer_release(*at);
			*at = old;
		} else if (!was.complete) {
			fresh[n++] = old; /* there is space for all of them */
			qsort(fresh, n, sizeof(struct offer *), by_name);
		} else {
			retire(o, old);
		}
	}
	free(o->items);
	o->items = fresh;
	o->n = n;
	pthread_cond_broadcast(&o->changed);
}

/* Under the lock. */
static int set_list(struct offers *o, const struct config *config, struct gpushm_stat *const *stats,
		    size_t n)
{
	struct offer **fresh = calloc(n + o->n + 1, sizeof(struct offer *));
	size_t used = 0;
	bool whole = fresh;

	for (size_t i = 0; whole && i < n; i++) {
		if (!is_offered(config, stats[i]))
			continue;
		fresh[used] = offer_new(o->link, stats[i]);
		whole = fresh[used];
		used += whole;
	}
	if (whole) {
		qsort(fresh, used, sizeof(struct offer *), by_name);
		merge(o, fresh, used);
		return 0;
	}
	while (used > 0)
		offer_release(fresh[--used]);
	free(fresh);
	return gpushm_private_fail(ENOMEM, "out of memory");
}

static int refresh(struct offers *o, struct gpushm *c)
{
	struct config *config;
	_cleanup_(free_result) struct gpushm_stat **stats = NULL;
	size_t n = 0;
	uint64_t list;
	int r;

	lock_take(&o->lock, LOCK_OFFERS);
	list = ++o->asked;
	lock_drop(&o->lock);
	lock_assert_none_from(LOCKS_RELAY);
	r = gpushm_list(c, NULL, 0, &stats, &n);
	config = config_current();
	lock_take(&o->lock, LOCK_OFFERS);
	o->known |= r == 0;
	if (r == 0 && list > o->last)
		r = set_list(o, config, stats, n);
	if (r == 0 && list > o->last)
		o->last = list;
	lock_drop(&o->lock);
	config_release(config);
	return r;
}

/* ---- the thread ---- */

/* Waits for something that can change the list; the first time it only finds where events begin. 0,
 * or a negative errno. */
static int await_change(struct gpushm *c, uint64_t *last)
{
	struct gpushm_events_options options = { .struct_size = sizeof(options),
						 .after = *last,
						 .types = EVENTS };
	_cleanup_(free_result) struct gpushm_events *events = NULL;
	int r;

	options.timeout_ms = *last == GPUSHM_EVENTS_NEW ? 0 : EVENTS_MS;
	r = gpushm_events(c, &options, &events);
	if (r == 0)
		*last = events->last;
	return r;
}

static void note_try(struct offers *o, bool is_there)
{
	lock_guard(&o->lock, LOCK_OFFERS);
	o->tried = true;
	o->known &= is_there;
	pthread_cond_broadcast(&o->changed);
}

/* Follows one daemon until it has gone. Returns why. */
static int follow(struct offers *o, bool *was_up)
{
	struct gpushm *c = NULL;
	uint64_t last = GPUSHM_EVENTS_NEW;
	int r = gpushm_connect(o->socket, &c);

	if (r == 0)
		r = await_change(c, &last);
	while (r == 0) {
		r = refresh(o, c);
		note_try(o, true);
		if (r == 0 && !*was_up)
			fprintf(stderr, "gpushm-relay: the daemon replies\n");
		*was_up |= r == 0;
		if (r == 0)
			r = await_change(c, &last);
	}
	if (*was_up)
		fprintf(stderr, "gpushm-relay: the daemon does not reply: %s\n", gpushm_error());
	note_try(o, false);
	gpushm_disconnect(c);
	return r;
}

static void *run(void *arg)
{
	struct offers *o = arg;
	bool was_up = true;

	for (;;) {
		follow(o, &was_up);
		was_up = false;
		usleep(RETRY_MS * 1000);
	}
	return NULL;
}

static void await_first_try(struct offers *o)
{
	uint64_t until = clock_monotonic_ns() + FIRST_TRY_NS;
	bool in_time = true;

	lock_guard(&o->lock, LOCK_OFFERS);
	while (!o->tried && in_time)
		in_time = thread_cond_wait(&o->changed, &o->lock, until);
}

int offers_start(const struct config *config, struct offers **ret)
{
	_cleanup_(free_ptr) struct offers *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	o->socket = config->socket;
	r = daemon_link_start(o->socket, &o->link);
	if (r < 0)
		return r;
	pthread_mutex_init(&o->lock, NULL);
	thread_cond_init(&o->changed);
	r = thread_start_detached(run, o);
	if (r < 0)
		return r;
	await_first_try(o);
	*ret = take_ptr(o);
	return 0;
}

bool offers_known(struct offers *o)
{
	lock_guard(&o->lock, LOCK_OFFERS);
	return o->known;
}

struct listing {
	struct daemon_question question;
	struct offers *of;
	void (*done)(void);
};

static int ask_list(struct gpushm *c, struct daemon_question *q)
{
	return refresh(container_of(q, struct listing, question)->of, c);
}

static void end_list(struct daemon_question *q, int r)
{
	struct listing *l = container_of(q, struct listing, question);

	if (l->done)
		l->done();
	free(l);
}

void offers_refresh(struct offers *o, void (*done)(void))
{
	struct listing *l = calloc(1, sizeof(*l));

	/* Without memory the next list is soon enough. */
	if (!l)
		return;
	*l = (struct listing){ { .ask = ask_list, .done = end_list }, o, done };
	daemon_link_put(o->link, &l->question);
}

/* ---- waiting ---- */

struct offer *offers_wait(struct offers *o, const char *name, uint64_t until_ns,
			  bool (*wanted)(void *user, struct offer *is), void *user)
{
	for (;;) {
		struct offer *is = offers_find(o, name, NULL);
		uint64_t now = clock_monotonic_ns(), next = now + 1000000000u;

		if (now >= until_ns || wanted(user, is))
			return is;
		next = next < until_ns ? next : until_ns;
		lock_take(&o->lock, LOCK_OFFERS);
		/* It may have changed since it was looked up. */
		if ((find(o->items, o->n, name) ? *find(o->items, o->n, name) : NULL) == is)
			thread_cond_wait(&o->changed, &o->lock, next);
		lock_drop(&o->lock);
		offer_release(is);
	}
}

/* ---- tick ---- */

static void drop_retired(struct offers *o)
{
	size_t kept = 0;

	lock_guard(&o->lock, LOCK_OFFERS);
	for (size_t i = 0; i < o->n_retired; i++) {
		offer_close_idle(o->retired[i], RETIRED_IDLE_NS);
		if (offer_is_open(o->retired[i]))
			o->retired[kept++] = o->retired[i];
		else
			offer_release(o->retired[i]);
	}
	o->n_retired = kept;
}

void offers_tick(struct offers *o)
{
	struct offer **list;
	size_t n;

	if (offers_list(o, &list, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		offer_close_idle(list[i], IDLE_NS);
		offer_release(list[i]);
	}
	free(list);
	drop_retired(o);
}

/* ---- pulls ---- */

/* Under the lock. */
static int put(struct offers *o, struct offer *offer)
{
	struct offer **at = find(o->items, o->n, offer_name(offer)), **grown;

	if (at) {
		retire(o, *at);
		*at = offer_ref(offer);
		return 0;
	}
	grown = reallocarray(o->items, o->n + 1, sizeof(struct offer *));
	if (!grown)
		return -ENOMEM;
	o->items = grown;
	grown[o->n++] = offer_ref(offer);
	qsort(grown, o->n, sizeof(struct offer *), by_name);
	return 0;
}

struct offer *offers_pull_begin(struct offers *o, const char *name, const struct manifest *m,
				const char *header, struct gpushm_buffer *b)
{
	struct offer *offer = offer_new_pulled(o->link, name, m, header, b);
	int r;

	if (!offer)
		return NULL;
	lock_take(&o->lock, LOCK_OFFERS);
	r = put(o, offer);
	pthread_cond_broadcast(&o->changed);
	lock_drop(&o->lock);
	if (r == 0)
		return offer;
	offer_pull_end(offer, -ENOMEM);
	return offer_release(offer);
}

void offers_pull_end(struct offers *o, struct offer *offer, int result)
{
	offer_pull_end(offer, result);
	offer_release(offer);
	/* A pull that has failed leaves the name to what had it before. */
	offers_refresh(o, NULL);
}
