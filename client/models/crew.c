/* SPDX-License-Identifier: MIT
 *
 * Blocks are numbers that threads take from a counter, so that the fastest threads do the most.
 * Progress is called from the calling thread only, ten times a second; it never delays a block.
 */
#include "client/models/crew.h"

#include "client/gpushm_private.h"
#include "client/models/locks.h"
#include "proto/base/clock.h"
#include "proto/base/thread.h"

#include <stdatomic.h>
#include <stdlib.h>

#define PERIOD_NS 100000000u

struct crew {
	const struct crew_work *work;
	uint64_t start_ns;
	_Atomic uint64_t next, done;
	const char *_Atomic file;
	_Atomic bool stopped;

	pthread_mutex_t lock;
	pthread_cond_t ended;
	unsigned started, running; /* threads; under lock */
	int error;		   /* the first one; under lock */
	struct gpushm_private_error text;
};

bool crew_next(struct crew *crew, uint64_t *ret_block)
{
	uint64_t block;

	if (crew->stopped)
		return false;
	block = crew->next++;
	*ret_block = block;
	return block < crew->work->blocks;
}

uint64_t crew_take(struct crew *crew, uint64_t most, uint64_t *ret_first)
{
	uint64_t next = crew->next, n;

	do {
		if (crew->stopped || next >= crew->work->blocks)
			return 0;
		n = (crew->work->blocks - next) / (2u * crew->work->threads);
		n = n < 1 ? 1 : n < most ? n : most;
	} while (!atomic_compare_exchange_weak(&crew->next, &next, next + n));
	*ret_first = next;
	return n;
}

bool crew_stopped(const struct crew *crew)
{
	return crew->stopped;
}

static bool is_stopped(const void *crew)
{
	return crew_stopped(crew);
}

struct load_stop crew_stop(const struct crew *crew)
{
	return (struct load_stop){ is_stopped, crew };
}

void crew_done(struct crew *crew, uint64_t bytes, const char *file)
{
	crew->file = file;
	crew->done += bytes;
}

/* Keeps the first error. */
void crew_fail(struct crew *crew, int error)
{
	lock_take(&crew->lock, LOCK_CREW);
	if (crew->error == 0) {
		crew->error = error;
		gpushm_private_keep(&crew->text);
	}
	crew->stopped = true;
	lock_drop(&crew->lock);
}

static void *thread_main(void *arg)
{
	struct crew *crew = arg;
	const struct crew_work *work = crew->work;
	unsigned number;
	int r;

	lock_take(&crew->lock, LOCK_CREW);
	number = crew->started++;
	lock_drop(&crew->lock);
	/* Without the permission the threads run anywhere, which is slower and not wrong. */
	if (work->cpus)
		pthread_setaffinity_np(pthread_self(), sizeof(*work->cpus), work->cpus);
	r = work->run(crew, number, work->user);
	if (r < 0)
		crew_fail(crew, r);
	lock_take(&crew->lock, LOCK_CREW);
	crew->running--;
	pthread_cond_signal(&crew->ended);
	lock_drop(&crew->lock);
	return NULL;
}

/* Returns how many run: the first ones wait for the lock until then. */
static unsigned start(struct crew *crew, pthread_t *threads)
{
	lock_guard(&crew->lock, LOCK_CREW);
	while (crew->running < crew->work->threads &&
	       thread_start(&threads[crew->running], thread_main, crew) == 0)
		crew->running++;
	return crew->running;
}

static void report(struct crew *crew)
{
	const struct crew_work *work = crew->work;
	struct gpushm_load_progress p = { .struct_size = sizeof(p),
					  .done = crew->done,
					  .total = work->bytes,
					  .elapsed_ns = clock_monotonic_ns() - crew->start_ns,
					  .file = crew->file };

	if (!work->progress || crew->stopped)
		return;
	if (work->progress(work->progress_user, &p) != 0)
		crew_fail(crew, gpushm_private_fail(ECANCELED, "canceled after %llu of %llu bytes",
						    (unsigned long long)p.done,
						    (unsigned long long)p.total));
}

static void wait_and_report(struct crew *crew)
{
	uint64_t next = crew->start_ns + PERIOD_NS;

	lock_take(&crew->lock, LOCK_CREW);
	while (crew->running > 0) {
		if (thread_cond_wait(&crew->ended, &crew->lock, next))
			continue;
		next = clock_monotonic_ns() + PERIOD_NS;
		lock_drop(&crew->lock);
		report(crew);
		lock_take(&crew->lock, LOCK_CREW);
	}
	lock_drop(&crew->lock);
}

static void init(struct crew *crew, const struct crew_work *work)
{
	*crew = (struct crew){ .work = work, .start_ns = clock_monotonic_ns() };
	pthread_mutex_init(&crew->lock, NULL);
	thread_cond_init(&crew->ended);
}

int crew_run(const struct crew_work *work, uint64_t *ret_elapsed_ns)
{
	pthread_t *threads = calloc(work->threads, sizeof(*threads));
	struct crew crew;
	unsigned n;

	*ret_elapsed_ns = 0;
	if (!threads)
		return gpushm_private_fail(ENOMEM, "out of memory for %u threads", work->threads);
	init(&crew, work);
	n = start(&crew, threads);
	if (n == 0)
		crew_fail(&crew, gpushm_private_fail(EAGAIN, "the system starts no more threads"));
	wait_and_report(&crew);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	*ret_elapsed_ns = clock_monotonic_ns() - crew.start_ns;
	if (crew.error == 0)
		report(&crew); /* the last one; it may still cancel */
	pthread_cond_destroy(&crew.ended);
	pthread_mutex_destroy(&crew.lock);
	free(threads);
	if (crew.error < 0)
		gpushm_private_put_back(&crew.text);
	return crew.error;
}

unsigned crew_threads(void)
{
	cpu_set_t mine;
	int n = sched_getaffinity(0, sizeof(mine), &mine) < 0 ? 1 : CPU_COUNT(&mine);

	return n < (int)CREW_THREADS ? (unsigned)n : CREW_THREADS;
}
