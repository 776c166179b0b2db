/* SPDX-License-Identifier: MIT
 *
 * Threads pin their own memory when they begin, so that the first bytes flow while others still
 * pin: one thread would pin for 30 ms before all could begin.
 */
#include "client/load/transport.h"

#include "proto/base/own.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A pinned pool, on the GPU's own NUMA node if there is one. */
static void choose_pool(struct transport *t)
{
	int node = gpu_node(t->gpu);
	struct gpushm_pool *pools;
	size_t n;

	if (!t->c || gpushm_pools(t->c, &pools, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		bool usable =
			pools[i].kind == GPUSHM_PINNED && pools[i].allowed && !pools[i].failed;

		if (usable && (!t->pool[0] || pools[i].numa_node == node))
			memcpy(t->pool, pools[i].name, sizeof(t->pool));
		if (usable && pools[i].numa_node == node)
			break;
	}
	free(pools);
}
_Static_assert(sizeof(((struct gpushm_pool *)0)->name) == sizeof(((struct transport *)0)->pool),
	       "a pool's name");

int transport_open(struct transport *t, struct gpushm *c, int device)
{
	int r;

	*t = (struct transport){ .device = device, .c = c };
	r = gpu_open(device, &t->gpu);
	if (r < 0)
		return r;
	t->has_cpus = gpu_processors(t->gpu, &t->cpus);
	for (size_t i = 0; i < array_size(t->pinned); i++)
		pinned_init(&t->pinned[i]);
	choose_pool(t);
	return 0;
}

void transport_close(struct transport *t)
{
	if (!t->gpu)
		return;
	for (size_t i = 0; i < array_size(t->lanes); i++)
		lane_close(&t->lanes[i]);
	for (size_t i = 0; i < array_size(t->pinned); i++)
		pinned_clear(&t->pinned[i], t->gpu);
	t->gpu = gpu_close(t->gpu);
}

static int open_lane(struct transport *t, unsigned thread)
{
	struct pinned *p = &t->pinned[thread / TRANSPORT_LANES_EACH];
	unsigned place = thread % TRANSPORT_LANES_EACH;
	int r = pinned_take(p, t->c, t->pool, t->gpu, t->device, TRANSPORT_LANES_EACH * LANE_BYTES);

	return r < 0 ? r : lane_open(&t->lanes[thread], t->gpu, p->memory + place * LANE_BYTES);
}

int transport_enter(struct transport *t, unsigned thread, struct lane **ret)
{
	struct lane *l = &t->lanes[thread];
	int r = gpu_enter(t->gpu);

	if (r < 0)
		return r;
	if (!l->gpu)
		r = open_lane(t, thread);
	if (r < 0)
		gpu_leave();
	else
		*ret = l;
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
