/* SPDX-License-Identifier: MIT
 *
 * Waits and writes of words, queued on a CUDA stream: cuStreamWaitValue64(), cuStreamWriteValue64()
 * and, for several at once, cuStreamBatchMemOp(). A write is a barrier, too (without
 * CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER): when another GPU or a CPU sees the word, it sees what
 * was written before.
 *
 * A page of words is registered for all contexts (PORTABLE). One that this process has mapped for
 * reading is registered READ_ONLY: waits work, and a write would end the process's context, and
 * under MPS those of others.
 */
#include "client/lib/map/order.h"

#include "client/lib/base/error.h"
#include "client/lib/map/cuda.h"
#include "proto/base/own.h"

#include <string.h>

static int check_attribute(int device, CUdevice_attribute attribute, const char *what)
{
	int has = 0;
	int r = cuda_try(cuDeviceGetAttribute, &has, attribute, device);

	if (r < 0 || has)
		return r;
	return error_set(ENOTSUP, "GPU %d has no %s, which streams need", device, what);
}

int order_check(int device)
{
	int r = cuda_start();

	if (r == 0)
		r = cuda_check_streams();
	if (r == 0)
		r = check_attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
				    "64-bit stream memory operations");
	if (r == 0)
		r = check_attribute(device, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
				    "read-only access to host memory");
	return r;
}

/* ---- pages ---- */

int order_register(struct order_page *p, int device)
{
	unsigned int flags = p->writable ? 0 : CU_MEMHOSTREGISTER_READ_ONLY;
	int r;

	if (p->address)
		return 0;
	r = cuda_start();
	if (r == 0)
		r = cuda_check_streams();
	return r < 0 ? r : context_pin(device, p->host, p->bytes, flags, &p->address);
}

int order_unregister(struct order_page *p, int device)
{
	if (!p->address)
		return 0;
	if (context_pin(device, p->host, 0, 0, NULL) < 0)
		return -EIO;
	p->address = 0;
	return 0;
}

/* ---- operations ---- */

static void fill_params(const struct order_op *ops, size_t n, CUstreamBatchMemOpParams *ret)
{
	memset(ret, 0, n * sizeof(*ret));
	for (size_t i = 0; i < n; i++) {
		ret[i].operation = ops[i].write ? CU_STREAM_MEM_OP_WRITE_VALUE_64
						: CU_STREAM_MEM_OP_WAIT_VALUE_64;
		if (ops[i].write) {
			ret[i].writeValue.address = ops[i].address;
			ret[i].writeValue.value64 = ops[i].value;
			ret[i].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
		} else {
			ret[i].waitValue.address = ops[i].address;
			ret[i].waitValue.value64 = ops[i].value;
			ret[i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
		}
	}
}

static int enqueue_batch(CUstream stream, const struct order_op *ops, size_t n)
{
	CUstreamBatchMemOpParams params[ORDER_OPS_MAX];

	fill_params(ops, n, params);
	return cuda_try(cuStreamBatchMemOp, stream, (unsigned int)n, params, 0);
}

/* A batch of one costs more than the call for one. */
static int enqueue(CUstream stream, const struct order_op *ops, size_t n)
{
	if (n > 1)
		return enqueue_batch(stream, ops, n);
	if (ops->write)
		return cuda_try(cuStreamWriteValue64, stream, ops->address, ops->value,
				CU_STREAM_WRITE_VALUE_DEFAULT);
	return cuda_try(cuStreamWaitValue64, stream, ops->address, ops->value,
			CU_STREAM_WAIT_VALUE_GEQ);
}

uint64_t order_stream_id(int device, void *stream)
{
	_cleanup_(map_leave) struct map_entered entered;
	unsigned long long id = 0;

	if (map_enter(device, &entered) == 0 && cuda_check_streams() == 0 && cuda.cuStreamGetId &&
	    cuda.cuStreamGetId(stream, &id) != CUDA_SUCCESS)
		id = 0;
	return id;
}

static int begin_operations(int device, size_t n, struct map_entered *ret)
{
	int r = map_enter(device, ret);

	if (r == 0)
		r = cuda_check_streams();
	if (r == 0 && n > ORDER_OPS_MAX)
		r = error_set(EINVAL, "%zu operations at a time, at most %u", n, ORDER_OPS_MAX);
	return r;
}

int order_check_stream(int device, void *stream)
{
	_cleanup_(map_leave) struct map_entered entered = { 0 };
	CUcontext ctx = NULL, current = NULL;
	CUdevice on = device;
	int r;

	if (cuda_devices() == 1)
		return 0;
	r = begin_operations(device, 0, &entered);
	if (r == 0)
		r = cuda_try(cuStreamGetCtx, stream, &ctx);
	if (r < 0 || (cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == ctx))
		return r;
	r = cuda_try(cuCtxPushCurrent, ctx);
	if (r < 0)
		return r;
	r = cuda_try(cuCtxGetDevice, &on);
	cuda.cuCtxPopCurrent(&ctx);
	if (r < 0 || on == device)
		return r;
	return error_set(EINVAL,
			 "the CUDA stream is of GPU %d, and the frames are mapped for GPU %d: open "
			 "them with device %d, or use a CUDA stream of GPU %d",
			 on, device, on, device);
}

int order_enqueue(int device, void *stream, const struct order_op *ops, size_t n)
{
	_cleanup_(map_leave) struct map_entered entered = { 0 };
	int r;

	if (n == 0)
		return 0;
	r = begin_operations(device, n, &entered);
	return r < 0 ? r : enqueue(stream, ops, n);
}

/* ---- in a captured graph ---- */

/* The node that was captured last. */
static int last_node(CUstream stream, CUgraphNode *ret)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUgraphNode *last = NULL;
	CUgraphNodeType type;
	size_t n = 0;
	int r = cuda_check("cuStreamGetCaptureInfo",
			   cuda.cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &last, &n));

	if (r < 0)
		return r;
	if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || n != 1)
		return error_set(EINVAL, "the CUDA stream does not capture a graph");
	r = cuda_try(cuGraphNodeGetType, last[0], &type);
	if (r == 0 && type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
		r = error_set(EIO, "the driver captured the frame's words as another kind of node");
	if (r == 0)
		*ret = last[0];
	return r;
}

/* Operations on a stream that does not capture would be done at once. */
static int check_captures(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	int r = cuda_check("cuStreamGetCaptureInfo",
			   cuda.cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, NULL, NULL));

	if (r < 0 || status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return r;
	return error_set(EINVAL, status == CU_STREAM_CAPTURE_STATUS_NONE
					 ? "the CUDA stream does not capture a graph: begin with "
					   "cuStreamBeginCapture()"
					 : "the CUDA stream's capture has failed");
}

int order_capture(int device, void *stream, const struct order_op *ops, size_t n, void **ret_node)
{
	_cleanup_(map_leave) struct map_entered entered;
	CUgraphNode node = NULL;
	int r = begin_operations(device, n, &entered);

	if (r == 0)
		r = check_captures(stream);
	if (r == 0)
		r = enqueue_batch(stream, ops, n);
	if (r == 0)
		r = last_node(stream, &node);
	if (r == 0)
		*ret_node = node;
	return r;
}

int order_set_node(int device, void *graph_exec, void *node, const struct order_op *ops, size_t n)
{
	CUstreamBatchMemOpParams params[ORDER_OPS_MAX];
	CUDA_BATCH_MEM_OP_NODE_PARAMS node_params;
	_cleanup_(map_leave) struct map_entered entered;
	int r = begin_operations(device, n, &entered);

	/* The node's context, which must stay as it is, comes with its parameters. */
	if (r == 0)
		r = cuda_try(cuGraphBatchMemOpNodeGetParams, node, &node_params);
	if (r == 0) {
		fill_params(ops, n, params);
		node_params.count = (unsigned int)n;
		node_params.paramArray = params;
		r = cuda_try(cuGraphExecBatchMemOpNodeSetParams, graph_exec, node, &node_params);
	}
	return r;
}
