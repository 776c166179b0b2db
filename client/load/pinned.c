/* SPDX-License-Identifier: MIT
 *
 * The buffer of a pinned pool is never published: it vanishes with the process, and its memory goes
 * to the pool's pending list, where the next load finds it.
 */
#include "client/load/pinned.h"

#include "client/gpushm_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

void pinned_init(struct pinned *p)
{
	*p = (struct pinned){ 0 };
	pthread_mutex_init(&p->lock, NULL);
}

void pinned_clear(struct pinned *p, struct gpu *gpu)
{
	struct gpushm_private_error e;

	gpushm_private_keep(&e);
	gpushm_discard(p->buffer);
	gpushm_private_put_back(&e);
	gpu_unpin(gpu, p->driver);
	pthread_mutex_destroy(&p->lock);
}

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

int pinned_take(struct pinned *p, struct gpushm *c, const char *pool, struct gpu *gpu, int device,
		uint64_t bytes)
{
	int r = 0;

	pthread_mutex_lock(&p->lock);
	if (!p->memory && pool[0])
		p->buffer = create_in(c, pool, device, bytes);
	if (!p->memory && p->buffer) {
		p->memory = gpushm_buffer_host_ptr(p->buffer);
	} else if (!p->memory) {
		r = gpu_pin(gpu, bytes, &p->driver);
		p->memory = p->driver;
	}
	pthread_mutex_unlock(&p->lock);
	return r;
}
