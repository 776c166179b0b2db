/* SPDX-License-Identifier: MIT
 *
 * The driver calls that tests of streams make themselves, and the kernels that read and fill
 * frames. The fake driver has no kernels: there the CPU plays them.
 */
#pragma once

#include "tests/gpu/driver.h"

#include <stdint.h>

struct stream_driver {
	struct driver base;
	CUresult (*stream_create)(CUstream *stream, unsigned int flags);
	CUresult (*stream_destroy)(CUstream stream);
	CUresult (*stream_query)(CUstream stream);
	CUresult (*wait_value)(CUstream stream, CUdeviceptr word, cuuint64_t value,
			       unsigned int flags);
	CUresult (*memset_d32_async)(CUdeviceptr ptr, unsigned int value, size_t n,
				     CUstream stream);
	CUresult (*memcpy_dtoh_async)(void *dst, CUdeviceptr src, size_t n, CUstream stream);
	CUresult (*launch_host_func)(CUstream stream, CUhostFn function, void *argument);
	CUresult (*begin_capture)(CUstream stream, CUstreamCaptureMode mode);
	CUresult (*end_capture)(CUstream stream, CUgraph *graph);
	CUresult (*graph_instantiate)(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
	CUresult (*graph_launch)(CUgraphExec exec, CUstream stream);
	CUresult (*graph_exec_destroy)(CUgraphExec exec);
	CUresult (*graph_destroy)(CUgraph graph);
	CUresult (*host_pointer)(CUdeviceptr *ret, void *host, unsigned int flags);

	CUfunction watch, fill_at, check_at; /* NULL over the fake driver */
};

/* As driver_open(); loads the kernels. */
bool stream_driver_open(struct stream_driver *d);

/* What a kernel tells of itself, in host memory that is registered with the driver. */
struct witness {
	_Atomic uint32_t seen;	  /* not 0: a word that the frame does not have */
	_Atomic uint32_t started; /* 1: the kernel runs */
	uint64_t never;		  /* nobody changes it */
};

/* A kernel that never ends: it reads n words over and over, and notes each that is not `value` at
 * the device address of a struct witness. */
CUresult stream_driver_watch(const struct stream_driver *d, CUstream stream, CUdeviceptr words,
			     uint64_t n, unsigned int value, CUdeviceptr witness);

/* Work of a CUDA graph, in device memory, on a frame whose address is in `*at`: numbers its
 * launches, and fills the frame's words with the number, or counts the frames with others. */
struct graph_state {
	uint64_t at;
	uint32_t launches, bad;
	uint32_t words; /* of a frame */
	uint32_t reserved;
};
CUresult stream_driver_fill_at(const struct stream_driver *d, CUstream stream, CUdeviceptr state);
CUresult stream_driver_check_at(const struct stream_driver *d, CUstream stream, CUdeviceptr state);
