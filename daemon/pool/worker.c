/* SPDX-License-Identifier: MIT
 *
 * A worker: one thread and two queues, todo and done, under one lock.
 *
 * A job belongs to its submitter. It is in `todo` until the thread takes it, in no list while it
 * runs, in `done` until the loop's thread takes it, and the worker does not touch it after on_done.
 * uv_async_send() may merge wake-ups, so that one callback empties all of `done`. Signals are the
 * loop's: the thread blocks them all, else the kernel might run a handler of libuv on it in the
 * middle of a driver call.
 *
 * Most jobs take little longer than waking the thread for them and the loop at their end. So thread
 * and loop busy-poll for that a moment before they sleep; the loop serves its other events
 * meanwhile.
 */
#include "daemon/pool/worker.h"

#include "daemon/util/busy_poll.h"
#include "proto/base/thread.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#define JOB_NS 100000u	 /* a small allocation of the slowest kind, and its export */
#define PAUSE_NS 200000u /* between two jobs in a row; as KVM's halt_poll_ns */

struct worker {
	uv_async_t async;	  /* ref'd while jobs are under way */
	struct busy_poll polling; /* the loop's, for a job's end */
	unsigned handles;	  /* of libuv's, that are not closed yet */
	size_t under_way;	  /* submitted, on_done not called yet; the loop's thread alone */
	pthread_t thread;
	char name[16];	      /* a thread's name has 15 bytes: pthread_setname_np(3) */
	struct spin spin;     /* the thread's, for a job */
	atomic_bool any_todo; /* whether `todo` has a job; read without the lock */

	pthread_mutex_t lock;	  /* of all below */
	pthread_cond_t submitted; /* todo or stop has changed */
	pthread_cond_t finished;  /* done has changed */
	struct list todo, done;	  /* struct job::link, oldest first */
	uint64_t since_ns;	  /* of uv_hrtime(): when the running job started; 0: none runs */
	bool stop;
};

static struct job *pop(struct list *queue)
{
	struct job *job;

	if (list_empty(queue))
		return NULL;
	job = list_first(queue, struct job, link);
	list_drop(&job->link);
	return job;
}

static void spin_for_todo(struct worker *w)
{
	uint64_t until = uv_hrtime() + PAUSE_NS;

	if (!w->polling.allowed || !spin_may(&w->spin))
		return;
	while (!w->any_todo && uv_hrtime() < until)
		;
	if (w->any_todo)
		spin_hit(&w->spin);
	else
		spin_miss(&w->spin);
}

static struct job *next_todo(struct worker *w)
{
	struct job *job;

	pthread_mutex_lock(&w->lock);
	while (list_empty(&w->todo) && !w->stop)
		pthread_cond_wait(&w->submitted, &w->lock);
	job = pop(&w->todo);
	w->any_todo = !list_empty(&w->todo);
	w->since_ns = job ? uv_hrtime() : 0;
	pthread_mutex_unlock(&w->lock);
	return job;
}

static void *run_thread(void *arg)
{
	struct worker *w = arg;
	struct job *job;

	pthread_setname_np(pthread_self(), w->name);

	while ((job = next_todo(w))) {
		job->run(job);

		/* The job may be freed by the loop as soon as the lock is released. */
		pthread_mutex_lock(&w->lock);
		w->since_ns = 0;
		list_insert(&w->done, &job->link);
		pthread_cond_signal(&w->finished);
		pthread_mutex_unlock(&w->lock);
		uv_async_send(&w->async);
		spin_for_todo(w);
	}
	return NULL;
}

static struct job *next_done(struct worker *w)
{
	struct job *job;

	pthread_mutex_lock(&w->lock);
	job = pop(&w->done);
	pthread_mutex_unlock(&w->lock);
	return job;
}

static void deliver(struct worker *w)
{
	struct job *job;

	while ((job = next_done(w))) {
		if (--w->under_way == 0) {
			uv_unref((uv_handle_t *)&w->async);
			busy_poll_end(&w->polling);
		}
		job->on_done(job);
	}
}

static void on_async(uv_async_t *async)
{
	deliver(async->data);
}

static void wait_for_done(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	while (list_empty(&w->done))
		pthread_cond_wait(&w->finished, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static void on_closed(uv_handle_t *handle)
{
	struct worker *w = handle->data;

	if (--w->handles > 0)
		return;
	pthread_cond_destroy(&w->finished);
	pthread_cond_destroy(&w->submitted);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static void close_handles(struct worker *w)
{
	uv_close((uv_handle_t *)&w->async, on_closed);
	uv_close((uv_handle_t *)&w->polling.idle, on_closed);
}

int worker_new(uv_loop_t *loop, const char *thread_name, struct worker **ret)
{
	_cleanup_(free_ptr) struct worker *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;

	err = uv_async_init(loop, &w->async, on_async);
	if (err < 0)
		return err;

	busy_poll_init(&w->polling, loop);
	w->async.data = w->polling.idle.data = w;
	w->handles = 2;
	uv_unref((uv_handle_t *)&w->async);
	snprintf(w->name, sizeof(w->name), "%s", thread_name);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->submitted, NULL);
	pthread_cond_init(&w->finished, NULL);
	list_init(&w->todo);
	list_init(&w->done);

	err = thread_start(&w->thread, run_thread, w);
	if (err < 0) {
		close_handles(take_ptr(w));
		return err;
	}

	*ret = take_ptr(w);
	return 0;
}

struct worker *worker_free(struct worker *w)
{
	if (!w)
		return NULL;

	/* An on_done may submit more. */
	while (w->under_way > 0) {
		wait_for_done(w);
		deliver(w);
	}

	pthread_mutex_lock(&w->lock);
	w->stop = true;
	w->any_todo = true; /* ends spin_for_todo() */
	pthread_cond_signal(&w->submitted);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);

	close_handles(w);
	return NULL;
}

void worker_submit(struct worker *w, struct job *job)
{
	assert(job->run && job->on_done);

	if (w->under_way++ == 0)
		uv_ref((uv_handle_t *)&w->async);

	pthread_mutex_lock(&w->lock);
	list_insert(&w->todo, &job->link);
	w->any_todo = true;
	pthread_cond_signal(&w->submitted);
	pthread_mutex_unlock(&w->lock);
	busy_poll_for(&w->polling, JOB_NS);
}

uint64_t worker_busy_ns(struct worker *w)
{
	uint64_t since;

	pthread_mutex_lock(&w->lock);
	since = w->since_ns;
	pthread_mutex_unlock(&w->lock);
	return since ? uv_hrtime() - since : 0;
}

uv_loop_t *worker_loop(const struct worker *w)
{
	return w->async.loop;
}
