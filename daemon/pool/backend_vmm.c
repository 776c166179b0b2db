/* SPDX-License-Identifier: MIT
 *
 * The default kind on a GPU: each block is one allocation of the driver (cuMemCreate) in the GPU's
 * own memory, known by its fd alone. The pinned kind, at the end, does the same in the host's
 * memory.
 *
 * An exported fd keeps its memory without handle, context or process (kept, in proto/facts.h), so
 * the daemon releases the handle at once and owns only fds. The memory is given back when the last
 * fd, here and in the clients, is closed (freed). Fresh memory is zero (zero; also CUDA Programming
 * Guide, virtual memory management), so nothing is scrubbed here. No call below needs a context,
 * and none makes one.
 *
 * A client maps a block read-only or writable by the GPU's page tables, maps only what it was lent,
 * and keeps it when the daemon dies. A freed block of the same user and size is reused as it is:
 * its bytes were that user's own.
 */
#include "daemon/pool/cuda.h"
#include "daemon/pool/pool_internal.h"
#include "proto/base/own.h"

struct vmm {
	CUmemAllocationProp prop;
	int keep_fd; /* an export that stays alive */
};

static int export_new(const struct vmm *v, uint64_t bytes, int *ret, struct fault *f)
{
	CUmemGenericAllocationHandle handle;
	_cleanup_(close_fd) int fd = -1;
	int err = cuda_try(f, cuMemCreate, &handle, bytes, &v->prop, 0);

	if (err < 0)
		return err;

	err = cuda_try(f, cuMemExportToShareableHandle, &fd, handle,
		       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (err < 0) {
		fd = -1;
		cuda_undo(cuMemRelease, handle);
		return err;
	}

	/* A held handle would keep the memory after the fd is closed: the block could never be
	 * freed. */
	err = cuda_try(f, cuMemRelease, handle);
	if (err == 0)
		*ret = take_fd(&fd);
	return err;
}

static CUresult import_once(int fd)
{
	CUmemGenericAllocationHandle handle;
	CUresult result = cuda_call(cuMemImportFromShareableHandle, &handle, (void *)(uintptr_t)fd,
				    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	if (result == CUDA_SUCCESS)
		cuda_undo(cuMemRelease, handle);
	return result;
}

static int open_at(struct pool *pool, CUmemLocation location, struct pool_opened *ret,
		   struct fault *f)
{
	_cleanup_(free_ptr) struct vmm *v = calloc(1, sizeof(*v));
	size_t granularity;
	int err;

	if (!v)
		return fault(f, CODE_NO_MEMORY, "out of memory");

	v->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	v->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	v->prop.location = location;

	err = cuda_try(f, cuMemGetAllocationGranularity, &granularity, &v->prop,
		       CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (err < 0)
		return err;

	/* An export takes 535 to 1120 us while no other one is alive, and 25 us while one is; its
	 * fd is enough (kept, in proto/facts.h). It belongs to the daemon and does not count in the
	 * pool's size. */
	err = export_new(v, granularity, &v->keep_fd, f);
	if (err < 0)
		return err;

	/* Its handle is released, as those of all blocks will be. */
	err = cuda_fault_kept(f, pool->config.kind, CUDA_INDEX(cuMemImportFromShareableHandle),
			      import_once(v->keep_fd));
	if (err < 0) {
		close_fd(&v->keep_fd);
		return err;
	}

	ret->granularity = granularity;
	pool->impl = take_ptr(v);
	return 0;
}

static int vmm_alloc(struct pool *pool, uint64_t bytes, struct block *ret, struct fault *f)
{
	struct block block = BLOCK_NONE;
	int err = export_new(pool->impl, bytes, &block.fd, f);

	block.bytes = bytes;
	if (err == 0)
		*ret = block;
	return err;
}

/* close() is where the driver gives the memory back: 30 to 190 us, hence on the worker. */
static int vmm_free(struct pool *pool, struct block *block, struct fault *f)
{
	close_fd(&block->fd);
	return 0;
}

/* 30 to 50 us, whatever the size, and no context (driver 580). */
static int vmm_verify(struct pool *pool, int fd, struct fault *f)
{
	const struct vmm *v = pool->impl;
	CUresult result = import_once(fd);
	int err = cuda_fault(f, CUDA_INDEX(cuMemImportFromShareableHandle), result);

	if (!cuda_refuses_handle(result))
		return err;
	return import_once(v->keep_fd) == CUDA_SUCCESS ? -ESTALE : err;
}

static void vmm_close(struct pool *pool)
{
	struct vmm *v = take_ptr(pool->impl);

	close_fd(&v->keep_fd);
	free(v);
}

static int vmm_open(struct pool *pool, struct pool_opened *ret, struct fault *f)
{
	CUmemLocation location = { .type = CU_MEM_LOCATION_TYPE_DEVICE };

	location.id = pool->device->ordinal;
	return open_at(pool, location, ret, f);
}

const struct pool_ops vmm_ops = {
	.kind = POOL_VMM,
	.reuses_pending = true,
	.open = vmm_open,
	.alloc = vmm_alloc,
	.free = vmm_free,
	.close = vmm_close,
	.verify = vmm_verify,
};

/* ---- pinned ---- */

/* Host memory that the driver has pinned, so that GPUs and CPUs map the same pages.
 *
 * It is made on a NUMA node, never "on the host": memory of a HOST location can't be shared with
 * another process, that of HOST_NUMA can (driver 580). Pinning takes 16 to 19 ms for 64 MiB, so
 * freed blocks are kept for reuse, as in a vmm pool. A machine without NUMA has one node, 0. */
static int choose_node(const struct pool *pool)
{
	if (pool->config.numa_node >= 0)
		return pool->config.numa_node;
	return pool->device->numa_node >= 0 ? pool->device->numa_node : 0;
}

static int pinned_open(struct pool *pool, struct pool_opened *ret, struct fault *f)
{
	CUmemLocation location = { .type = CU_MEM_LOCATION_TYPE_HOST_NUMA };

	ret->numa_node = choose_node(pool);
	location.id = ret->numa_node;
	return open_at(pool, location, ret, f);
}

const struct pool_ops pinned_ops = {
	.kind = POOL_PINNED,
	.reuses_pending = true,
	.open = pinned_open,
	.alloc = vmm_alloc,
	.free = vmm_free,
	.close = vmm_close,
	.verify = vmm_verify,
};
