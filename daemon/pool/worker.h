/* SPDX-License-Identifier: MIT
 *
 * A thread that makes the driver calls of one device, one after the other, so that the loop never
 * waits for one. First in, first out: an allocation that is submitted after a free runs after it.
 */
#pragma once

#include "proto/base/list.h"

#include <stdint.h>
#include <uv.h>

/* One piece of work; a member of a struct that must live until on_done is called. */
struct job {
	struct list link;		  /* worker::todo or worker::done */
	void (*run)(struct job *job);	  /* on the worker's thread */
	void (*on_done)(struct job *job); /* later, on the loop's; may free the job */
};

struct worker;

/* Starts the thread. Its completions keep the loop alive only while jobs are under way. 0 or
 * -errno. */
int worker_new(uv_loop_t *loop, const char *thread_name, struct worker **ret);

/* Runs what is queued, calls every on_done, joins the thread. Blocks. NULL is allowed. Returns
 * NULL. The loop must run once more afterwards to close the handles. */
struct worker *worker_free(struct worker *w);

/* From the loop's thread only. */
void worker_submit(struct worker *w, struct job *job);

/* How long the current job has been running; 0 if none runs. Any thread. */
uint64_t worker_busy_ns(struct worker *w);

/* The loop that on_done is called from; borrowed. */
uv_loop_t *worker_loop(const struct worker *w);
