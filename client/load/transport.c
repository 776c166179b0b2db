/* SPDX-License-Identifier: MIT
 *
 * Opens and closes the parts in order.
 */
#include "client/load/transport.h"

#include <pthread.h>

int transport_open(struct transport *t, struct gpushm *c, int device, unsigned slots, bool move)
{
	int r;

	*t = (struct transport){ .device = device };
	r = gpu_open(device, &t->gpu);
	if (r < 0)
		return r;
	t->has_cpus = gpu_processors(t->gpu, &t->cpus);
	if (move && t->has_cpus)
		pthread_setaffinity_np(pthread_self(), sizeof(t->cpus), &t->cpus);
	r = ring_open(&t->ring, c, t->gpu, device, slots);
	if (r < 0)
		transport_close(t);
	return r;
}

void transport_close(struct transport *t)
{
	ring_close(&t->ring);
	t->gpu = gpu_close(t->gpu);
}

unsigned transport_threads(void)
{
	cpu_set_t mine;
	int n = sched_getaffinity(0, sizeof(mine), &mine) < 0 ? 1 : CPU_COUNT(&mine);

	return n < (int)TRANSPORT_THREADS ? (unsigned)n : TRANSPORT_THREADS;
}
