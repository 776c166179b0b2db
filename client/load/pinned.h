/* SPDX-License-Identifier: MIT
 *
 * A piece of pinned memory, for the slots of a few threads.
 */
#pragma once

#include "client/gpushm.h"
#include "client/load/gpu.h"

#include <pthread.h>

struct pinned {
	pthread_mutex_t lock;
	char *memory;		      /* under lock until it is set; NULL: not taken yet */
	struct gpushm_buffer *buffer; /* owned: of a pinned pool; or */
	void *driver;		      /* owned: of the driver */
};

void pinned_init(struct pinned *p);
void pinned_clear(struct pinned *p, struct gpu *gpu);

/* Takes the memory, unless another thread has: of that pool of the daemon if it has space (1 ms;
 * 0.3 ms for each MiB that must be made); otherwise, or if the pool is "", of the driver. 0, or
 * -ENOMEM, -EIO with gpushm_error() set. */
int pinned_take(struct pinned *p, struct gpushm *c, const char *pool, struct gpu *gpu, int device,
		uint64_t bytes);
