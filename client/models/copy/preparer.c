/* SPDX-License-Identifier: MIT */
#include "client/models/copy/preparer.h"

#include "client/gpushm_private.h"
#include "client/gpushm_query.h"
#include "proto/base/thread.h"
#include "proto/kind.h"

#include <stdlib.h>
#include <string.h>

#define NO_DEVICE (-1)
#define ANY_DEVICE (-2) /* the one that has the buffer's memory */

/* The calling thread's context counts, so this can't be asked in another thread. */
static int wanted_device(const struct gpushm_create_options *options)
{
	int current;

	if (!options || !(options->flags & GPUSHM_SET_DEVICE) ||
	    options->device == GPUSHM_OWN_DEVICE)
		return ANY_DEVICE;
	if (options->device != GPUSHM_CURRENT_DEVICE)
		return options->device;
	current = gpushm_current_device();
	return current < 0 ? 0 : current;
}

int preparer_init(struct preparer *p, struct gpushm *c, const struct gpushm_create_options *options)
{
	*p = (struct preparer){ .c = c, .device = wanted_device(options) };
	sem_init(&p->tell, 0, 0);
	if (!options || !options->pool)
		return 0;
	p->pool = strdup(options->pool);
	return p->pool ? 0 : gpushm_private_fail(ENOMEM, "out of memory for a load");
}

void preparer_clear(struct preparer *p)
{
	preparer_await(p);
	if (p->transport.gpu)
		transport_close(&p->transport);
	sem_destroy(&p->tell);
	gpushm_free(p->pools);
	free(p->pool);
}

/* ---- the thread ---- */

/* Once: a request waits while another thread has the connection, say to create the buffer. */
static void ask_pools(struct preparer *p)
{
	if (!p->pools && gpushm_pools(p->c, &p->pools, &p->n_pools) < 0)
		p->pools = NULL;
}

/* The device that copies to the pool's buffers; NO_DEVICE for host memory, or if it is unknown. */
static int pool_device(const struct preparer *p)
{
	int device = NO_DEVICE;

	for (size_t i = 0; p->pools && i < p->n_pools; i++) {
		const struct gpushm_pool *pool = p->pools[i];
		bool is_it = p->pool ? strcmp(pool->name, p->pool) == 0 : pool->is_default;

		if (is_it && kind_of(pool->kind)->on_gpu)
			device = p->device == ANY_DEVICE ? pool->device : p->device;
	}
	return device;
}

static int open_transport(struct preparer *p, int device)
{
	int r = transport_open(&p->transport, device);

	if (r == 0 && p->pools)
		transport_set_pools(&p->transport, p->c, p->pools, p->n_pools);
	return r;
}

/* What fails here fails again in preparer_transport(), which reports it. */
static void *prepare(void *arg)
{
	struct preparer *p = arg;
	int device;

	ask_pools(p);
	device = pool_device(p);
	if (device < 0 || open_transport(p, device) < 0)
		return NULL;
	while (sem_wait(&p->tell) < 0)
		continue;
	transport_reserve(&p->transport, p->threads);
	return NULL;
}

void preparer_start(struct preparer *p)
{
	enum gpushm_kind kind = gpushm_private_pool_kind(p->c, p->pool);

	/* Host memory needs no transport. */
	if (kind && !kind_of(kind)->by_driver)
		return;
	p->running = thread_start(&p->thread, prepare, p) == 0;
}

void preparer_tell(struct preparer *p, unsigned threads)
{
	if (p->told)
		return;
	p->told = true;
	p->threads = threads;
	sem_post(&p->tell);
}

void preparer_await(struct preparer *p)
{
	preparer_tell(p, 0);
	if (p->running)
		pthread_join(p->thread, NULL);
	p->running = false;
}

/* ---- the transport ---- */

/* The one that was prepared, if it is right for this buffer, or a new one. */
int preparer_transport(struct preparer *p, const struct gpushm_buffer *b, unsigned threads)
{
	int device = p->device == ANY_DEVICE ? gpushm_buffer_device(b) : p->device;
	int r = 0;

	if (!p->transport.gpu || p->transport.device != device) {
		transport_close(&p->transport);
		ask_pools(p);
		r = open_transport(p, device);
	}
	return r < 0 ? r : transport_reserve(&p->transport, threads);
}
