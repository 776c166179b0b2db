/* SPDX-License-Identifier: MIT
 *
 * The driver's calls of the comparison, in a table of its own. A driver that lacks some of them,
 * like the tests' stand-in, does without the ways that need them.
 */
#pragma once

#include <cuda.h>
#include <stdbool.h>

#include "proto/base/libcuda.h"

#define GPU_CALLS(X)                               \
	X(init, cuInit)                            \
	X(device_get_name, cuDeviceGetName)        \
	X(ctx_retain, cuDevicePrimaryCtxRetain)    \
	X(ctx_set_current, cuCtxSetCurrent)        \
	X(stream_create, cuStreamCreate)           \
	X(stream_synchronize, cuStreamSynchronize) \
	X(mem_alloc, cuMemAlloc_v2)                \
	X(host_alloc, cuMemHostAlloc)              \
	X(memset_d32_async, cuMemsetD32Async)      \
	X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2) \
	X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2)

#define GPU_WORD_CALLS(X)                             \
	X(host_register, cuMemHostRegister_v2)        \
	X(host_pointer, cuMemHostGetDevicePointer_v2) \
	X(wait_value, cuStreamWaitValue64_v2)         \
	X(write_value, cuStreamWriteValue64_v2)       \
	X(batch, cuStreamBatchMemOp_v2)

#define GPU_EVENT_CALLS(X)                      \
	X(event_create, cuEventCreate)          \
	X(event_destroy, cuEventDestroy_v2)     \
	X(event_record, cuEventRecord)          \
	X(stream_wait_event, cuStreamWaitEvent) \
	X(ipc_get_event, cuIpcGetEventHandle)   \
	X(ipc_open_event, cuIpcOpenEventHandle)

#define GPU_KERNEL_CALLS(X) X(launch, cuLaunchKernel)

struct cuda {
	GPU_CALLS(LIBCUDA_MEMBER)
	GPU_WORD_CALLS(LIBCUDA_MEMBER)
	GPU_EVENT_CALLS(LIBCUDA_MEMBER)
	GPU_KERNEL_CALLS(LIBCUDA_MEMBER)
};

struct gpu {
	struct cuda call;
	bool words, events, kernels; /* whether the driver has those calls */
	char name[64];
	CUstream stream;
	CUdeviceptr scratch; /* GPU_SCRATCH bytes */
	unsigned *result;    /* pinned memory of the host */
	CUdeviceptr board;   /* the board's words, for the GPU */
};
#define GPU_SCRATCH (32u << 20)

extern struct gpu gpu;

/* The GPU's name; NULL: there is no driver or no GPU. Makes no context. */
const char *gpu_probe(void);
/* Makes the context, the stream and the memory. Registers `words`. A failure ends the process. */
void gpu_start(void *words, size_t bytes);

/* Ends the process with a text, unless the call succeeded. */
#define GPU_MUST(call) gpu_must(#call, call)
void gpu_must(const char *call, CUresult r);

/* Queue that the word is written, or waited for until it is at least `value`. */
void gpu_write(CUdeviceptr word, uint64_t value);
void gpu_wait(CUdeviceptr word, uint64_t value);
