/* SPDX-License-Identifier: MIT
 *
 * One list a process, oldest first, by Numba's rule (numba-cuda, cudadrv/driver.py,
 * _PendingDeallocs): what is added is compared with the limits after it has been added, and
 * strictly, so that with a limit of 10 the eleventh runs all eleven; while a section is open
 * nothing runs; its end runs nothing by itself.
 *
 * It differs from Numba where that loses something: one that fails does not cancel those behind it;
 * a thread never runs what another one has taken; and memory that has run out overrides a section,
 * for there the choice is between a wait and a failure.
 *
 * It knows nothing of buffers. In a forked child the list is empty: what was on it is the parent's.
 */
#include "client/base/defer.h"

#include "client/base/error.h"
#include "client/base/process.h"
#include "client/gpushm.h"

#include <errno.h>
#include <stdlib.h>

#define RATIO_DEFAULT 0.2 /* Numba's */

/* ---- limits ---- */

static bool read_count(const char *text, unsigned *ret)
{
	char *end;
	unsigned long n;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtoul(text, &end, 10);
	if (*end || errno || n > UINT32_MAX)
		return false;
	*ret = (unsigned)n;
	return true;
}

/* Not strtod(), which reads "0.2" as 0 where the locale's point is a comma. */
static bool read_ratio(const char *text, double *ret)
{
	double value = 0, place = 1;
	bool point = false, digit = false;

	for (; text && *text; text++) {
		if (*text == '.' && !point) {
			point = true;
			continue;
		}
		if (*text < '0' || *text > '9')
			return false;
		digit = true;
		place = point ? place / 10 : place;
		value = point ? value + (*text - '0') * place : value * 10 + (*text - '0');
	}
	if (!digit || value > 1)
		return false;
	*ret = value;
	return true;
}

static void know_limits(struct defer_queue *q)
{
	if (q->limits_known)
		return;
	q->limits_known = true;
	q->max_ratio = RATIO_DEFAULT;
	read_count(getenv("GPUSHM_MAX_PENDING_UNMAPS_COUNT"), &q->max_count);
	read_ratio(getenv("GPUSHM_MAX_PENDING_UNMAPS_RATIO"), &q->max_ratio);
}

int gpushm_set_cleanup_limits(unsigned max_count, double max_ratio)
{
	struct state *s = state();

	if (!(max_ratio >= 0 && max_ratio <= 1))
		return error_set(EINVAL, "the ratio of pending unmaps is a number from 0 to 1");
	if (!s)
		return error_set(ENOMEM, "out of memory for the library's state");
	pthread_mutex_lock(&s->defer_lock);
	s->deferred.limits_known = true;
	s->deferred.max_count = max_count;
	s->deferred.max_ratio = max_ratio;
	pthread_mutex_unlock(&s->defer_lock);
	return 0;
}

/* Whether what was added last is one too many. The ratio is of its own device's memory. */
static bool exceeds(const struct defer_queue *q)
{
	const struct deferred *d, *last = q->last;
	uint64_t bytes = 0;

	if (q->count > q->max_count)
		return true;
	for (d = q->first; d; d = d->next)
		bytes += d->device == last->device ? d->bytes : 0;
	return (double)bytes > q->max_ratio * (double)last->capacity(last->device);
}

/* ---- the list ---- */

static void append(struct defer_queue *q, struct deferred *d)
{
	d->next = NULL;
	if (q->last)
		q->last->next = d;
	else
		q->first = d;
	q->last = d;
	q->count++;
	q->bytes += d->bytes;
}

/* Takes those of an owner off the list, NULL: all; in their order. */
static struct deferred *take(struct defer_queue *q, const void *owner)
{
	struct defer_queue taken = { 0 }, rest = { 0 };
	struct deferred *d = q->first, *next;

	for (; d; d = next) {
		next = d->next;
		append(!owner || d->owner == owner ? &taken : &rest, d);
	}
	q->first = rest.first;
	q->last = rest.last;
	q->count = rest.count;
	q->bytes = rest.bytes;
	return taken.first;
}

static int run(struct deferred *d)
{
	struct deferred *next;
	struct error why;
	int first = 0, r;

	for (; d; d = next) {
		next = d->next;
		r = d->run(d);
		if (r < 0 && first == 0) {
			first = r;
			error_keep(&why);
		}
	}
	if (first < 0)
		error_put_back(&why);
	return first;
}

int defer_add(struct deferred *d)
{
	struct state *s = state();
	struct defer_queue *q = &s->deferred;
	struct deferred *due = NULL;

	pthread_mutex_lock(&s->defer_lock);
	know_limits(q);
	append(q, d);
	if (q->held == 0 && exceeds(q))
		due = take(q, NULL);
	pthread_mutex_unlock(&s->defer_lock);
	return run(due);
}

static struct deferred *take_locked(struct state *s, const void *owner)
{
	struct deferred *due;

	pthread_mutex_lock(&s->defer_lock);
	due = take(&s->deferred, owner);
	pthread_mutex_unlock(&s->defer_lock);
	return due;
}

void defer_flush_owner(const void *owner)
{
	run(take_locked(state(), owner));
}

bool defer_flush_for_room(void)
{
	struct deferred *due = take_locked(state(), NULL);
	bool any = due != NULL;

	run(due);
	return any;
}

/* ---- sections ---- */

int gpushm_defer_cleanup(void)
{
	struct state *s = state();

	if (!s)
		return error_set(ENOMEM, "out of memory for the library's state");
	pthread_mutex_lock(&s->defer_lock);
	s->deferred.held++;
	pthread_mutex_unlock(&s->defer_lock);
	return 0;
}

int gpushm_resume_cleanup(void)
{
	struct state *s = state();
	bool was_held;

	if (!s)
		return error_set(ENOMEM, "out of memory for the library's state");
	pthread_mutex_lock(&s->defer_lock);
	was_held = s->deferred.held > 0;
	s->deferred.held -= was_held;
	pthread_mutex_unlock(&s->defer_lock);
	return was_held ? 0
			: error_set(EINVAL, "gpushm_resume_cleanup() without a "
					    "gpushm_defer_cleanup() before it");
}

int gpushm_flush_cleanup(void)
{
	struct state *s = state();
	struct deferred *due = NULL;
	bool held;

	if (!s)
		return error_set(ENOMEM, "out of memory for the library's state");
	pthread_mutex_lock(&s->defer_lock);
	held = s->deferred.held > 0;
	if (!held)
		due = take(&s->deferred, NULL);
	pthread_mutex_unlock(&s->defer_lock);
	return held ? error_set(EBUSY, "cleanup is deferred: call gpushm_resume_cleanup() first")
		    : run(due);
}

size_t gpushm_pending_cleanup(uint64_t *ret_bytes)
{
	struct state *s = state();
	struct defer_queue now = { 0 };

	if (s) {
		pthread_mutex_lock(&s->defer_lock);
		now = s->deferred;
		pthread_mutex_unlock(&s->defer_lock);
	}
	if (ret_bytes)
		*ret_bytes = now.bytes;
	return now.count;
}
