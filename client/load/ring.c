/* SPDX-License-Identifier: MIT
 *
 * The buffer of a pinned pool is never published: it vanishes with the process, and the daemon
 * keeps its memory pinned for the next load.
 */
#include "client/load/ring.h"

#include "client/gpushm_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

static struct gpushm_buffer *create_in(struct gpushm *c, const char *pool, int device,
				       uint64_t bytes)
{
	struct gpushm_options options = { .struct_size = sizeof(options),
					  .pool = pool,
					  .flags = GPUSHM_SET_DEVICE,
					  .device = device };
	struct gpushm_buffer *b = NULL;
	uint64_t number = 0;
	char name[64];

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return NULL;
	snprintf(name, sizeof(name), "~/.gpushm-load/%016" PRIx64, number);
	return gpushm_create(c, name, bytes, &options, &b) < 0 ? NULL : b;
}

/* Of a pool on the GPU's own NUMA node if there is one. */
static struct gpushm_buffer *take_from_pool(struct gpushm *c, struct gpu *gpu, int device,
					    uint64_t bytes)
{
	int node = gpu_node(gpu);
	struct gpushm_buffer *b = NULL;
	struct gpushm_pool *pools;
	size_t n;

	if (!c || gpushm_pools(c, &pools, &n) < 0)
		return NULL;
	for (int near = 1; near >= 0; near--)
		for (size_t i = 0; !b && i < n; i++)
			if (pools[i].kind == GPUSHM_PINNED && pools[i].allowed &&
			    !pools[i].failed && (pools[i].numa_node == node) == near)
				b = create_in(c, pools[i].name, device, bytes);
	free(pools);
	return b;
}

int ring_open(struct ring *r, struct gpushm *c, struct gpu *gpu, int device, unsigned slots)
{
	uint64_t bytes = (uint64_t)slots * SLOT_BYTES;
	int result;

	*r = (struct ring){ .slots = slots };
	r->buffer = take_from_pool(c, gpu, device, bytes);
	if (r->buffer) {
		r->memory = gpushm_buffer_host_ptr(r->buffer);
	} else {
		result = gpu_pin(gpu, bytes, &r->pinned);
		if (result < 0)
			return result;
		r->memory = r->pinned;
	}
	r->gpu = gpu;
	return 0;
}

void ring_close(struct ring *r)
{
	struct gpushm_private_error e;

	if (!r->gpu)
		return;
	gpushm_private_keep(&e);
	gpushm_discard(r->buffer);
	gpushm_private_put_back(&e);
	gpu_unpin(r->gpu, r->pinned);
	*r = (struct ring){ 0 };
}

/* ---- lanes ---- */

int lane_open(struct lane *l, const struct ring *r, unsigned thread, unsigned threads)
{
	unsigned each = r->slots / threads;

	*l = (struct lane){ .n = each < LANE_SLOTS ? each : LANE_SLOTS };
	for (unsigned i = 0; i < l->n; i++)
		l->slots[i] = r->memory + ((size_t)thread * l->n + i) * SLOT_BYTES;
	return gpu_queue_new(r->gpu, l->n, &l->queue);
}

void lane_close(struct lane *l)
{
	l->queue = gpu_queue_free(l->queue);
}

int lane_next(struct lane *l, char **ret)
{
	l->at = (l->at + 1) % l->n;
	*ret = l->slots[l->at];
	return gpu_wait(l->queue, l->at);
}
