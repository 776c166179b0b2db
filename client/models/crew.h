/* SPDX-License-Identifier: MIT
 *
 * A crew: threads that share one piece of work, which is cut into numbered blocks. The calling
 * thread waits, and reports progress. The first error stops all of them.
 */
#pragma once

#include "client/gpushm_load.h"
#include "client/models/web/stop.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define CREW_THREADS 12u

/* How many threads work best where nothing has to wait for a disk: 12 fill the bus; fewer on fewer
 * processors. */
unsigned crew_threads(void);

struct crew;

struct crew_work {
	unsigned threads; /* at least 1; fewer are used if the system starts no more */
	uint64_t blocks;
	uint64_t bytes; /* of all blocks, for progress */
	/* What thread number 0, 1, ... does: it takes blocks with crew_next() until there are no
	 * more. 0, or a negative errno with gpushm_error() set, which crew_run() returns. Signals
	 * are blocked in it. */
	int (*run)(struct crew *crew, unsigned thread, void *user);
	void *user;
	const cpu_set_t *cpus; /* that the threads run on; NULL: as the calling thread */
	gpushm_load_progress_fn *progress;
	void *progress_user;
};

/* Returns when all threads have ended. 0; the first error of a thread, with gpushm_error() set;
 * -ECANCELED if progress returned nonzero; -EAGAIN if no thread could be started.
 * *ret_elapsed_ns is written in any case. */
int crew_run(const struct crew_work *work, uint64_t *ret_elapsed_ns);

/* For a thread of the crew: the next block. False: there are no more, or the work was stopped. */
bool crew_next(struct crew *crew, uint64_t *ret_block);

/* The next blocks that follow each other: at most so many, and fewer near the end, so that all
 * threads end at about the same time. Returns how many; 0: there are no more, or the work was
 * stopped. */
uint64_t crew_take(struct crew *crew, uint64_t most, uint64_t *ret_first);

/* Whether the work was stopped by an error or by progress: a thread asks between two long calls. */
bool crew_stopped(const struct crew *crew);

/* The same for a wait. */
struct load_stop crew_stop(const struct crew *crew);

/* Stops the work with that error, which gpushm_error() describes, before the thread returns it: so
 * that others do not wait for it. */
void crew_fail(struct crew *crew, int error);

/* Adds bytes that are done. file: what is read or written; it must live as long as the crew. */
void crew_done(struct crew *crew, uint64_t bytes, const char *file);
