/* SPDX-License-Identifier: MIT
 *
 * cuMemHostRegister: memory of the process that the driver pins and every GPU may use at the same
 * address. Pages that can't be written need READ_ONLY. /proc/self/maps shows whether they can,
 * where the driver asks the kernel. cuMemHostAlloc is the same with memory of the driver's.
 */
#include "tests/fakecuda/fake_context.h"
#include "tests/fakecuda/fake_graph.h"
#include "tests/fakecuda/fake_queue.h"
#include "tests/fakecuda/fake_range.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* The protection that all of the bytes have in common: 'r' and 'w' bits of CUmemAccess_flags. */
static unsigned char protection(uintptr_t start, size_t size)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned char common = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	uintptr_t covered = start;
	unsigned long from, to;
	char line[512], r, w;

	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %c%c", &from, &to, &r, &w) != 4 || to <= covered ||
		    from >= start + size)
			continue;
		if (from > covered || r != 'r')
			break;
		if (w != 'w')
			common = CU_MEM_ACCESS_FLAGS_PROT_READ;
		covered = to;
	}
	if (maps)
		fclose(maps);
	return covered >= start + size ? common : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

static CUresult check_register(uintptr_t start, size_t size, unsigned char wanted)
{
	struct context *context;
	CUresult result = context_current(&context);
	struct range *there;

	if (result == CUDA_SUCCESS)
		result = graph_check_safe();
	if (result)
		return result;
	if (!start || !size)
		return CUDA_ERROR_INVALID_VALUE;
	there = range_overlap(start, size);
	if (there)
		return there->kind == RANGE_HOST ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
						 : CUDA_ERROR_INVALID_VALUE;
	if ((protection(start, size) & wanted) != wanted)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult host_register(void *p, size_t size, unsigned int flags)
{
	unsigned char access = flags & CU_MEMHOSTREGISTER_READ_ONLY
				       ? CU_MEM_ACCESS_FLAGS_PROT_READ
				       : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	CUresult result = check_register((uintptr_t)p, size, access);
	struct range *r;

	if (result)
		return result;
	r = calloc(1, sizeof(*r));
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r->kind = RANGE_HOST;
	r->start = (uintptr_t)p;
	r->size = size;
	r->alias = p;
	r->location.type = CU_MEM_LOCATION_TYPE_HOST;
	memset(r->access, access, sizeof(r->access));
	range_insert(r);
	return CUDA_SUCCESS;
}

static CUresult host_unregister(void *p)
{
	struct range *r = range_find((uintptr_t)p);

	CUresult result = graph_check_safe();

	if (result)
		return result;
	if (!r || r->kind != RANGE_HOST || r->allocated)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	if (r->start != (uintptr_t)p)
		return CUDA_ERROR_INVALID_VALUE;
	queue_pump();
	if (queue_uses(r->start, r->size))
		return misuse("host memory %p is unregistered while a wait or a write of a word in "
			      "it is queued",
			      p);
	range_drop(r);
	free(r);
	return CUDA_SUCCESS;
}

static CUresult host_alloc(void **ret, size_t size)
{
	void *p = ret && size ? mmap(NULL, size, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
			      : MAP_FAILED;
	CUresult result;

	if (p == MAP_FAILED)
		return CUDA_ERROR_INVALID_VALUE;
	result = host_register(p, size, 0);
	if (result) {
		munmap(p, size);
		return result;
	}
	range_find((uintptr_t)p)->allocated = true;
	*ret = p;
	return CUDA_SUCCESS;
}

static CUresult host_free(void *p)
{
	struct range *r = range_find((uintptr_t)p);
	struct context *context;
	CUresult result = context_current(&context);

	if (result)
		return result;
	if (!r || !r->allocated || r->start != (uintptr_t)p)
		return misuse("%p, to be freed, is not from cuMemHostAlloc", p);
	munmap(p, r->size);
	range_drop(r);
	free(r);
	return CUDA_SUCCESS;
}

static CUresult host_pointer(CUdeviceptr *ret, void *p)
{
	struct range *r = range_find((uintptr_t)p);

	if (!ret || !r || r->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUdeviceptr)p;
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *p, size_t size, unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, host_register(p, size, flags));
}

CUresult cuMemHostUnregister(void *p)
{
	return FAKE_CALL(CALL_GIVES_BACK, host_unregister(p));
}

CUresult cuMemHostAlloc(void **ret, size_t size, unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, host_alloc(ret, size));
}

CUresult cuMemFreeHost(void *p)
{
	return FAKE_CALL(CALL_GIVES_BACK, host_free(p));
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *ret, void *p, unsigned int flags)
{
	return FAKE_CALL(CALL_PLAIN, host_pointer(ret, p));
}

#undef cuMemHostRegister
FAKE_ALIAS(cuMemHostRegister, cuMemHostRegister_v2);
