/* SPDX-License-Identifier: MIT
 *
 * A context is only a device and a count here. A primary one is a static member of a table and has
 * the same address when it is retained again, as with the driver. One from cuCtxCreate stays
 * allocated after its end, so that a thread which still has it current gets CONTEXT_IS_DESTROYED
 * and reads no freed memory.
 */
#include "tests/fakecuda/fake_context.h"

#include "proto/base/own.h"
#include "tests/fakecuda/fake_device.h"
#include "tests/fakecuda/fake_queue.h"

#define DEPTH 32

static struct context primaries[GPUS_MAX]; /* by ordinal */
static unsigned long created;		   /* alive, of cuCtxCreate */

static _Thread_local struct {
	struct context *of[DEPTH];
	int n;
} stack;

CUresult context_current(struct context **ret)
{
	struct context *c = stack.n ? stack.of[stack.n - 1] : NULL;

	if (!c)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!c->retained)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret = c;
	return CUDA_SUCCESS;
}

CUresult context_gpu(unsigned int *ret)
{
	struct context *c;
	CUresult result = context_current(&c);

	if (result == CUDA_SUCCESS)
		*ret = (unsigned int)device_physical(c->ordinal);
	return result;
}

unsigned long context_alive(void)
{
	unsigned long n = created;

	for (int i = 0; i < GPUS_MAX; i++)
		n += primaries[i].retained;
	return n;
}

static CUresult primary_retain(CUcontext *ret, CUdevice dev)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(dev) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	primaries[dev].ordinal = dev;
	primaries[dev].retained++;
	*ret = (CUcontext)&primaries[dev];
	return CUDA_SUCCESS;
}

static CUresult primary_release(CUdevice dev)
{
	if (device_physical(dev) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!primaries[dev].retained)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--primaries[dev].retained == 0)
		queue_forget_context(&primaries[dev]);
	return CUDA_SUCCESS;
}

static CUresult primary_state(CUdevice dev, unsigned int *flags, int *active)
{
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_physical(dev) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = 0;
	*active = primaries[dev].retained > 0;
	return CUDA_SUCCESS;
}

static CUresult context_push(CUcontext context)
{
	if (!context || stack.n == DEPTH)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.of[stack.n++] = (struct context *)context;
	return CUDA_SUCCESS;
}

static CUresult context_pop(CUcontext *ret)
{
	if (!stack.n)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.n--;
	if (ret)
		*ret = (CUcontext)stack.of[stack.n];
	return CUDA_SUCCESS;
}

/* The top of the stack is replaced; NULL pops it. */
static CUresult context_set(CUcontext context)
{
	if (stack.n)
		stack.n--;
	return context ? context_push(context) : CUDA_SUCCESS;
}

/* Returns a destroyed context, too, as the driver does. */
static CUresult context_get(CUcontext *ret)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = stack.n ? (CUcontext)stack.of[stack.n - 1] : NULL;
	return CUDA_SUCCESS;
}

static CUresult context_device(CUdevice *ret)
{
	struct context *c;
	CUresult result = context_current(&c);

	if (result == CUDA_SUCCESS)
		*ret = c->ordinal;
	return result;
}

static CUresult context_synchronize(void)
{
	struct context *c;
	CUresult result = context_current(&c);

	if (result == CUDA_SUCCESS)
		queue_wait_context(c);
	return result;
}

static CUresult context_new(CUcontext *ret, CUdevice dev)
{
	struct context *c;

	if (device_physical(dev) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	c = calloc(1, sizeof(*c));
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->ordinal = dev;
	c->retained = 1;
	created++;
	*ret = (CUcontext)c;
	return context_push(*ret);
}

static CUresult context_destroy(CUcontext context)
{
	struct context *c = (struct context *)context;

	if (!c || !c->retained)
		return CUDA_ERROR_INVALID_CONTEXT;
	c->retained = 0;
	queue_forget_context(c);
	created--;
	if (stack.n && stack.of[stack.n - 1] == c)
		stack.n--;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
	return FAKE_CALL(CALL_PLAIN, primary_retain(ctx, dev));
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return FAKE_CALL(CALL_GIVES_BACK, primary_release(dev));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	return FAKE_CALL(CALL_PLAIN, primary_state(dev, flags, active));
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	return FAKE_CALL(CALL_PLAIN, context_get(ctx));
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	return FAKE_CALL(CALL_PLAIN, context_set(ctx));
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	return FAKE_CALL(CALL_PLAIN, context_push(ctx));
}

CUresult cuCtxPopCurrent(CUcontext *ctx)
{
	return FAKE_CALL(CALL_GIVES_BACK, context_pop(ctx));
}

CUresult cuCtxGetDevice(CUdevice *dev)
{
	return FAKE_CALL(CALL_PLAIN, context_device(dev));
}

CUresult cuCtxSynchronize(void)
{
	return FAKE_CALL(CALL_PLAIN, context_synchronize());
}

CUresult cuCtxCreate(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
	return FAKE_CALL(CALL_PLAIN, context_new(ctx, dev));
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	return FAKE_CALL(CALL_GIVES_BACK, context_destroy(ctx));
}

#undef cuDevicePrimaryCtxRelease
FAKE_ALIAS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);
