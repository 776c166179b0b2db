/* SPDX-License-Identifier: MIT
 *
 * The buffer of a pinned pool is never published: it vanishes with the process, and its memory goes
 * to the pool's pending list, where the next load finds it.
 */
#include "client/models/copy/pinned.h"

#include "client/gpushm_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

static struct gpushm_buffer *create_in(struct gpushm *c, const char *pool, int device,
				       uint64_t bytes)
{
	struct gpushm_create_options options = { .struct_size = sizeof(options),
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

int pinned_take(struct pinned *p, struct gpushm *c, const char *pool, struct gpu *gpu, int device,
		uint64_t bytes)
{
	void *memory = NULL;
	int r = 0;

	*p = (struct pinned){ .bytes = bytes };
	if (pool[0])
		p->buffer = create_in(c, pool, device, bytes);
	if (p->buffer)
		memory = gpushm_buffer_host_ptr(p->buffer);
	else
		r = gpu_pin(gpu, bytes, &memory);
	p->memory = memory;
	return r;
}

void pinned_clear(struct pinned *p, struct gpu *gpu)
{
	struct gpushm_private_error e;

	gpushm_private_keep(&e);
	if (p->buffer)
		gpushm_discard(p->buffer);
	else
		gpu_unpin(gpu, p->memory, p->bytes);
	*p = (struct pinned){ 0 };
	gpushm_private_put_back(&e);
}
