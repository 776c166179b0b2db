/* SPDX-License-Identifier: MIT
 *
 * Stands in for gpu.c where the library is built without the CUDA Toolkit: gpu_open() fails, so
 * that no other function here is ever called.
 */
#include "client/models/copy/gpu.h"

#include "client/gpushm_private.h"

static int refuse(void)
{
	return gpushm_private_fail(ENODEV,
				   "this libgpushm-load was built without CUDA: host pools only");
}

int gpu_open(int device, struct gpu **ret)
{
	return refuse();
}

struct gpu *gpu_close(struct gpu *g)
{
	return NULL;
}

bool gpu_processors(struct gpu *g, cpu_set_t *ret)
{
	return false;
}

int gpu_node(struct gpu *g)
{
	return -1;
}

int gpu_pin(struct gpu *g, size_t bytes, void **ret)
{
	return refuse();
}

void gpu_unpin(struct gpu *g, void *memory, size_t bytes)
{
}

int gpu_enter(struct gpu *g)
{
	return refuse();
}

void gpu_leave(void)
{
}

int gpu_queue_new(unsigned marks, struct gpu_queue **ret)
{
	return refuse();
}

int gpu_queue_reserve(struct gpu_queue *q, unsigned marks)
{
	return refuse();
}

void gpu_queue_free(struct gpu *g, struct gpu_queue *q)
{
}

int gpu_copy_to_device(struct gpu_queue *q, uint64_t device, const void *host, size_t bytes)
{
	return refuse();
}

int gpu_copy_to_host(struct gpu_queue *q, void *host, uint64_t device, size_t bytes)
{
	return refuse();
}

int gpu_mark(struct gpu_queue *q, unsigned mark)
{
	return refuse();
}

int gpu_wait(struct gpu_queue *q, unsigned mark)
{
	return refuse();
}

int gpu_drain(struct gpu_queue *q)
{
	return refuse();
}
