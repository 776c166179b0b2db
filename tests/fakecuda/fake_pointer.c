/* SPDX-License-Identifier: MIT
 *
 * Blocks of a pool as pointers, in the process that allocated them and in those that imported them.
 * The pool's pages are closed to the CPU but for its pointers, so that what is used after its free
 * is seen.
 */
#include "tests/fakecuda/fake_pointer.h"

#include "tests/fakecuda/fake_stream.h"

#include <string.h>
#include <sys/mman.h>

struct pointer *pointer_at(uintptr_t address)
{
	struct range *r = range_find(address);

	if (!r || r->start != address || (r->kind != RANGE_POINTER && r->kind != RANGE_ALLOCATION))
		return NULL;
	return container_of(r, struct pointer, range);
}

uint64_t pointer_round(uint64_t size)
{
	return (size + BLOCK_STEP - 1) / BLOCK_STEP * BLOCK_STEP;
}

CUresult pointer_new(struct mempool *p, uint64_t offset, uint64_t size, struct pointer **ret)
{
	struct pointer *it = calloc(1, sizeof(*it));

	if (!it)
		return CUDA_ERROR_OUT_OF_MEMORY;
	it->mempool = p;
	it->offset = offset;
	it->bytes = pointer_round(size);
	it->record = NO_RECORD;
	it->range.kind = RANGE_POINTER;
	it->range.start = (uintptr_t)p->base + offset;
	it->range.size = size;
	it->range.alias = p->memory->alias + offset;
	it->range.pool = p;
	it->range.location.type = p->memory->tag.location;
	it->range.location.id = p->memory->tag.id;
	memcpy(it->range.access, p->access, sizeof(p->access));
	if (mprotect(p->base + offset, it->bytes, PROT_READ | PROT_WRITE) < 0) {
		free(it);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	p->pointers++;
	range_insert(&it->range);
	*ret = it;
	return CUDA_SUCCESS;
}

static CUresult pool_alloc(CUdeviceptr *ret, size_t size, CUmemoryPool pool, CUstream stream)
{
	struct mempool *p = mempool_find(pool);
	struct pointer *it;
	uint64_t offset;
	unsigned int gpu;
	CUresult result = stream_gpu(stream, &gpu);

	if (result)
		return result;
	if (!ret || !p || p->memory->imported)
		return CUDA_ERROR_INVALID_VALUE;
	if (!size) {
		*ret = 0;
		return CUDA_SUCCESS;
	}
	if (size > p->blocks.size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = mempool_take(p, pointer_round(size), &offset);
	if (result)
		return result;
	result = pointer_new(p, offset, size, &it);
	if (result) {
		blocks_give(&p->blocks, offset);
		return result;
	}
	*ret = it->range.start;
	return CUDA_SUCCESS;
}

static void pointer_close(struct pointer *it)
{
	struct mempool *p = it->mempool;

	mprotect(p->base + it->offset, it->bytes, PROT_NONE);
	range_drop(&it->range);
	free(it);
	mempool_drop_pointer(p);
}

static CUresult free_imported(struct pointer *it)
{
	record_unlock(it);
	pointer_close(it);
	return CUDA_SUCCESS;
}

static CUresult free_own(struct pointer *it)
{
	if (record_drop(it))
		return misuse("free of pool pointer %#lx: exporter freed before its importer",
			      it->range.start);
	blocks_give(&it->mempool->blocks, it->offset);
	pointer_close(it);
	return CUDA_SUCCESS;
}

static CUresult pointer_free(CUdeviceptr address)
{
	struct pointer *it = pointer_at(address);

	if (!it)
		return misuse("free of %#llx, which is not allocated (any more)", address);
	if (!it->mempool) {
		allocation_free(it);
		return CUDA_SUCCESS;
	}
	return it->mempool->memory->imported ? free_imported(it) : free_own(it);
}

static void run_free(void *data)
{
	pointer_free(*(CUdeviceptr *)data);
}

static CUresult free_async(CUdeviceptr address, CUstream stream)
{
	struct queue *q;
	unsigned int gpu;
	CUresult result = stream_queue(stream, &q, &gpu);

	if (result || !address)
		return result;
	return queue_is_idle(q) && !q->capture
		       ? pointer_free(address)
		       : queue_put_work(q, run_free, &address, sizeof(address));
}

/* Waits for the context's work. */
static CUresult free_now(CUdeviceptr address)
{
	struct queue *q;
	unsigned int gpu;
	CUresult result = stream_queue(NULL, &q, &gpu);

	if (result || !address)
		return result;
	queue_wait_context(q->context);
	return pointer_free(address);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream)
{
	return FAKE_CALL(CALL_PLAIN, pool_alloc(ptr, size, pool, stream));
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	return FAKE_CALL(CALL_GIVES_BACK, free_async(ptr, stream));
}

CUresult cuMemFree(CUdeviceptr ptr)
{
	return FAKE_CALL(CALL_GIVES_BACK, free_now(ptr));
}
