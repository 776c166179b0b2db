/* SPDX-License-Identifier: MIT
 *
 * The driver's calls that the floor makes, by its own table: none of gpushm's code is in the way. A
 * call that fails ends the process with a word. Without the CUDA Toolkit's headers there is no GPU.
 */
#ifndef GPUSHM_TESTS_BENCH_GPU_H
#define GPUSHM_TESTS_BENCH_GPU_H

#include "proto/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* Loads and starts the driver, and makes GPU 0's primary context the thread's. False: no GPU. */
bool gpu_open(void);
void gpu_close(void);

/* "NVIDIA H200", or the stand-in's name; is_fake: it is the tests' own libcuda. */
const char *gpu_name(void);
bool gpu_is_fake(void);

/* ---- who has the memory ---- */

/* The fd of a new allocation; it alone keeps the memory. */
int gpu_make_vmm(uint64_t bytes);

/* A pool, its fd, and the record of a pointer in it that stays. */
int gpu_hold_mempool(uint64_t bytes, unsigned char record[RECORD_BYTES]);
/* Another pointer of the pool, and its end. */
void gpu_make_pointer(uint64_t bytes, unsigned char record[RECORD_BYTES]);
void gpu_free_pointer(void);

/* ---- who maps it ---- */

/* Import, reserve, map, set access; the handle goes. */
uint64_t gpu_map(int fd, uint64_t bytes, bool write);
void gpu_unmap(uint64_t ptr, uint64_t bytes);

void gpu_import_pool(int fd);
uint64_t gpu_import_pointer(const unsigned char record[RECORD_BYTES]);
/* Free and wait. */
void gpu_release_pointer(uint64_t ptr);

/* ---- who works on it ---- */

/* Plain memory, as cuMemAlloc gives it. */
uint64_t gpu_alloc(uint64_t bytes);
void gpu_free(uint64_t ptr);

/* Reads and writes all of it once by a kernel, and waits. False: no kernels (the stand-in). */
bool gpu_sweep(uint64_t ptr, uint64_t bytes);

#endif
