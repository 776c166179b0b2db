/* SPDX-License-Identifier: MIT
 *
 * cuMemAlloc, cuMemAllocManaged: memory of the current context's GPU that is never shared. The
 * pages live as long as their mapping; no fd is kept. The CPU reaches both, because it reaches all
 * memory.
 */
#include "tests/fakecuda/fake_pointer.h"

#include "tests/fakecuda/fake_context.h"
#include "tests/fakecuda/fake_device.h"
#include "tests/fakecuda/fake_graph.h"

#include <sys/mman.h>

void allocation_free(struct pointer *it)
{
	range_drop(&it->range);
	munmap((void *)it->range.start, it->memory->tag.bytes);
	memory_unref(it->memory);
	free(it);
}

static CUresult allocation_new(struct memory *memory, size_t size, struct pointer **ret)
{
	struct pointer *it = calloc(1, sizeof(*it));
	unsigned char *at = memory_reserve(NULL, memory->tag.bytes, MEMORY_STEP);

	if (!it || !at || !memory_place(memory, at)) {
		free(it);
		if (at)
			munmap(at, memory->tag.bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	mprotect(at, memory->tag.bytes, PROT_READ | PROT_WRITE);
	it->memory = memory;
	it->range.kind = RANGE_ALLOCATION;
	it->range.start = (uintptr_t)at;
	it->range.size = size;
	it->range.alias = memory->alias;
	it->range.location.type = memory->tag.location;
	it->range.location.id = memory->tag.id;
	it->range.access[memory->tag.id] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	range_insert(&it->range);
	*ret = it;
	return CUDA_SUCCESS;
}

static CUresult plain_alloc(CUdeviceptr *ret, size_t size)
{
	struct memory_tag tag = { .kind = MEMORY_VMM, .location = CU_MEM_LOCATION_TYPE_DEVICE };
	unsigned int gpu;
	CUresult result = context_gpu(&gpu);
	struct memory *memory;
	struct pointer *it;

	if (result == CUDA_SUCCESS)
		result = graph_check_safe();
	if (result)
		return result;
	if (!ret || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > device_bytes())
		return CUDA_ERROR_OUT_OF_MEMORY;
	tag.id = (int)gpu;
	tag.bytes = (size + MEMORY_STEP - 1) / MEMORY_STEP * MEMORY_STEP;
	result = memory_new(tag, &memory);
	if (result)
		return result;

	result = state_claim(memory->fd, &memory->claim, tag.bytes);
	memory_seclude(memory);
	if (result == CUDA_SUCCESS)
		result = allocation_new(memory, size, &it);
	if (result) {
		memory_unref(memory);
		return result;
	}
	*ret = it->range.start;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *ptr, size_t size)
{
	return FAKE_CALL(CALL_PLAIN, plain_alloc(ptr, size));
}

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t size, unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, plain_alloc(ptr, size));
}
