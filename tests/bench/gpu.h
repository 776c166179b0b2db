/* SPDX-License-Identifier: MIT
 *
 * The driver's calls that the floor makes, by a table of its own without any code of gpushm. A call
 * that fails ends the process with a message. Without the CUDA Toolkit's headers there is no GPU.
 */
#pragma once

#include "proto/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* Loads and starts the driver, and makes GPU 0's primary context the thread's. False: no GPU. */
bool gpu_open(void);
void gpu_close(void);

/* "NVIDIA H200", or the stand-in's name; is_fake: it is the tests' own libcuda. */
const char *gpu_name(void);
bool gpu_is_fake(void);

/* ---- the process that has the memory ---- */

/* Returns the fd of a new allocation; only the fd keeps the memory. */
int gpu_make_vmm(uint64_t bytes);

/* A pool, its fd, and the record of a pointer in it that stays. */
int gpu_hold_mempool(uint64_t bytes, unsigned char record[RECORD_BYTES]);
/* Another pointer of the pool, and its end. */
void gpu_make_pointer(uint64_t bytes, unsigned char record[RECORD_BYTES]);
void gpu_free_pointer(void);

/* ---- the process that maps it ---- */

/* Imports, reserves, maps, sets access, and releases the handle. */
uint64_t gpu_map(int fd, uint64_t bytes, bool write);
void gpu_unmap(uint64_t ptr, uint64_t bytes);

void gpu_import_pool(int fd);
uint64_t gpu_import_pointer(const unsigned char record[RECORD_BYTES]);
/* Free and wait. */
void gpu_release_pointer(uint64_t ptr);

/* ---- work on it ---- */

/* Plain memory, as cuMemAlloc gives it. */
uint64_t gpu_alloc(uint64_t bytes);
void gpu_free(uint64_t ptr);

/* A kernel reads and writes all of the memory once; waits for it. False: the stand-in has no
 * kernels. */
bool gpu_sweep(uint64_t ptr, uint64_t bytes);
