/* SPDX-License-Identifier: MIT
 *
 * Slots and the events of a queue have the same numbers.
 */
#include "client/load/lane.h"

int lane_open(struct lane *l, struct gpu *gpu)
{
	int r;

	*l = (struct lane){ .gpu = gpu };
	r = gpu_queue_new(LANE_SLOTS, &l->queue);
	if (r < 0)
		l->gpu = NULL;
	return r;
}

void lane_close(struct lane *l)
{
	if (l->gpu)
		gpu_queue_free(l->gpu, l->queue);
	l->gpu = NULL;
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
