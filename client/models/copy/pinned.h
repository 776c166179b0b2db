/* SPDX-License-Identifier: MIT
 *
 * A piece of pinned memory, for the slots of some threads.
 */
#pragma once

#include "client/gpushm.h"
#include "client/models/copy/gpu.h"

struct pinned {
	char *memory; /* NULL: it is not taken */
	uint64_t bytes;
	struct gpushm_buffer *buffer; /* owned: of a pinned pool; NULL: the memory is our own */
};

/* Takes memory of that pool of the daemon if it has space (1 ms; 0.3 ms for each MiB that must be
 * made); otherwise, or if the pool is "", new memory. 0, or -ENOMEM, -EIO with gpushm_error() set.
 */
int pinned_take(struct pinned *p, struct gpushm *c, const char *pool, struct gpu *gpu, int device,
		uint64_t bytes);
/* What was not taken is allowed. Keeps gpushm_error(). */
void pinned_clear(struct pinned *p, struct gpu *gpu);
