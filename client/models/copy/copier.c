/* SPDX-License-Identifier: MIT
 *
 * A piece has two slots: while the processor copies out of one, the GPU writes to the other. Pieces
 * are made when they are needed, and stay until another device needs their memory: pinning takes
 * longer than copying.
 */
#include "client/models/copy/copier.h"

#include "client/gpushm_load_private.h"
#include "client/gpushm_private.h"
#include "client/models/copy/gpu.h"
#include "client/models/fail.h"
#include "client/models/locks.h"
#include "proto/base/list.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLOT (1u << 20)
#define SLOTS 2u
#define RING_BYTES ((size_t)SLOTS * SLOT)
#define DEVICES 64

struct slots {
	struct list link; /* device::unused */
	struct gpu_queue *queue;
	char *memory; /* SLOTS times SLOT, pinned */
};

struct device {
	struct gpu *gpu; /* NULL: it is not open yet */
	struct list unused;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static pthread_cond_t freed = PTHREAD_COND_INITIALIZER;
static struct device devices[DEVICES];
static uint64_t left = 256u << 20; /* bytes that may still be pinned */

void gpushm_private_mapping_limit(uint64_t bytes)
{
	lock_guard(&lock, LOCK_COPIER);
	left = bytes;
}

/* Under the lock. The primary context is kept until the process ends. */
static int open_device(struct device *d, int ordinal)
{
	if (d->gpu)
		return 0;
	list_init(&d->unused);
	return gpu_open(ordinal, &d->gpu);
}

/* In the device's context. */
static int make(struct device *d, struct slots **ret)
{
	struct slots *s = calloc(1, sizeof(*s));
	void *memory = NULL;
	int r = s ? gpu_pin(d->gpu, RING_BYTES, &memory) : load_no_memory();

	if (r == 0)
		r = gpu_queue_new(SLOTS, &s->queue);
	if (r < 0) {
		private_error_guard();
		gpu_unpin(d->gpu, memory, RING_BYTES);
		free(s);
		return r;
	}
	s->memory = memory;
	*ret = s;
	return 0;
}

static void drop(struct device *d, struct slots *s)
{
	gpu_queue_free(d->gpu, s->queue);
	gpu_unpin(d->gpu, s->memory, RING_BYTES);
	free(s);
}

/* Takes unused pinned memory of another device; NULL if none has any. */
static struct slots *take_other(struct device **ret_of)
{
	for (struct device *d = devices; d < devices + DEVICES; d++)
		if (d->gpu && !list_empty(&d->unused)) {
			struct slots *s = list_first(&d->unused, struct slots, link);

			list_drop(&s->link);
			*ret_of = d;
			return s;
		}
	return NULL;
}

/* Under the lock, which it gives away meanwhile. NULL: the caller makes one. */
static struct slots *take(struct device *d)
{
	struct slots *s = NULL;
	struct device *of = d;

	while (list_empty(&d->unused) && left < SLOTS * SLOT && !(s = take_other(&of)))
		pthread_cond_wait(&freed, &lock);
	if (s) {
		lock_drop(&lock);
		drop(of, s);
		lock_take(&lock, LOCK_COPIER);
		return NULL;
	}
	if (!list_empty(&d->unused)) {
		s = list_first(&d->unused, struct slots, link);
		list_drop(&s->link);
		return s;
	}
	left -= SLOTS * SLOT;
	return NULL;
}

static void give(struct device *d, struct slots *s)
{
	lock_guard(&lock, LOCK_COPIER);
	if (s)
		list_insert(&d->unused, &s->link);
	else
		left += SLOTS * SLOT;
	pthread_cond_broadcast(&freed);
}

static size_t part_of(size_t n, size_t at)
{
	return n - at < SLOT ? n - at : SLOT;
}

static int queue_part(struct slots *s, uint64_t from, size_t n, size_t at)
{
	unsigned slot = (unsigned)(at / SLOT % SLOTS);
	int r = gpu_copy_to_host(s->queue, s->memory + (size_t)slot * SLOT, from + at,
				 part_of(n, at));

	return r < 0 ? r : gpu_mark(s->queue, slot);
}

/* The next part is on its way before this one is taken out of its slot. */
static int copy(struct slots *s, uint64_t from, char *to, size_t n)
{
	int r = queue_part(s, from, n, 0);

	for (size_t at = 0; r == 0 && at < n; at += SLOT) {
		unsigned slot = (unsigned)(at / SLOT % SLOTS);

		if (n - at > SLOT)
			r = queue_part(s, from, n, at + SLOT);
		if (r == 0)
			r = gpu_wait(s->queue, slot);
		if (r == 0)
			memcpy(to + at, s->memory + (size_t)slot * SLOT, part_of(n, at));
	}
	return r < 0 ? (gpu_drain(s->queue), r) : 0;
}

int copier_read(int device, uint64_t from, void *to, size_t n)
{
	struct slots *s = NULL;
	struct device *d;
	int r;

	if (device < 0 || device >= DEVICES)
		return gpushm_private_fail(ENODEV, "there is no GPU %d", device);
	d = &devices[device];
	lock_take(&lock, LOCK_COPIER);
	r = open_device(d, device);
	if (r == 0)
		s = take(d);
	lock_drop(&lock);
	if (r < 0)
		return r;
	r = gpu_enter(d->gpu);
	if (r == 0) {
		if (!s)
			r = make(d, &s);
		if (r == 0)
			r = copy(s, from, to, n);
		gpu_leave();
	}
	give(d, s);
	return r;
}
