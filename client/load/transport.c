/* SPDX-License-Identifier: MIT
 *
 * One thread opens all lanes before the others begin. Where each opened its own, they waited for
 * the driver's lock one after the other, and so did the copies of those that had begun.
 */
#include "client/load/transport.h"

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
void transport_set_pools(struct transport *t, struct gpushm *c, const struct gpushm_pool *pools,
			 size_t n)
{
	int node = gpu_node(t->gpu);

	t->c = c;
	for (size_t i = 0; i < n; i++) {
		bool usable =
			pools[i].kind == GPUSHM_PINNED && pools[i].allowed && !pools[i].failed;

		if (usable && (!t->pool[0] || pools[i].numa_node == node))
			memcpy(t->pool, pools[i].name, sizeof(t->pool));
		if (usable && pools[i].numa_node == node)
			break;
	}
}
_Static_assert(sizeof(((struct gpushm_pool *)0)->name) == sizeof(((struct transport *)0)->pool),
	       "a pool's name");

void transport_close(struct transport *t)
{
	if (!t->gpu)
		return;
	for (; t->n_queues > 0; t->n_queues--)
		lane_close(&t->lanes[t->n_queues - 1]);
	t->n_lanes = 0;
	for (; t->n_pinned > 0; t->n_pinned--)
		pinned_clear(&t->pinned[t->n_pinned - 1], t->gpu);
	t->gpu = gpu_close(t->gpu);
}

/* In the GPU's context. The daemon, which may be creating the load's own buffer, is asked last. */
static int open_lanes(struct transport *t, unsigned n)
{
	struct pinned *p = &t->pinned[t->n_pinned];
	char *memory;
	int r = 0;

	for (; r == 0 && t->n_queues < n; t->n_queues += r == 0)
		r = lane_open(&t->lanes[t->n_queues], t->gpu);
	if (r == 0 && t->n_pinned == TRANSPORT_PINNED_MAX)
		r = gpushm_private_fail(ENOMEM, "out of slots for pinned memory");
	if (r == 0)
		r = pinned_take(p, t->c, t->pool, t->gpu, t->device, (n - t->n_lanes) * LANE_BYTES);
	if (r < 0)
		return r;
	t->n_pinned++;
	for (memory = p->memory; t->n_lanes < n; memory += LANE_BYTES)
		t->lanes[t->n_lanes++].memory = memory;
	return 0;
}

int transport_lanes(struct transport *t, unsigned n)
{
	int r;

	if (n <= t->n_lanes)
		return 0;
	r = gpu_enter(t->gpu);
	if (r < 0)
		return r;
	r = open_lanes(t, n);
	gpu_leave();
	return r;
}

int transport_enter(struct transport *t, unsigned thread, struct lane **ret)
{
	int r = gpu_enter(t->gpu);

	if (r == 0)
		*ret = &t->lanes[thread];
	return r;
}

int transport_leave(struct transport *t, struct lane *l)
{
	int r;

	if (!l)
		return 0;
	r = lane_drain(l);
	gpu_leave();
	return r;
}

unsigned transport_threads(void)
{
	cpu_set_t mine;
	int n = sched_getaffinity(0, sizeof(mine), &mine) < 0 ? 1 : CPU_COUNT(&mine);

	return n < (int)TRANSPORT_THREADS ? (unsigned)n : TRANSPORT_THREADS;
}
