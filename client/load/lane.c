/* SPDX-License-Identifier: MIT
 *
 * The buffer of a pinned pool is never published: it vanishes with the process. It is small enough
 * for the daemon's pending list, where the next load finds it: pinning memory takes 0.3 ms a MiB.
 */
#include "client/load/lane.h"

#include "client/gpushm_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

static struct gpushm_buffer *create_in(struct gpushm *c, const char *pool, int device)
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
	return gpushm_create(c, name, LANE_SLOTS * SLOT_BYTES, &options, &b) < 0 ? NULL : b;
}

static int take_memory(struct lane *l, struct gpushm *c, const char *pool, int device)
{
	int r;

	if (pool[0])
		l->buffer = create_in(c, pool, device);
	if (l->buffer) {
		l->memory = gpushm_buffer_host_ptr(l->buffer);
		return 0;
	}
	r = gpu_pin(l->gpu, LANE_SLOTS * SLOT_BYTES, &l->pinned);
	l->memory = l->pinned;
	return r;
}

int lane_open(struct lane *l, struct gpu *gpu, struct gpushm *c, const char *pool, int device)
{
	int r;

	*l = (struct lane){ .gpu = gpu };
	r = take_memory(l, c, pool, device);
	if (r == 0)
		r = gpu_queue_new(LANE_SLOTS, &l->queue);
	if (r < 0)
		lane_close(l);
	return r;
}

void lane_close(struct lane *l)
{
	struct gpushm_private_error e;

	if (!l->gpu)
		return;
	gpu_queue_free(l->gpu, l->queue);
	gpushm_private_keep(&e);
	gpushm_discard(l->buffer);
	gpushm_private_put_back(&e);
	gpu_unpin(l->gpu, l->pinned);
	*l = (struct lane){ 0 };
}

int lane_next(struct lane *l, char **ret)
{
	l->at = (l->at + 1) % LANE_SLOTS;
	*ret = l->memory + l->at * (size_t)SLOT_BYTES;
	return gpu_wait(l->queue, l->at);
}

int lane_drain(struct lane *l)
{
	return gpu_drain(l->queue);
}
