/* SPDX-License-Identifier: MIT
 *
 * Built without the CUDA Toolkit's headers: there is no GPU, and the functions that would use one
 * are never called.
 */
#include "tests/bench/gpu.h"

#include <stdlib.h>

bool gpu_open(void)
{
	return false;
}

void gpu_close(void)
{
}

const char *gpu_name(void)
{
	return "";
}

bool gpu_is_fake(void)
{
	return false;
}

int gpu_make_vmm(uint64_t bytes)
{
	abort();
}

int gpu_hold_mempool(uint64_t bytes, unsigned char record[RECORD_BYTES])
{
	abort();
}

void gpu_make_pointer(uint64_t bytes, unsigned char record[RECORD_BYTES])
{
	abort();
}

void gpu_free_pointer(void)
{
	abort();
}

uint64_t gpu_map(int fd, uint64_t bytes, bool write)
{
	abort();
}

void gpu_unmap(uint64_t ptr, uint64_t bytes)
{
	abort();
}

void gpu_import_pool(int fd)
{
	abort();
}

uint64_t gpu_import_pointer(const unsigned char record[RECORD_BYTES])
{
	abort();
}

void gpu_release_pointer(uint64_t ptr)
{
	abort();
}

uint64_t gpu_alloc(uint64_t bytes)
{
	abort();
}

void gpu_free(uint64_t ptr)
{
	abort();
}

bool gpu_sweep(uint64_t ptr, uint64_t bytes)
{
	abort();
}
