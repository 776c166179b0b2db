/* SPDX-License-Identifier: MIT
 *
 * The driver calls of the daemon, found at run time in libcuda.so.1, so that the daemon also runs
 * without a driver. One table, loaded once; no other file of the daemon names a symbol.
 */
#pragma once

#include "daemon/config/pool_config.h"
#include "proto/base/clock.h"
#include "proto/base/cuda_table.h"
#include "proto/code.h"

#include <stdbool.h>

/* clang-format off */
#define CUDA_CALLS(X) \
	X(cuInit) X(cuGetErrorName) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) \
	X(cuDeviceGetUuid_v2) X(cuDeviceGetPCIBusId) X(cuDeviceTotalMem) X(cuDeviceGetAttribute) \
	X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) \
	X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease) \
	X(cuMemImportFromShareableHandle) X(cuMemExportToShareableHandle) X(cuMemPoolCreate) \
	X(cuMemPoolDestroy) X(cuMemPoolSetAttribute) X(cuMemPoolExportToShareableHandle) \
	X(cuMemPoolImportFromShareableHandle) X(cuMemPoolExportPointer) \
	X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync) X(cuMemsetD8Async) X(cuStreamCreate) \
	X(cuStreamDestroy) X(cuStreamSynchronize)
/* clang-format on */

struct cuda {
	CUDA_CALLS(CUDA_MEMBER)
};

/* The table; of use once cuda_load() has returned true. */
extern struct cuda cuda_driver;

/* Loads it on the first call (thread-safe). False, and `why` says so: there is no libcuda.so.1, or
 * the driver is too old and lacks a symbol. */
bool cuda_load(char *why, size_t size);

/* CUDA_cuMemCreate; of a call that has a version, with that. */
#define CUDA_INDEX(call) CUDA_INDEX_OF(call)
#define CUDA_INDEX_OF(symbol) CUDA_##symbol
#define CUDA_NEXT_INDEX(call) CUDA_INDEX(call),
enum cuda_index { CUDA_CALLS(CUDA_NEXT_INDEX) CUDA_COUNT };

/* cuda_call(cuMemCreate, &handle, bytes, &prop, 0): calls the function and counts the call. */
void cuda_count(enum cuda_index call, CUresult result, uint64_t ns);
#define cuda_call(call, ...)                                                          \
	({                                                                            \
		uint64_t since_ = clock_monotonic_ns();                               \
		CUresult result_ = cuda_driver.call(__VA_ARGS__);                     \
		cuda_count(CUDA_INDEX(call), result_, clock_monotonic_ns() - since_); \
		result_;                                                              \
	})

/* 0 for CUDA_SUCCESS. Else writes "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY" to *f, with
 * CODE_POOL_FULL for out of memory, CODE_POOL_FAILED if the device is lost, or CODE_DRIVER; and
 * returns -errno. */
int cuda_fault(struct fault *f, enum cuda_index call, CUresult result);

/* cuda_try(f, cuMemCreate, &handle, bytes, &prop, 0): calls the function, and checks the result. */
#define cuda_try(f, call, ...) cuda_fault(f, CUDA_INDEX(call), cuda_call(call, __VA_ARGS__))

/* Whether the result of an import may mean that the handle's memory is gone; other results say
 * nothing about the handle. */
bool cuda_refuses_handle(CUresult result);

/* For an import that shows whether FACT_kept of proto/facts.h holds. If the handle is refused, *f
 * names the fact, with CODE_DRIVER; else as cuda_fault(). */
int cuda_fault_kept(struct fault *f, enum pool_kind kind, enum cuda_index call, CUresult result);

/* A call that cleans up, after a failed one or at the end: logs its failure. */
void cuda_undone(enum cuda_index call, CUresult result);
#define cuda_undo(call, ...) cuda_undone(CUDA_INDEX(call), cuda_call(call, __VA_ARGS__))
