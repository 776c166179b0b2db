/* SPDX-License-Identifier: MIT
 *
 * The kernels of GPU tests: those that write or read memory for ever, and those that fill and check
 * frames. The fake driver has none: there the CPU plays those of graphs.
 */
#pragma once

#include "tests/gpu/driver.h"

#include <stdint.h>

/* Loads all of them; true without any over the fake driver. */
bool kernels_load(struct driver *d);

/* One thread stores `value` at `address`; waits for it. */
CUresult kernel_store(const struct driver *d, CUdeviceptr address, unsigned int value);

/* Never ends: stores `value` in each of n words, over and over. The launch returns at once. */
CUresult kernel_scribble(const struct driver *d, CUdeviceptr words, uint64_t n, unsigned int value);

/* What a kernel tells of itself, in host memory that is registered with the driver. */
struct witness {
	_Atomic uint32_t seen;	  /* not 0: a word that the frame does not have */
	_Atomic uint32_t started; /* 1: the kernel runs */
	uint64_t never;		  /* nobody changes it */
};

/* Never ends: reads n words over and over, and notes each that is not `value` at the device address
 * of a struct witness. */
CUresult kernel_watch(const struct driver *d, CUstream stream, CUdeviceptr words, uint64_t n,
		      unsigned int value, CUdeviceptr witness);

/* Work of a CUDA graph, in device memory, on a frame whose address is in `*at`: numbers its
 * launches, and fills the frame's words with the number, or counts the frames with others. */
struct graph_state {
	uint64_t at;
	uint32_t launches, bad;
	uint32_t words; /* of a frame */
	uint32_t reserved;
};
CUresult kernel_fill_at(const struct driver *d, CUstream stream, CUdeviceptr state);
CUresult kernel_check_at(const struct driver *d, CUstream stream, CUdeviceptr state);
