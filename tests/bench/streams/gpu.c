/* SPDX-License-Identifier: MIT
 *
 * The GPU of one process of the comparison.
 */
#include "tests/bench/streams/gpu.h"

#include "proto/base/own.h"
#include "tests/bench/streams/side.h"

struct gpu gpu;

static const struct libcuda_symbol plain[] = { GPU_CALLS(LIBCUDA_SYMBOL) };
static const struct libcuda_symbol words[] = { GPU_WORD_CALLS(LIBCUDA_SYMBOL) };
static const struct libcuda_symbol kernels[] = { GPU_KERNEL_CALLS(LIBCUDA_SYMBOL) };
static const struct libcuda_symbol events[] = { GPU_EVENT_CALLS(LIBCUDA_SYMBOL) };

void gpu_must(const char *call, CUresult r)
{
	if (r != CUDA_SUCCESS)
		side_fail("%s: CUresult %d", call, (int)r);
}

const char *gpu_probe(void)
{
	char why[256];

	if (gpu.name[0])
		return gpu.name;
	if (!libcuda_load(plain, array_size(plain), &gpu.call, why, sizeof(why)) ||
	    gpu.call.init(0) != CUDA_SUCCESS ||
	    gpu.call.device_get_name(gpu.name, sizeof(gpu.name), 0) != CUDA_SUCCESS)
		return NULL;
	gpu.words = libcuda_load(words, array_size(words), &gpu.call, why, sizeof(why));
	gpu.events = libcuda_load(events, array_size(events), &gpu.call, why, sizeof(why));
	gpu.kernels = libcuda_load(kernels, array_size(kernels), &gpu.call, why, sizeof(why));
	return gpu.name;
}

void gpu_start(void *memory, size_t bytes)
{
	CUcontext context;

	if (!gpu_probe())
		side_fail("no GPU");
	GPU_MUST(gpu.call.ctx_retain(&context, 0));
	GPU_MUST(gpu.call.ctx_set_current(context));
	GPU_MUST(gpu.call.stream_create(&gpu.stream, CU_STREAM_NON_BLOCKING));
	GPU_MUST(gpu.call.mem_alloc(&gpu.scratch, GPU_SCRATCH));
	GPU_MUST(gpu.call.host_alloc((void **)&gpu.result, 4096, 0));
	if (!gpu.words)
		return;
	GPU_MUST(gpu.call.host_register(memory, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
	GPU_MUST(gpu.call.host_pointer(&gpu.board, memory, 0));
}

void gpu_write(CUdeviceptr word, uint64_t value)
{
	GPU_MUST(gpu.call.write_value(gpu.stream, word, value, 0));
}

void gpu_wait(CUdeviceptr word, uint64_t value)
{
	GPU_MUST(gpu.call.wait_value(gpu.stream, word, value, CU_STREAM_WAIT_VALUE_GEQ));
}
