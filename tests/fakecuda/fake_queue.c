/* SPDX-License-Identifier: MIT
 *
 * The queues of all streams. Each is done from its first operation on; one that can't be done yet
 * (a wait for a word, in memory that other processes write, too; a host function that runs) holds
 * up its own queue only.
 *
 * The driver's thread is started when an operation has to wait and ends when it has had nothing to
 * do for a while: a process that never waits on a GPU has no thread of ours.
 */
#include "tests/fakecuda/fake_queue.h"

#include "tests/fakecuda/fake_graph.h"
#include "tests/fakecuda/fake_word.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEP_NS 20000	   /* from one look at the words to the next, at first */
#define STEP_MAX_NS 200000 /* and when nothing happens */
#define IDLE_LOOKS 20	   /* with nothing queued, until the thread ends */

static struct list queues = { &queues, &queues };
static bool has_thread;

/* ---- queues ---- */

struct queue *queue_new(const struct context *context, enum queue_kind kind)
{
	static uint64_t last_id;
	struct queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->id = ++last_id;
	q->context = context;
	q->kind = kind;
	q->thread = pthread_self();
	q->refs = 1;
	list_init(&q->ops);
	list_insert(&queues, &q->link);
	return q;
}

struct queue *queue_ref(struct queue *q)
{
	q->refs++;
	return q;
}

/* Work that is queued on a destroyed stream is done all the same: see sweep(). */
void queue_unref(struct queue *q)
{
	q->refs--;
}

/* Frees the queues that nobody has and that have nothing to do. */
static void sweep(void)
{
	struct queue *q;

	list_foreach (q, &queues, link) {
		if (q->refs > 0 || !list_empty(&q->ops))
			continue;
		list_drop(&q->link);
		free(q);
	}
}

struct queue *queue_default(const struct context *context, enum queue_kind kind)
{
	struct queue *q;

	list_foreach (q, &queues, link)
		if (q->context == context && q->kind == kind &&
		    (kind == QUEUE_LEGACY || pthread_equal(q->thread, pthread_self())))
			return q;
	return queue_new(context, kind);
}

bool queue_is_idle(const struct queue *q)
{
	return list_empty(&q->ops);
}

/* ---- operations ---- */

struct op *op_new(enum op_kind kind, const void *data, size_t size)
{
	struct op *op = calloc(1, sizeof(*op) + size);

	if (!op)
		return NULL;
	list_init(&op->link);
	op->kind = kind;
	op->size = size;
	if (size)
		memcpy(op->data, data, size);
	return op;
}

struct op *op_clone(const struct op *op)
{
	struct op *clone = op_new(op->kind, op->data, op->size);

	if (!clone)
		return NULL;
	if (op->kind == OP_WORK)
		clone->run = op->run;
	else if (op->kind == OP_HOST)
		clone->host = op->host;
	else
		clone->word = op->word;
	return clone;
}

void op_free(struct op *op)
{
	if (op->kind == OP_AFTER)
		queue_unref(op->after.queue);
	list_drop(&op->link);
	free(op);
}

static bool is_ready(const struct op *op)
{
	switch (op->kind) {
	case OP_WAIT:
		return word_is_reached(&op->word);
	case OP_AFTER:
		return op->after.queue->done >= op->after.count;
	case OP_HOST:
		return false;
	default:
		return true;
	}
}

static void finish_first(struct queue *q)
{
	struct op *op = list_first(&q->ops, struct op, link);

	q->done++;
	op_free(op);
}

/* Host functions are left to the thread. */
static void pump_one(struct queue *q)
{
	while (!list_empty(&q->ops)) {
		struct op *op = list_first(&q->ops, struct op, link);

		if (!is_ready(op))
			break;
		if (op->kind == OP_WORK)
			op->run(op->data);
		else if (op->kind == OP_WRITE)
			word_write(&op->word);
		finish_first(q);
	}
}

static struct queue *first_ready(void)
{
	struct queue *q;

	list_foreach (q, &queues, link)
		if (!list_empty(&q->ops) && is_ready(list_first(&q->ops, struct op, link)))
			return q;
	return NULL;
}

void queue_pump(void)
{
	struct queue *q;

	while ((q = first_ready()))
		pump_one(q);
	sweep();
}

static bool run_host_function(void)
{
	struct queue *q;

	list_foreach (q, &queues, link) {
		struct op *op = list_empty(&q->ops) ? NULL : list_first(&q->ops, struct op, link);

		if (!op || op->kind != OP_HOST)
			continue;
		op->running = true;
		call_unlock();
		op->host.function(op->host.argument);
		call_lock();
		finish_first(q);
		return true;
	}
	return false;
}

/* ---- the driver's thread ---- */

static void pause_ns(long ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

static bool is_anything_queued(void)
{
	struct queue *q;

	list_foreach (q, &queues, link)
		if (!list_empty(&q->ops))
			return true;
	return false;
}

static void *progress(void *unused)
{
	unsigned int idle = 0;
	long step = STEP_NS;

	call_lock();
	for (;;) {
		queue_pump();
		if (run_host_function()) {
			step = STEP_NS;
			continue;
		}
		idle = is_anything_queued() ? 0 : idle + 1;
		if (idle == IDLE_LOOKS) /* after a pause, something may be queued again */
			break;
		call_unlock();
		pause_ns(step);
		call_lock();
		step = step * 5 / 4 < STEP_MAX_NS ? step * 5 / 4 : STEP_MAX_NS;
	}
	has_thread = false;
	call_unlock();
	return NULL;
}

/* The process's signals are for its own threads. */
static void start_thread(void)
{
	sigset_t all, before;
	pthread_t thread;

	if (has_thread)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	has_thread = pthread_create(&thread, NULL, progress, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!has_thread)
		abort();
	pthread_detach(thread);
}

/* ---- queueing ---- */

static void append(struct queue *q, struct op *op)
{
	q->queued++;
	list_insert(&q->ops, &op->link);
}

static CUresult append_after(struct queue *q, struct queue *other, uint64_t count)
{
	struct op *op = op_new(OP_AFTER, NULL, 0);

	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->after.queue = queue_ref(other);
	op->after.count = count;
	append(q, op);
	return CUDA_SUCCESS;
}

/* What the legacy default stream and the others of its context wait for. */
static CUresult order_by_default(struct queue *q)
{
	CUresult result = CUDA_SUCCESS;
	struct queue *other;

	if (q->kind == QUEUE_NON_BLOCKING)
		return CUDA_SUCCESS;
	list_foreach (other, &queues, link) {
		if (other == q || other->context != q->context || queue_is_idle(other) ||
		    other->kind == QUEUE_NON_BLOCKING ||
		    (q->kind == QUEUE_LEGACY) == (other->kind == QUEUE_LEGACY))
			continue;
		result = append_after(q, other, other->queued);
		if (result)
			break;
	}
	return result;
}

CUresult queue_put(struct queue *q, struct op *op)
{
	CUresult result;

	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (q->capture && !q->capture_failed)
		return graph_add(q->capture, op);
	result = q->capture ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : order_by_default(q);
	if (result) {
		op_free(op);
		return result;
	}
	append(q, op);
	queue_pump();
	if (!queue_is_idle(q))
		start_thread();
	return CUDA_SUCCESS;
}

CUresult queue_put_after(struct queue *q, struct queue *other, uint64_t count)
{
	CUresult result = CUDA_SUCCESS;

	if (other->done >= count || other == q)
		return CUDA_SUCCESS;
	result = append_after(q, other, count);
	if (result == CUDA_SUCCESS)
		start_thread();
	return result;
}

CUresult queue_put_behind_all(struct queue *q)
{
	CUresult result = order_by_default(q);

	if (!queue_is_idle(q))
		start_thread();
	return result;
}

CUresult queue_put_work(struct queue *q, work_fn *run, const void *data, size_t size)
{
	struct op *op = op_new(OP_WORK, data, size);

	if (op)
		op->run = run;
	return queue_put(q, op);
}

/* ---- waiting ---- */

void queue_wait(struct queue *q, uint64_t count)
{
	long step = STEP_NS;

	queue_ref(q);
	for (queue_pump(); q->context && q->done < count; queue_pump()) {
		call_unlock();
		pause_ns(step);
		call_lock();
		step = step * 5 / 4 < STEP_MAX_NS ? step * 5 / 4 : STEP_MAX_NS;
	}
	queue_unref(q);
}

static struct queue *first_busy(const struct context *context)
{
	struct queue *q;

	list_foreach (q, &queues, link)
		if (q->context == context && !queue_is_idle(q))
			return q;
	return NULL;
}

void queue_wait_context(const struct context *context)
{
	struct queue *q;

	while ((q = first_busy(context)))
		queue_wait(q, q->queued);
}

static void forget(struct queue *q)
{
	struct op *op;

	q->context = NULL;
	list_foreach (op, &q->ops, link) {
		if (op->running)
			continue;
		q->done++;
		op_free(op);
	}
	if (q->kind == QUEUE_LEGACY || q->kind == QUEUE_PER_THREAD)
		queue_unref(q);
}

static struct queue *first_of(const struct context *context)
{
	struct queue *q;

	list_foreach (q, &queues, link)
		if (q->context == context)
			return q;
	return NULL;
}

void queue_forget_context(const struct context *context)
{
	struct queue *q;

	while ((q = first_of(context)))
		forget(q);
	sweep();
}

void queue_each(void (*look)(struct queue *q, void *argument), void *argument)
{
	struct queue *q;

	list_foreach (q, &queues, link)
		look(q, argument);
}

bool queue_uses(uintptr_t start, size_t size)
{
	struct queue *q;
	struct op *op;

	list_foreach (q, &queues, link)
		list_foreach (op, &q->ops, link)
			if ((op->kind == OP_WAIT || op->kind == OP_WRITE) &&
			    op->word.address >= start && op->word.address < start + size)
				return true;
	return false;
}
