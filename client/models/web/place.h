/* SPDX-License-Identifier: MIT
 *
 * The places where one file is: the URL that was given, and duplicates. Threads that read share
 * them.
 */
#pragma once

#include "client/gpushm_private.h"
#include "client/models/web/url.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define PLACES_MAX 64u

struct place {
	struct url url;
	struct url target;	/* where redirects of the URL have led to; no text: not known */
	bool original;		/* the URL that was given */
	bool bad;		/* it is asked no more */
	uint64_t busy_until_ms; /* CLOCK_MONOTONIC */
	unsigned active;	/* readers */
};

struct places {
	pthread_mutex_t lock;
	struct place *v[PLACES_MAX]; /* owned; a place stays until the end */
	size_t n;
	unsigned turn;
	/* All readers go to one place while it serves them, rather than to many: a relay that pulls
	 * takes others' turns there. */
	bool together;
	const struct place *latest; /* of those that served somebody; NULL */
	/* Why the last one became bad: a negative errno, and its text. */
	int error;
	struct gpushm_private_error why;
};

void places_init(struct places *p);
void places_clear(struct places *p);

/* Takes the URL; the first one is the original. One that is there already is dropped, and so are
 * those without TLS if the original has it. 0 or -ENOMEM, also then with the URL taken. */
int places_add(struct places *p, struct url *u);

/* Of the places that are neither bad nor busy one with the fewest readers; not `avoid`, unless
 * there is no other one. *ret_url: what to ask, cleared by the caller; *ret_fresh: it is the
 * place's own URL, not where it has led to. NULL: *ret_wait_ms until one is not busy, or
 * UINT64_MAX: all are bad; or with a wait of 0: out of memory. */
struct place *places_take(struct places *p, const struct place *avoid, struct url *ret_url,
			  bool *ret_fresh, uint64_t *ret_wait_ms);

/* A reader has left it. */
void places_give(struct places *p, struct place *place);

/* The reason is the error and gpushm_error(). */
void places_mark_bad(struct places *p, struct place *place, int error);
void places_mark_busy(struct places *p, struct place *place, uint64_t ms);

/* Whether another one could be asked now. */
bool places_has_other(struct places *p, const struct place *than);

/* Marks it bad unless it is the last one: then false. */
bool places_drop(struct places *p, struct place *place);

/* Where redirects have led to; NULL: this is not known any more. */
void places_set_target(struct places *p, struct place *place, const struct url *target);

/* Where all are bad: the error of the last one, with its gpushm_error(). */
int places_error(struct places *p);

/* How many are not bad. */
size_t places_left(struct places *p);
