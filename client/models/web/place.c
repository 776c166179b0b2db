/* SPDX-License-Identifier: MIT
 *
 * Readers spread over the places: the place with the fewest gets the next one, so that a fast one,
 * which ends its transfers earlier, gets more of them.
 */
#include "client/models/web/place.h"

#include "client/models/locks.h"
#include "proto/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void places_init(struct places *p)
{
	*p = (struct places){ 0 };
	pthread_mutex_init(&p->lock, NULL);
}

void places_clear(struct places *p)
{
	for (size_t i = 0; i < p->n; i++) {
		url_clear(&p->v[i]->url);
		url_clear(&p->v[i]->target);
		free(p->v[i]);
	}
	p->n = 0;
	pthread_mutex_destroy(&p->lock);
}

static bool is_welcome(const struct places *p, const struct url *u)
{
	if (p->n == PLACES_MAX || (p->n > 0 && p->v[0]->url.tls && !u->tls))
		return false;
	for (size_t i = 0; i < p->n; i++)
		if (strcmp(p->v[i]->url.text, u->text) == 0)
			return false;
	return true;
}

int places_add(struct places *p, struct url *u)
{
	struct place *place = calloc(1, sizeof(*place));
	bool welcome = false;

	lock_take(&p->lock, LOCK_PLACES);
	if (place && is_welcome(p, u)) {
		welcome = true;
		*place = (struct place){ .url = *u, .original = p->n == 0 };
		p->v[p->n++] = place;
		*u = (struct url){ 0 };
	}
	lock_drop(&p->lock);
	url_clear(u);
	if (!welcome)
		free(place);
	return place ? 0 : -ENOMEM;
}

static bool is_better(const struct places *p, const struct place *a, const struct place *than,
		      const struct place *avoid)
{
	if (!than || than == avoid)
		return true;
	if (a == avoid)
		return false;
	if (p->together && a->active == than->active)
		return a == p->latest;
	return p->together ? a->active > than->active : a->active < than->active;
}

static struct place *choose(struct places *p, const struct place *avoid, uint64_t *ret_wait_ms)
{
	uint64_t now = clock_monotonic_ms();
	struct place *best = NULL;

	*ret_wait_ms = UINT64_MAX;
	p->turn++;
	for (size_t i = 0; i < p->n; i++) {
		struct place *place = p->v[(i + p->turn) % p->n];

		if (place->bad)
			continue;
		if (place->busy_until_ms > now) {
			if (place->busy_until_ms - now < *ret_wait_ms)
				*ret_wait_ms = place->busy_until_ms - now;
			continue;
		}
		if (is_better(p, place, best, avoid))
			best = place;
	}
	return best;
}

struct place *places_take(struct places *p, const struct place *avoid, struct url *ret_url,
			  bool *ret_fresh, uint64_t *ret_wait_ms)
{
	struct place *place;

	lock_guard(&p->lock, LOCK_PLACES);
	place = choose(p, avoid, ret_wait_ms);
	if (!place)
		return NULL;
	*ret_wait_ms = 0;
	*ret_fresh = !place->target.text;
	if (url_copy(*ret_fresh ? &place->url : &place->target, ret_url) < 0)
		return NULL;
	place->active++;
	return place;
}

void places_give(struct places *p, struct place *place)
{
	lock_guard(&p->lock, LOCK_PLACES);
	place->active--;
	if (!place->bad && place->busy_until_ms <= clock_monotonic_ms())
		p->latest = place;
}

void places_mark_bad(struct places *p, struct place *place, int error)
{
	lock_guard(&p->lock, LOCK_PLACES);
	place->bad = true;
	p->error = error;
	gpushm_private_keep(&p->why);
}

int places_error(struct places *p)
{
	lock_guard(&p->lock, LOCK_PLACES);
	gpushm_private_put_back(&p->why);
	return p->error;
}

void places_mark_busy(struct places *p, struct place *place, uint64_t ms)
{
	uint64_t until = clock_monotonic_ms() + ms;

	lock_guard(&p->lock, LOCK_PLACES);
	if (until > place->busy_until_ms)
		place->busy_until_ms = until;
}

void places_set_target(struct places *p, struct place *place, const struct url *target)
{
	struct url copy = { 0 };

	if (target && url_copy(target, &copy) < 0)
		url_clear(&copy);
	lock_guard(&p->lock, LOCK_PLACES);
	url_clear(&place->target);
	place->target = copy;
}

bool places_has_other(struct places *p, const struct place *than)
{
	uint64_t now = clock_monotonic_ms();

	lock_guard(&p->lock, LOCK_PLACES);
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i] != than && !p->v[i]->bad && p->v[i]->busy_until_ms <= now)
			return true;
	return false;
}

static size_t count_left(const struct places *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++)
		n += !p->v[i]->bad;
	return n;
}

bool places_drop(struct places *p, struct place *place)
{
	bool others;

	lock_guard(&p->lock, LOCK_PLACES);
	others = place->bad ? count_left(p) > 0 : count_left(p) > 1;
	place->bad |= others;
	return others;
}

size_t places_left(struct places *p)
{
	lock_guard(&p->lock, LOCK_PLACES);
	return count_left(p);
}
