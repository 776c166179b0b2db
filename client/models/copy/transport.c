/* SPDX-License-Identifier: MIT
 *
 * One thread takes all memory before the others begin. Where each took its own, they waited for the
 * driver's lock one after the other, and so did the copies of those that had begun.
 */
#include "client/models/copy/transport.h"

#include "client/gpushm_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

int transport_open(struct transport *t, int device)
{
	int r;

	*t = (struct transport){ .device = device };
	r = gpu_open(device, &t->gpu);
	if (r == 0)
		t->has_cpus = gpu_processors(t->gpu, &t->cpus);
	return r;
}

/* On the GPU's own NUMA node if there is one. */
void transport_set_pools(struct transport *t, struct gpushm *c, struct gpushm_pool *const *pools,
			 size_t n)
{
	int node = gpu_node(t->gpu);

	t->c = c;
	for (size_t i = 0; i < n; i++) {
		bool usable =
			pools[i]->kind == GPUSHM_PINNED && pools[i]->allowed && !pools[i]->failed;

		if (usable && (!t->pool[0] || pools[i]->numa_node == node))
			memcpy(t->pool, pools[i]->name, sizeof(t->pool));
		if (usable && pools[i]->numa_node == node)
			break;
	}
}
_Static_assert(sizeof(((struct gpushm_pool *)0)->name) == sizeof(((struct transport *)0)->pool),
	       "a pool's name");

/* The buffer of a pinned pool is never published: it vanishes with the process, and its memory goes
 * to the pool's pending list, where the next load finds it. */
static struct gpushm_buffer *create_in_pool(const struct transport *t, uint64_t bytes)
{
	struct gpushm_create_options options = { .struct_size = sizeof(options),
						 .pool = t->pool,
						 .flags = GPUSHM_SET_DEVICE,
						 .device = t->device };
	struct gpushm_buffer *b = NULL;
	uint64_t number = 0;
	char name[64];

	if (!t->pool[0] || getrandom(&number, sizeof(number), 0) != sizeof(number))
		return NULL;
	snprintf(name, sizeof(name), "~/.gpushm-load/%016" PRIx64, number);
	return gpushm_create(t->c, name, bytes, &options, &b) < 0 ? NULL : b;
}

/* Memory of the daemon's pool if that has space (1 ms; 0.3 ms for each MiB that must be made);
 * otherwise new memory. */
static int take_pinned(const struct transport *t, struct pinned *p, uint64_t bytes)
{
	void *memory = NULL;
	int r = 0;

	*p = (struct pinned){ .bytes = bytes, .buffer = create_in_pool(t, bytes) };
	if (p->buffer)
		memory = gpushm_buffer_host_ptr(p->buffer);
	else
		r = gpu_pin(t->gpu, bytes, &memory);
	p->memory = memory;
	return r;
}

static void give_pinned(const struct transport *t, const struct pinned *p)
{
	private_error_guard();
	if (p->buffer)
		gpushm_discard(p->buffer);
	else
		gpu_unpin(t->gpu, p->memory, p->bytes);
}

void transport_close(struct transport *t)
{
	if (!t->gpu)
		return;
	ring_close(&t->ring);
	t->threads = 0;
	for (; t->n_pinned > 0; t->n_pinned--)
		give_pinned(t, &t->pinned[t->n_pinned - 1]);
	t->gpu = gpu_close(t->gpu);
}

/* In the GPU's context. The daemon, which may be creating the load's own buffer, is asked last. */
static int take_memory(struct transport *t, unsigned threads)
{
	struct pinned *p = &t->pinned[t->n_pinned];
	int r = t->ring.gpu ? 0 : ring_open(&t->ring, t->gpu);

	if (r == 0 && t->n_pinned == TRANSPORT_PINNED_MAX)
		r = gpushm_private_fail(ENOMEM, "out of slots for pinned memory");
	if (r == 0)
		r = take_pinned(t, p, RING_BYTES(threads - t->threads));
	if (r < 0)
		return r;
	t->n_pinned++;
	t->threads = threads;
	return 0;
}

int transport_reserve(struct transport *t, unsigned threads)
{
	int r;

	if (threads <= t->threads)
		return 0;
	r = gpu_enter(t->gpu);
	if (r < 0)
		return r;
	r = take_memory(t, threads);
	gpu_leave();
	return r;
}

int transport_cut(struct transport *t, unsigned threads, unsigned blocks)
{
	struct ring_piece pieces[TRANSPORT_PINNED_MAX];
	int r = gpu_enter(t->gpu);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < t->n_pinned; i++)
		pieces[i] = (struct ring_piece){ t->pinned[i].memory, t->pinned[i].bytes };
	r = ring_cut(&t->ring, pieces, t->n_pinned, threads, blocks);
	gpu_leave();
	return r;
}

int transport_enter(struct transport *t, struct ring **ret)
{
	int r = gpu_enter(t->gpu);

	if (r == 0)
		*ret = &t->ring;
	return r;
}

int transport_leave(struct ring *ring)
{
	int r;

	if (!ring)
		return 0;
	r = ring_drain(ring);
	gpu_leave();
	return r;
}
