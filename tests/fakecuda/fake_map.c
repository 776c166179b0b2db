/* SPDX-License-Identifier: MIT
 *
 * cuMemAddressReserve, cuMemMap and cuMemSetAccess. A reservation is PROT_NONE address space; a
 * mapping puts the memfd over a part of it, and mprotect() follows the access that was set. For
 * memory on a GPU the CPU stands in for the kernels that would run there, so it may do what any GPU
 * may; for memory of the host, what the host was given.
 *
 * The driver lets an unmap of nothing pass. Here it aborts: whoever unmaps what is not mapped has
 * lost count.
 */
#include "tests/fakecuda/fake_map.h"

#include "tests/fakecuda/fake_device.h"
#include "tests/fakecuda/fake_range.h"
#include "tests/fakecuda/fake_vmm.h"

#include <string.h>
#include <sys/mman.h>

struct reservation {
	struct list link; /* reservations */
	uintptr_t start;
	size_t size;
};

struct mapping {
	struct range range;
	struct memory *memory; /* a reference */
	unsigned char host_access;
};

static struct list reservations = { &reservations, &reservations };

unsigned long map_reservations(void)
{
	unsigned long n = 0;
	struct reservation *r;

	list_foreach (r, &reservations, link)
		n++;
	return n;
}

/* The reservation with all these bytes in it. */
static struct reservation *reservation_of(uintptr_t start, size_t size)
{
	struct reservation *r;

	list_foreach (r, &reservations, link)
		if (start >= r->start && size <= r->size && start - r->start <= r->size - size)
			return r;
	return NULL;
}

/* The mapping that begins there and ends by `end`. */
static struct mapping *mapping_at(uintptr_t start, uintptr_t end)
{
	struct range *r = range_find(start);

	if (!r || r->kind != RANGE_MAPPING || r->start != start || r->size > end - start)
		return NULL;
	return container_of(r, struct mapping, range);
}

/* Whether the bytes are whole mappings, one after the other. */
static bool is_mapped(uintptr_t start, size_t size)
{
	uintptr_t at = start;
	struct mapping *m;

	while (at < start + size) {
		m = mapping_at(at, start + size);
		if (!m)
			return false;
		at += m->range.size;
	}
	return size > 0;
}

static CUresult reserve(CUdeviceptr *ret, size_t size, size_t alignment)
{
	struct reservation *r;
	unsigned char *p;

	if (!ret || !size || size % MEMORY_STEP || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	r = malloc(sizeof(*r));
	p = memory_reserve(NULL, size, alignment > MEMORY_STEP ? alignment : MEMORY_STEP);
	if (!r || !p) {
		free(r);
		if (p)
			munmap(p, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r->start = (uintptr_t)p;
	r->size = size;
	list_insert(&reservations, &r->link);
	*ret = r->start;
	return CUDA_SUCCESS;
}

static CUresult unreserve(uintptr_t start, size_t size)
{
	struct reservation *r = reservation_of(start, size);

	if (!r || r->start != start || r->size != size)
		return misuse("cuMemAddressFree of %zu bytes at %#lx: that is no reservation", size,
			      start);
	if (range_overlap(start, size))
		return misuse("cuMemAddressFree at %#lx: something is mapped there", start);
	munmap((void *)start, size);
	list_drop(&r->link);
	free(r);
	return CUDA_SUCCESS;
}

static CUresult mapping_new(uintptr_t start, struct memory *memory)
{
	struct mapping *m = calloc(1, sizeof(*m));

	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!memory_place(memory, (void *)start)) {
		free(m);
		return CUDA_ERROR_MAP_FAILED;
	}
	m->memory = memory_ref(memory);
	m->range.kind = RANGE_MAPPING;
	m->range.start = start;
	m->range.size = memory->tag.bytes;
	m->range.alias = memory->alias;
	m->range.location.type = memory->tag.location;
	m->range.location.id = memory->tag.id;
	range_insert(&m->range);
	return CUDA_SUCCESS;
}

static CUresult map(uintptr_t start, size_t size, size_t offset,
		    CUmemGenericAllocationHandle handle)
{
	struct memory *memory = vmm_memory(handle);

	if (!memory || !size || start % MEMORY_STEP || size % MEMORY_STEP)
		return CUDA_ERROR_INVALID_VALUE;
	if (!reservation_of(start, size))
		return misuse("cuMemMap of %zu bytes at %#lx, which is not reserved", size, start);
	if (range_overlap(start, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (offset || size != memory->tag.bytes)
		return CUDA_ERROR_NOT_SUPPORTED;
	return mapping_new(start, memory);
}

/* The mapping goes, the reservation stays. */
static size_t mapping_free(struct mapping *m)
{
	size_t size = m->range.size;

	range_drop(&m->range);
	memory_reserve((void *)m->range.start, size, MEMORY_STEP);
	memory_unref(m->memory);
	free(m);
	return size;
}

static CUresult unmap(uintptr_t start, size_t size)
{
	if (!is_mapped(start, size))
		return misuse(
			"cuMemUnmap of %zu bytes at %#lx: they are not mapped, or not as a whole",
			size, start);
	for (uintptr_t at = start; at < start + size;)
		at += mapping_free(mapping_at(at, start + size));
	return CUDA_SUCCESS;
}

/* Where the location's access is kept. */
static CUresult access_of(struct mapping *m, CUmemLocation location, unsigned char **ret)
{
	int gpu = device_physical(location.id);

	if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
		if (gpu < 0)
			return CUDA_ERROR_INVALID_VALUE;
		*ret = &m->range.access[gpu];
		return CUDA_SUCCESS;
	}
	if (location.type != CU_MEM_LOCATION_TYPE_HOST &&
	    location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = &m->host_access;
	return CUDA_SUCCESS;
}

static CUresult check_access(struct mapping *m, const CUmemAccessDesc *desc)
{
	unsigned char *access;

	if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
	    desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
	    desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE &&
	    m->range.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	return access_of(m, desc->location, &access);
}

static void protect(struct mapping *m)
{
	unsigned char access = m->host_access;
	int prot = PROT_NONE;

	if (m->range.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		for (int gpu = 0; gpu < GPUS_MAX; gpu++)
			access |= m->range.access[gpu];
	if (access & CU_MEM_ACCESS_FLAGS_PROT_READ)
		prot = PROT_READ;
	if (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
		prot |= PROT_WRITE;
	mprotect((void *)m->range.start, m->range.size, prot);
}

/* Checks everything before it sets anything: an error changes nothing. */
static CUresult set_access(uintptr_t start, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	struct mapping *m;

	if (!is_mapped(start, size) || !desc || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (uintptr_t at = start; at < start + size; at += m->range.size) {
		m = mapping_at(at, start + size);
		for (size_t i = 0; i < count; i++) {
			CUresult result = check_access(m, &desc[i]);

			if (result)
				return result;
		}
	}

	for (uintptr_t at = start; at < start + size; at += m->range.size) {
		m = mapping_at(at, start + size);
		for (size_t i = 0; i < count; i++) {
			unsigned char *access = NULL;

			access_of(m, desc[i].location, &access);
			*access = (unsigned char)desc[i].flags;
		}
		protect(m);
	}
	return CUDA_SUCCESS;
}

static CUresult get_access(unsigned long long *ret, const CUmemLocation *location, uintptr_t at)
{
	struct range *r = range_find(at);
	unsigned char *access;
	CUresult result;

	if (!ret || !location || !r || r->kind != RANGE_MAPPING)
		return CUDA_ERROR_INVALID_VALUE;
	result = access_of(container_of(r, struct mapping, range), *location, &access);
	if (result == CUDA_SUCCESS)
		*ret = *access;
	return result;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
			     unsigned long long flags)
{
	return FAKE_CALL(CALL_PLAIN, reserve(ptr, size, alignment));
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	return FAKE_CALL(CALL_GIVES_BACK, unreserve(ptr, size));
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	return FAKE_CALL(CALL_PLAIN, map(ptr, size, offset, handle));
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	return FAKE_CALL(CALL_GIVES_BACK, unmap(ptr, size));
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	return FAKE_CALL(CALL_PLAIN, set_access(ptr, size, desc, count));
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	return FAKE_CALL(CALL_PLAIN, get_access(flags, location, ptr));
}
