/* SPDX-License-Identifier: MIT
 *
 * One thread takes all memory before the others begin. Where each took its own, they waited for the
 * driver's lock one after the other, and so did the copies of those that had begun.
 */
#include "client/models/copy/transport.h"

#include "client/gpushm_private.h"

#include <string.h>

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

void transport_close(struct transport *t)
{
	if (!t->gpu)
		return;
	ring_close(&t->ring);
	t->threads = 0;
	for (; t->n_pinned > 0; t->n_pinned--)
		pinned_clear(&t->pinned[t->n_pinned - 1], t->gpu);
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
		r = pinned_take(p, t->c, t->pool, t->gpu, t->device,
				RING_BYTES(threads - t->threads));
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
