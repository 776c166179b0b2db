/* SPDX-License-Identifier: MIT
 *
 * Streams and events. Work is done at once, so there is nothing to wait for; what is left is who
 * may use which: a stream belongs to a context, and the default streams to the current one.
 */
#include "tests/fakecuda/fake_stream.h"

#include "proto/base/list.h"
#include "tests/fakecuda/fake_context.h"
#include "tests/fakecuda/fake_device.h"

/* A stream or an event. */
struct ticket {
	struct list link; /* streams or events */
	struct context *context;
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
	t = malloc(sizeof(*t));
	if (!t)
		return CUDA_ERROR_OUT_OF_MEMORY;
	t->context = context;
	list_insert(all, &t->link);
	*ret = t;
	return CUDA_SUCCESS;
}

static CUresult ticket_destroy(struct list *all, const void *handle)
{
	struct ticket *t = ticket_find(all, handle);

	if (!t)
		return misuse("%p, to be destroyed, is no stream or event (any more)", handle);
	list_drop(&t->link);
	free(t);
	return CUDA_SUCCESS;
}

CUresult stream_gpu(CUstream stream, unsigned int *ret)
{
	struct ticket *t;

	if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
		return context_gpu(ret);
	t = ticket_find(&streams, stream);
	if (!t)
		return misuse("%p is no stream (any more)", (void *)stream);
	if (!t->context->retained)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret = (unsigned int)device_physical(t->context->ordinal);
	return CUDA_SUCCESS;
}

static CUresult stream_wait(CUstream stream)
{
	unsigned int gpu;

	return stream_gpu(stream, &gpu);
}

static CUresult event_wait(CUevent event)
{
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	return ticket_find(&events, event) ? CUDA_SUCCESS
					   : misuse("%p is no event (any more)", (void *)event);
}

static CUresult event_record(CUevent event, CUstream stream)
{
	CUresult result = event_wait(event);

	return result ? result : stream_wait(stream);
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, ticket_new(&streams, (struct ticket **)stream));
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
	return FAKE_CALL(CALL_PLAIN, stream_wait(stream));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, event_record(event, stream));
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
	return FAKE_CALL(CALL_PLAIN, event_wait(event));
}

CUresult cuEventDestroy(CUevent event)
{
	return FAKE_CALL(CALL_GIVES_BACK, ticket_destroy(&events, event));
}
