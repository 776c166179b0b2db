/* SPDX-License-Identifier: MIT
 *
 * cuMemPool*: a pool is one sparse memfd as large as the pool may grow, mapped once. It claims GPU
 * memory in steps of 32 MiB, as the driver reserves it, and gives it back on cuMemPoolTrimTo unless
 * it has been exported: an fd that others hold keeps everything. Freed memory is not cleaned.
 *
 * An importer opens the memfd a second time, through /proc/self/fd, to have an open file of its own
 * for locks: fake_pointer.c marks there what it uses. Its mappings are of the exporter's open file,
 * so that they keep the claim.
 */
#include "tests/fakecuda/fake_mempool.h"

#include "tests/fakecuda/fake_device.h"
#include "tests/fakecuda/fake_range.h"
#include "tests/fakecuda/fake_vmm.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define RESERVE_STEP (32ull << 20)

static struct list mempools = { &mempools, &mempools };

struct mempool *mempool_find(CUmemoryPool handle)
{
	struct mempool *p;

	list_foreach (p, &mempools, link)
		if ((void *)p == (void *)handle && !p->destroyed)
			return p;
	return NULL;
}

unsigned long mempool_alive(void)
{
	unsigned long n = 0;
	struct mempool *p;

	list_foreach (p, &mempools, link)
		n += !p->destroyed;
	return n;
}

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + RESERVE_STEP - 1) / RESERVE_STEP * RESERVE_STEP;
}

static void mempool_free(struct mempool *p)
{
	list_drop(&p->link);
	if (p->base)
		munmap(p->base, p->memory->tag.bytes);
	blocks_done(&p->blocks);
	close_fd(&p->lock_fd);
	memory_unref(p->memory);
	free(p);
}

/* Takes the reference on the memory. Its own GPU may use it at once, imported or not. */
static CUresult mempool_new(struct memory *memory, struct mempool **ret)
{
	struct mempool *p = calloc(1, sizeof(*p));

	if (!p) {
		memory_unref(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	p->memory = memory;
	p->lock_fd = -1;
	blocks_init(&p->blocks, memory->tag.bytes);
	list_insert(&mempools, &p->link);
	if (memory->tag.location == CU_MEM_LOCATION_TYPE_DEVICE)
		p->access[memory->tag.id] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	else
		memset(p->access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, sizeof(p->access));

	p->base = memory_reserve(NULL, memory->tag.bytes, MEMORY_STEP);
	if (!p->base || !memory_place(memory, p->base)) {
		mempool_free(p);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = p;
	return CUDA_SUCCESS;
}

static CUresult mempool_create(CUmemoryPool *ret, const CUmemPoolProps *props)
{
	struct memory_tag tag = { .kind = MEMORY_POOL };
	struct memory *memory;
	struct mempool *p;
	CUresult result;
	bool shareable;

	if (!ret || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	shareable = props->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	if (props->handleTypes && !shareable)
		return CUDA_ERROR_NOT_SUPPORTED;
	result = vmm_place(props->location, shareable, &tag);
	if (result)
		return result;

	tag.bytes = round_up(props->maxSize ? props->maxSize : device_bytes());
	result = memory_new(tag, &memory);
	if (result)
		return result;
	result = mempool_new(memory, &p);
	if (result)
		return result;
	p->exportable = shareable;
	*ret = (CUmemoryPool)p;
	return CUDA_SUCCESS;
}

static CUresult mempool_destroy(CUmemoryPool handle)
{
	struct mempool *p = mempool_find(handle);

	if (!p)
		return misuse("cuMemPoolDestroy of %p, which is no pool (any more)",
			      (void *)handle);
	if (p->memory->imported && p->pointers)
		return CUDA_ERROR_INVALID_VALUE;
	p->destroyed = true;
	memory_give_back(p->memory);
	if (!p->pointers)
		mempool_free(p);
	return CUDA_SUCCESS;
}

void mempool_drop_pointer(struct mempool *p)
{
	if (!--p->pointers && p->destroyed)
		mempool_free(p);
}

static CUresult mempool_claim(struct mempool *p, uint64_t bytes)
{
	CUresult result;

	if (p->memory->tag.location != CU_MEM_LOCATION_TYPE_DEVICE) {
		p->memory->claim.bytes = bytes;
		return CUDA_SUCCESS;
	}
	result = state_claim(p->memory->fd, &p->memory->claim, bytes);
	if (result == CUDA_SUCCESS && bytes > p->reserved_high)
		p->reserved_high = bytes;
	return result;
}

CUresult mempool_take(struct mempool *p, uint64_t bytes, uint64_t *ret_offset)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t offset, reserve;

	if (blocks_take(&p->blocks, bytes, &offset) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	reserve = round_up(blocks_end(&p->blocks));
	if (reserve > p->memory->claim.bytes)
		result = mempool_claim(p, reserve);
	if (result) {
		blocks_give(&p->blocks, offset);
		return result;
	}
	if (p->blocks.used > p->used_high)
		p->used_high = p->blocks.used;
	*ret_offset = offset;
	return CUDA_SUCCESS;
}

static CUresult mempool_trim(CUmemoryPool handle, size_t min_bytes)
{
	struct mempool *p = mempool_find(handle);
	uint64_t keep, has;

	if (!p || p->memory->imported)
		return CUDA_ERROR_INVALID_VALUE;
	keep = round_up(blocks_end(&p->blocks));
	if (keep < min_bytes)
		keep = round_up(min_bytes);
	has = p->memory->claim.bytes;
	if (p->exported || keep >= has)
		return CUDA_SUCCESS;
	madvise(p->memory->alias + keep, has - keep, MADV_REMOVE);
	return mempool_claim(p, keep);
}

static CUresult mempool_export(int *ret, CUmemoryPool handle, CUmemAllocationHandleType type,
			       unsigned long long flags)
{
	struct mempool *p = mempool_find(handle);
	int fd;

	if (!ret || !p || !p->exportable || flags ||
	    type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	/* Not close-on-exec: measured. */
	fd = fcntl(p->memory->fd, F_DUPFD, 0);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	p->exported = true;
	*ret = fd;
	return CUDA_SUCCESS;
}

static struct mempool *imported_before(uint64_t serial)
{
	struct mempool *p;

	list_foreach (p, &mempools, link)
		if (p->memory->imported && p->memory->tag.serial == serial)
			return p;
	return NULL;
}

static int open_again(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static CUresult mempool_import(CUmemoryPool *ret, int fd, CUmemAllocationHandleType type)
{
	struct memory *memory;
	struct mempool *p;
	CUresult result;

	if (!ret || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	result = memory_import(fd, MEMORY_POOL, &memory);
	if (result)
		return result;
	p = imported_before(memory->tag.serial);
	if (p) {
		memory_unref(memory);
		*ret = (CUmemoryPool)p;
		return CUDA_SUCCESS;
	}

	result = mempool_new(memory, &p);
	if (result)
		return result;
	p->lock_fd = open_again(fd);
	if (p->lock_fd < 0) {
		mempool_free(p);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	*ret = (CUmemoryPool)p;
	return CUDA_SUCCESS;
}

static CUresult check_access(const struct mempool *p, const CUmemAccessDesc *desc)
{
	int gpu = device_physical(desc->location.id);

	if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE || gpu < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE && gpu == p->memory->tag.id)
		return CUDA_ERROR_INVALID_DEVICE;
	return CUDA_SUCCESS;
}

/* Pointers look their access up in the pool's, but for those that are there already. */
static CUresult mempool_set_access(CUmemoryPool handle, const CUmemAccessDesc *desc, size_t count)
{
	struct mempool *p = mempool_find(handle);
	CUresult result;

	if (!p || !desc)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		result = check_access(p, &desc[i]);
		if (result)
			return result;
	}
	for (size_t i = 0; i < count; i++)
		p->access[device_physical(desc[i].location.id)] = (unsigned char)desc[i].flags;
	range_set_access(p, p->access);
	return CUDA_SUCCESS;
}

static uint64_t *attribute_of(struct mempool *p, CUmemPool_attribute attribute)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		return &p->threshold;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return &p->memory->claim.bytes;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return &p->reserved_high;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return &p->blocks.used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return &p->used_high;
	default:
		return NULL;
	}
}

static CUresult mempool_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value,
				  bool set)
{
	struct mempool *p = mempool_find(handle);
	uint64_t *kept;

	if (!p || p->memory->imported || !value)
		return CUDA_ERROR_INVALID_VALUE;
	kept = attribute_of(p, attribute);
	if (!kept || (set && attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD))
		return CUDA_ERROR_INVALID_VALUE;
	if (set)
		memcpy(kept, value, sizeof(*kept));
	else
		memcpy(value, kept, sizeof(*kept));
	return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	return FAKE_CALL(CALL_PLAIN, mempool_create(pool, props));
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	return FAKE_CALL(CALL_GIVES_BACK, mempool_destroy(pool));
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t min_bytes)
{
	return FAKE_CALL(CALL_PLAIN, mempool_trim(pool, min_bytes));
}

CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool,
					  CUmemAllocationHandleType type, unsigned long long flags)
{
	return FAKE_CALL(CALL_PLAIN, mempool_export(handle, pool, type, flags));
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
					    CUmemAllocationHandleType type,
					    unsigned long long flags)
{
	return FAKE_CALL(CALL_PLAIN, mempool_import(pool, (int)(intptr_t)handle, type));
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count)
{
	return FAKE_CALL(CALL_PLAIN, mempool_set_access(pool, desc, count));
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	return FAKE_CALL(CALL_PLAIN, mempool_attribute(pool, attr, value, true));
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	return FAKE_CALL(CALL_PLAIN, mempool_attribute(pool, attr, value, false));
}
