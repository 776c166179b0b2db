/* SPDX-License-Identifier: MIT
 *
 * Two blocks and two semaphores. The thread fills a block when it is empty, and its user empties
 * them in turn. A copy from a GPU to memory that the driver has not pinned runs at the speed of one
 * CPU core, and so does a write to a file: one after the other they take twice the time.
 *
 * The user writes, not the thread, so that a signal interrupts a write to a pipe that nobody reads;
 * the thread has all signals blocked.
 */
#include "client/ctl/read_ahead.h"

#include "proto/base/own.h"
#include "proto/base/thread.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#define BLOCK (4u << 20) /* two of them stay in the cache of many CPUs */

struct read_ahead {
	struct gpushm_buffer *buffer; /* borrowed */
	uint64_t offset, bytes;	      /* of the range */
	uint64_t taken;		      /* of them, by the user */
	struct {
		void *data; /* owned */
		int result; /* of gpushm_read() */
	} blocks[2];
	sem_t full, empty;
	char error[512]; /* gpushm_error() is the thread's own */
	_Atomic bool stop;
	pthread_t thread;
	bool running;
};

static size_t block_size(const struct read_ahead *a, uint64_t done)
{
	return a->bytes - done < BLOCK ? (size_t)(a->bytes - done) : BLOCK;
}

static int read_block(struct read_ahead *a, uint64_t done)
{
	return gpushm_read(a->buffer, a->offset + done, a->blocks[done / BLOCK % 2].data,
			   block_size(a, done));
}

static void wait_for(sem_t *s)
{
	while (sem_wait(s) < 0) /* EINTR */
		continue;
}

static void *run(void *arg)
{
	struct read_ahead *a = arg;
	int r = 0;

	for (uint64_t done = 0; done < a->bytes && r == 0; done += block_size(a, done)) {
		wait_for(&a->empty);
		if (a->stop)
			return NULL;
		r = read_block(a, done);
		if (r < 0)
			snprintf(a->error, sizeof(a->error), "%s", gpushm_error());
		a->blocks[done / BLOCK % 2].result = r;
		sem_post(&a->full);
	}
	return NULL;
}

static int start(struct read_ahead *a)
{
	int r = thread_start(&a->thread, run, a);

	a->running = r == 0;
	return r;
}

int read_ahead_new(struct gpushm_buffer *b, uint64_t offset, uint64_t bytes,
		   struct read_ahead **ret)
{
	struct read_ahead *a = calloc(1, sizeof(*a));
	int r = -ENOMEM;

	if (!a)
		return r;
	a->buffer = b;
	a->offset = offset;
	a->bytes = bytes;
	sem_init(&a->full, 0, 0);
	sem_init(&a->empty, 0, 2);
	for (size_t i = 0; i < 2; i++)
		a->blocks[i].data = malloc(BLOCK);
	if (a->blocks[0].data && a->blocks[1].data)
		r = start(a);
	if (r < 0)
		a = read_ahead_free(a);
	else
		*ret = a;
	return r;
}

ssize_t read_ahead_next(struct read_ahead *a, const void **ret)
{
	uint64_t done = a->taken;
	size_t n = block_size(a, done);
	int r;

	if (done)
		sem_post(&a->empty);
	if (n == 0)
		return 0;
	wait_for(&a->full);
	r = a->blocks[done / BLOCK % 2].result;
	if (r < 0)
		return r;
	*ret = a->blocks[done / BLOCK % 2].data;
	a->taken += n;
	return (ssize_t)n;
}

const char *read_ahead_error(const struct read_ahead *a)
{
	return a->error;
}

struct read_ahead *read_ahead_free(struct read_ahead *a)
{
	if (!a)
		return NULL;
	a->stop = true;
	sem_post(&a->empty);
	if (a->running)
		pthread_join(a->thread, NULL);
	for (size_t i = 0; i < 2; i++)
		free(a->blocks[i].data);
	sem_destroy(&a->full);
	sem_destroy(&a->empty);
	free(a);
	return NULL;
}
