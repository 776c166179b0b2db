/* SPDX-License-Identifier: MIT
 *
 * One list a process, oldest first, by Numba's rule (numba-cuda, cudadrv/driver.py,
 * _PendingDeallocs): the limits are checked after an object has been added, and strictly, so that
 * with a limit of 10 the eleventh runs all eleven. While a section is open nothing runs; its end
 * runs nothing by itself.
 *
 * It differs from Numba where Numba loses something: a failure does not cancel the rest of the
 * list; a thread never runs what another one has taken; and when memory runs out, the list
 * runs even inside a section, because the alternative is a failure.
 *
 * Nothing here knows buffers. In a forked child the list is empty: its objects are the parent's.
 */
#include "client/lib/base/defer.h"

#include "client/gpushm_cleanup.h"
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "proto/base/number.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#define RATIO_DEFAULT 0.2 /* Numba's */

/* ---- limits ---- */

/* Digits and a point, from 0 to 1. strtod() alone reads a decimal comma in some locales. */
static bool read_ratio(const char *text, double *ret)
{
	locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	char *end = NULL;
	double value;

	if (!plain)
		return false;
	value = text ? strtod_l(text, &end, plain) : 0;
	freelocale(plain);
	if (!end || end == text || *end || text[strspn(text, "0123456789.")] || value > 1)
		return false;
	*ret = value;
	return true;
}

static void read_limits(struct defer_queue *q)
{
	const char *text = getenv("GPUSHM_MAX_PENDING_UNMAPS_COUNT");
	uint64_t count;

	if (q->limits_known)
		return;
	q->limits_known = true;
	q->max_ratio = RATIO_DEFAULT;
	if (text && number_read(text, UINT32_MAX, &count))
		q->max_count = (unsigned)count;
	read_ratio(getenv("GPUSHM_MAX_PENDING_UNMAPS_RATIO"), &q->max_ratio);
}

/* Whether a limit is exceeded since the last one was added. The ratio is of that one's device. */
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

/* Takes the owner's objects (NULL: all) off the list; keeps their order. */
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

/* The list, locked; NULL with gpushm_error() set where the process has none. */
static struct defer_queue *lock(void)
{
	struct process *p = process();

	if (p)
		lock_take(&p->defer_lock, LOCK_DEFER);
	else
		error_set(ENOMEM, "out of memory for the library's state");
	return p ? &p->deferred : NULL;
}

static void unlock(void)
{
	lock_drop(&process()->defer_lock);
}

int defer_add(struct deferred *d)
{
	struct defer_queue *q = lock();
	struct deferred *due = NULL;

	read_limits(q);
	append(q, d);
	if (q->sections == 0 && exceeds(q))
		due = take(q, NULL);
	unlock();
	return run(due);
}

static struct deferred *take_locked(const void *owner)
{
	struct deferred *due = take(lock(), owner);

	unlock();
	return due;
}

void defer_flush_owner(const void *owner)
{
	run(take_locked(owner));
}

bool defer_flush_for_space(void)
{
	struct deferred *due = take_locked(NULL);
	bool any = due != NULL;

	run(due);
	return any;
}

/* ---- for the application ---- */

int gpushm_set_cleanup_limits(unsigned max_count, double max_ratio)
{
	struct defer_queue *q;

	if (!(max_ratio >= 0 && max_ratio <= 1))
		return error_set(EINVAL, "the ratio of pending unmaps is a number from 0 to 1");
	q = lock();
	if (!q)
		return -ENOMEM;
	q->limits_known = true;
	q->max_count = max_count;
	q->max_ratio = max_ratio;
	unlock();
	return 0;
}

int gpushm_defer_cleanup(void)
{
	struct defer_queue *q = lock();

	if (!q)
		return -ENOMEM;
	q->sections++;
	unlock();
	return 0;
}

int gpushm_resume_cleanup(void)
{
	struct defer_queue *q = lock();
	bool was_open;

	if (!q)
		return -ENOMEM;
	was_open = q->sections > 0;
	q->sections -= was_open;
	unlock();
	return was_open ? 0
			: error_set(EINVAL, "gpushm_resume_cleanup() without a "
					    "gpushm_defer_cleanup() before it");
}

int gpushm_flush_cleanup(void)
{
	struct defer_queue *q = lock();
	struct deferred *due = NULL;
	bool open;

	if (!q)
		return -ENOMEM;
	open = q->sections > 0;
	if (!open)
		due = take(q, NULL);
	unlock();
	return open ? error_set(EBUSY, "cleanup is deferred: call gpushm_resume_cleanup() first")
		    : run(due);
}

size_t gpushm_pending_cleanup(uint64_t *ret_bytes)
{
	struct process *p = process();
	struct defer_queue now = { 0 };

	if (p) {
		now = *lock();
		unlock();
	}
	if (ret_bytes)
		*ret_bytes = now.bytes;
	return now.count;
}
