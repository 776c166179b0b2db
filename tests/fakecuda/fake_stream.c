/* SPDX-License-Identifier: MIT
 *
 * Streams and events. A stream is a handle of a queue and belongs to a context; the default streams
 * belong to the current one. An event is a place in a queue.
 */
#include "tests/fakecuda/fake_stream.h"

#include "tests/fakecuda/fake_context.h"
#include "tests/fakecuda/fake_device.h"

/* A stream or an event. */
struct ticket {
	struct list link; /* streams or events */
	struct context *context;
	struct queue *queue; /* a reference; an event's: NULL until it is recorded */
	uint64_t count;	     /* an event: done when the queue has done that many */
};

static struct list streams = { &streams, &streams }, events = { &events, &events };

static struct ticket *ticket_find(struct list *all, const void *handle)
{
	struct ticket *t;

	list_foreach (t, all, link)
		if (t == handle)
			return t;
	return NULL;
}

static CUresult ticket_new(struct list *all, struct ticket **ret)
{
	struct context *context;
	CUresult result = context_current(&context);
	struct ticket *t;

	if (result)
		return result;
	t = calloc(1, sizeof(*t));
	if (!t)
		return CUDA_ERROR_OUT_OF_MEMORY;
	t->context = context;
	list_insert(all, &t->link);
	*ret = t;
	return CUDA_SUCCESS;
}

static void ticket_free(struct ticket *t)
{
	if (t->queue)
		queue_unref(t->queue);
	list_drop(&t->link);
	free(t);
}

static CUresult ticket_destroy(struct list *all, const void *handle)
{
	struct ticket *t = ticket_find(all, handle);

	if (!t)
		return misuse("%p, to be destroyed, is no stream or event (any more)", handle);
	ticket_free(t);
	return CUDA_SUCCESS;
}

/* ---- streams ---- */

unsigned int stream_context_gpu(const struct context *context)
{
	return (unsigned int)device_physical(context->ordinal);
}

static CUresult default_queue(enum queue_kind kind, struct queue **ret, unsigned int *ret_gpu)
{
	struct context *context;
	CUresult result = context_current(&context);

	if (result)
		return result;
	*ret = queue_default(context, kind);
	*ret_gpu = stream_context_gpu(context);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stream_queue(CUstream stream, struct queue **ret, unsigned int *ret_gpu)
{
	struct ticket *t;

	if (!stream || stream == CU_STREAM_LEGACY)
		return default_queue(QUEUE_LEGACY, ret, ret_gpu);
	if (stream == CU_STREAM_PER_THREAD)
		return default_queue(QUEUE_PER_THREAD, ret, ret_gpu);
	t = ticket_find(&streams, stream);
	if (!t)
		return misuse("%p is no stream (any more)", (void *)stream);
	if (!t->context->retained || !t->queue->context)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret = t->queue;
	*ret_gpu = stream_context_gpu(t->context);
	return CUDA_SUCCESS;
}

CUresult stream_gpu(CUstream stream, unsigned int *ret)
{
	struct queue *q;

	return stream_queue(stream, &q, ret);
}

static CUresult stream_new(CUstream *ret, unsigned int flags)
{
	struct ticket *t;
	CUresult result = ticket_new(&streams, &t);

	if (result)
		return result;
	t->queue = queue_new(t->context,
			     flags & CU_STREAM_NON_BLOCKING ? QUEUE_NON_BLOCKING : QUEUE_BLOCKING);
	if (!t->queue) {
		ticket_free(t);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = (CUstream)t;
	return CUDA_SUCCESS;
}

/* A stream that captures is not to be waited for: its capture has failed. */
static CUresult check_not_captured(struct queue *q)
{
	if (!q->capture)
		return CUDA_SUCCESS;
	q->capture_failed = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUresult stream_wait(CUstream stream)
{
	unsigned int gpu;
	struct queue *q;
	CUresult result = stream_queue(stream, &q, &gpu);

	if (result == CUDA_SUCCESS)
		result = check_not_captured(q);
	/* The legacy default stream is behind the others. */
	if (result == CUDA_SUCCESS && q->kind == QUEUE_LEGACY)
		result = queue_put_behind_all(q);
	if (result == CUDA_SUCCESS)
		queue_wait(q, q->queued);
	return result;
}

static CUresult stream_query(CUstream stream)
{
	unsigned int gpu;
	struct queue *q;
	CUresult result = stream_queue(stream, &q, &gpu);

	if (result == CUDA_SUCCESS)
		result = check_not_captured(q);
	if (result)
		return result;
	queue_pump();
	return queue_is_idle(q) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult stream_id(CUstream stream, unsigned long long *ret)
{
	unsigned int gpu;
	struct queue *q;
	CUresult result = stream_queue(stream, &q, &gpu);

	if (result == CUDA_SUCCESS)
		*ret = q->id;
	return result;
}

static CUresult stream_context(CUstream stream, CUcontext *ret)
{
	unsigned int gpu;
	struct queue *q;
	CUresult result = stream_queue(stream, &q, &gpu);

	if (result == CUDA_SUCCESS)
		*ret = (CUcontext)q->context;
	return result;
}

static CUresult host_function(CUstream stream, CUhostFn function, void *argument)
{
	unsigned int gpu;
	struct queue *q;
	CUresult result = stream_queue(stream, &q, &gpu);
	struct op *op;

	if (result || !function)
		return result ? result : CUDA_ERROR_INVALID_VALUE;
	op = op_new(OP_HOST, NULL, 0);
	if (op) {
		op->host.function = function;
		op->host.argument = argument;
	}
	return queue_put(q, op);
}

/* ---- events ---- */

static CUresult event_find(CUevent event, struct ticket **ret)
{
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret = ticket_find(&events, event);
	return *ret ? CUDA_SUCCESS : misuse("%p is no event (any more)", (void *)event);
}

static CUresult event_wait(CUevent event)
{
	struct ticket *t;
	CUresult result = event_find(event, &t);

	if (result == CUDA_SUCCESS && t->queue)
		queue_wait(t->queue, t->count);
	return result;
}

static CUresult event_query(CUevent event)
{
	struct ticket *t;
	CUresult result = event_find(event, &t);

	if (result)
		return result;
	queue_pump();
	return t->queue && t->queue->done < t->count ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
	unsigned int gpu;
	struct ticket *t;
	struct queue *q;
	CUresult result = event_find(event, &t);

	if (result == CUDA_SUCCESS)
		result = stream_queue(stream, &q, &gpu);
	if (result == CUDA_SUCCESS)
		result = check_not_captured(q);
	if (result == CUDA_SUCCESS && q->kind == QUEUE_LEGACY)
		result = queue_put_behind_all(q);
	if (result)
		return result;
	if (t->queue)
		queue_unref(t->queue);
	t->queue = queue_ref(q);
	t->count = q->queued;
	return CUDA_SUCCESS;
}

static CUresult stream_wait_event(CUstream stream, CUevent event)
{
	unsigned int gpu;
	struct ticket *t;
	struct queue *q;
	CUresult result = event_find(event, &t);

	if (result == CUDA_SUCCESS)
		result = stream_queue(stream, &q, &gpu);
	if (result == CUDA_SUCCESS)
		result = check_not_captured(q);
	if (result || !t->queue)
		return result;
	return queue_put_after(q, t->queue, t->count);
}

/* ---- the driver's calls ---- */

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, stream_new(stream, flags));
}

CUresult cuStreamDestroy(CUstream stream)
{
	return FAKE_CALL(CALL_GIVES_BACK, ticket_destroy(&streams, stream));
}

CUresult cuStreamSynchronize(CUstream stream)
{
	return FAKE_CALL(CALL_PLAIN, stream_wait(stream));
}

CUresult cuStreamQuery(CUstream stream)
{
	return FAKE_CALL(CALL_PLAIN, stream_query(stream));
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
	return FAKE_CALL(CALL_PLAIN, stream_id(stream, id));
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
	return FAKE_CALL(CALL_PLAIN, stream_context(stream, context));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, stream_wait_event(stream, event));
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument)
{
	return FAKE_CALL(CALL_PLAIN, host_function(stream, function, argument));
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, ticket_new(&events, (struct ticket **)event));
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return FAKE_CALL(CALL_PLAIN, event_record(event, stream));
}

CUresult cuEventSynchronize(CUevent event)
{
	return FAKE_CALL(CALL_PLAIN, event_wait(event));
}

CUresult cuEventQuery(CUevent event)
{
	return FAKE_CALL(CALL_PLAIN, event_query(event));
}

CUresult cuEventDestroy(CUevent event)
{
	return FAKE_CALL(CALL_GIVES_BACK, ticket_destroy(&events, event));
}
