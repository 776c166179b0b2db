/* SPDX-License-Identifier: MIT
 *
 * No circle of threads waits for each other: a thread waits only for threads that fill slots, and
 * those wait for nobody. Blocks are taken in their order, so each block of a group that was begun
 * has its thread; if that one leaves, it stops the ring.
 */
#include "client/models/copy/ring.h"

#include "client/models/locks.h"

#include <string.h>

int ring_open(struct ring *r, struct gpu *gpu)
{
	int result;

	*r = (struct ring){ .gpu = gpu };
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	result = gpu_queue_new(0, &r->queue);
	if (result < 0)
		ring_close(r);
	return result;
}

void ring_close(struct ring *r)
{
	if (!r->gpu)
		return;
	gpu_queue_free(r->gpu, r->queue);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->changed);
	r->gpu = NULL;
}

/* ---- cutting ---- */

static void add_slots(struct ring *r, const struct ring_piece *piece)
{
	size_t bytes = r->blocks == 1 ? SLOT_BYTES : (size_t)r->blocks * BLOCK_BYTES;

	for (size_t at = 0; at + bytes <= piece->bytes && r->n < RING_SLOTS_MAX; at += bytes) {
		r->slots[r->n] = (struct slot){ .memory = piece->memory + at, .number = r->n };
		r->idle[r->n] = &r->slots[r->n];
		r->n++;
	}
}

/* The slots that are filled at the same time, and two that the GPU copies from. */
static bool has_enough(const struct ring *r, unsigned threads)
{
	return r->n >= (threads + r->blocks - 1) / r->blocks + 2;
}

int ring_cut(struct ring *r, const struct ring_piece *pieces, size_t n, unsigned threads,
	     unsigned most)
{
	for (r->blocks = most; r->blocks > 0; r->blocks--) {
		r->n = 0;
		for (size_t i = 0; i < n; i++)
			add_slots(r, &pieces[i]);
		if (r->blocks == 1 || has_enough(r, threads))
			break;
	}
	r->first = 0;
	r->n_idle = r->n;
	r->stopped = false;
	return gpu_queue_reserve(r->queue, r->n);
}

/* ---- slots ---- */

static struct slot *find_open(struct ring *r, uint64_t group)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->slots[i].open && r->slots[i].group == group)
			return &r->slots[i];
	return NULL;
}

static struct slot *take_idle(struct ring *r, uint64_t group)
{
	struct slot *s = r->idle[r->first];

	r->first = (r->first + 1) % RING_SLOTS_MAX;
	r->n_idle--;
	s->open = true;
	s->group = group;
	s->filled = 0;
	/* Others may have waited for any slot, and are of this group. */
	pthread_cond_broadcast(&r->changed);
	return s;
}

int ring_join(struct ring *r, uint64_t group, struct slot **ret)
{
	struct slot *s;

	lock_take(&r->lock, LOCK_RING);
	while (!(s = find_open(r, group)) && r->n_idle == 0 && !r->stopped)
		pthread_cond_wait(&r->changed, &r->lock);
	if (r->stopped)
		s = NULL;
	else if (!s)
		s = take_idle(r, group);
	lock_drop(&r->lock);
	*ret = s;
	return s ? ring_wait(r, s) : 0;
}

bool ring_filled(struct ring *r, struct slot *s, unsigned blocks)
{
	bool all;

	lock_take(&r->lock, LOCK_RING);
	all = ++s->filled == blocks;
	lock_drop(&r->lock);
	return all;
}

int ring_mark(struct ring *r, struct slot *s)
{
	return gpu_mark(r->queue, s->number);
}

int ring_wait(struct ring *r, struct slot *s)
{
	return gpu_wait(r->queue, s->number);
}

void ring_give(struct ring *r, struct slot *s)
{
	lock_take(&r->lock, LOCK_RING);
	s->open = false;
	r->idle[(r->first + r->n_idle++) % RING_SLOTS_MAX] = s;
	pthread_cond_broadcast(&r->changed);
	lock_drop(&r->lock);
}

void ring_stop(struct ring *r)
{
	lock_take(&r->lock, LOCK_RING);
	r->stopped = true;
	pthread_cond_broadcast(&r->changed);
	lock_drop(&r->lock);
}

int ring_drain(struct ring *r)
{
	return gpu_drain(r->queue);
}
