/* SPDX-License-Identifier: MIT
 *
 * Memory that is made with cuMemCreate and known by its fd alone.
 *
 * An exported fd keeps its memory without handle, context or process (measured on driver 580), so
 * the handle is released at once and the daemon owns nothing but fds. Closing the last one, here
 * and in the clients, is what gives the memory back. Fresh memory is zero: the driver clears it
 * (CUDA Programming Guide, virtual memory management; 1600 samples over 100 GiB were), so nothing
 * is scrubbed here. No call below needs a context, and none makes one.
 */
#include "daemon/pool/backend_vmem.h"

#include "daemon/pool/cuda.h"
#include "proto/base/own.h"

struct vmem {
	CUmemAllocationProp prop;
	int keep_fd; /* the export that is kept alive */
};

static int export_new(const struct vmem *v, uint64_t bytes, int *ret, struct fault *f)
{
	const struct cuda *cuda = cuda_load(NULL, 0);
	CUmemGenericAllocationHandle handle;
	_cleanup_(close_fd) int fd = -1;
	CUresult result;

	result = cuda->mem_create(&handle, bytes, &v->prop, 0);
	if (result)
		return cuda_fault(f, "cuMemCreate", result);

	result = cuda->mem_export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (result) {
		fd = -1;
		cuda_undone("cuMemRelease", cuda->mem_release(handle));
		return cuda_fault(f, "cuMemExportToShareableHandle", result);
	}

	/* With its handle held the memory would outlive the fd: a block that could never be freed.
	 */
	result = cuda->mem_release(handle);
	if (result)
		return cuda_fault(f, "cuMemRelease", result);

	*ret = take_fd(&fd);
	return 0;
}

int vmem_open(struct pool *pool, CUmemLocation location, struct pool_opened *ret, struct fault *f)
{
	const struct cuda *cuda = cuda_load(NULL, 0);
	_cleanup_(free_ptr) struct vmem *v = calloc(1, sizeof(*v));
	size_t granularity;
	CUresult result;
	int err;

	if (!v)
		return fault(f, CODE_NO_MEMORY, "out of memory");

	v->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	v->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	v->prop.location = location;

	result = cuda->mem_get_allocation_granularity(&granularity, &v->prop,
						      CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (result)
		return cuda_fault(f, "cuMemGetAllocationGranularity", result);

	/* An export takes 535 to 1120 us while no other one is alive, and 25 us while one is; its
	 * fd is enough (measured on driver 580). It is the daemon's, and no part of the pool's
	 * size. */
	err = export_new(v, granularity, &v->keep_fd, f);
	if (err < 0)
		return err;

	ret->granularity = granularity;
	pool->impl = take_ptr(v);
	return 0;
}

int vmem_alloc(struct pool *pool, uint64_t bytes, struct block *ret, struct fault *f)
{
	struct block block = BLOCK_NONE;
	int err;

	err = export_new(pool->impl, bytes, &block.fd, f);
	if (err < 0)
		return err;

	block.bytes = bytes;
	*ret = block;
	return 0;
}

/* close() is where the driver gives the memory back: 30 to 190 us, hence on the worker. */
int vmem_free(struct pool *pool, struct block *block, struct fault *f)
{
	close_fd(&block->fd);
	return 0;
}

static CUresult import_once(const struct cuda *cuda, int fd)
{
	CUmemGenericAllocationHandle handle;
	CUresult result;

	result = cuda->mem_import(&handle, (void *)(uintptr_t)fd,
				  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result == CUDA_SUCCESS)
		cuda_undone("cuMemRelease", cuda->mem_release(handle));
	return result;
}

/* 30 to 50 us, whatever the size, and no context (driver 580). */
int vmem_verify(struct pool *pool, int fd, struct fault *f)
{
	const struct cuda *cuda = cuda_load(NULL, 0);
	const struct vmem *v = pool->impl;
	CUresult result;
	int err;

	result = import_once(cuda, fd);
	if (result == CUDA_SUCCESS)
		return 0;

	err = cuda_fault(f, "cuMemImportFromShareableHandle", result);
	if (!cuda_refuses_handle(result))
		return err;
	return import_once(cuda, v->keep_fd) == CUDA_SUCCESS ? -ESTALE : err;
}

void vmem_close(struct pool *pool)
{
	struct vmem *v = take_ptr(pool->impl);

	close_fd(&v->keep_fd);
	free(v);
}
