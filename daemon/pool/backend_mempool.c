/* SPDX-License-Identifier: MIT
 *
 * A driver's own memory pool: many small blocks cheaply, one fd for all of them.
 *
 * The pool is made and its fd exported without a context. Allocating needs one: the device's
 * primary context, retained on first use, shared with the other mempools of the device and released
 * by devices_done(). A client gets a block as a record of 64 bytes and the pool's fd, which is a
 * capability for the whole pool: gpushm(7) says who must trust whom. Every call that changes the
 * pool is followed by a synchronize, so that a reply is true when a client reads it. Blocks are
 * freed only after every importer's lease has really ended: the driver reuses a freed block while
 * an importer still writes to it (seen on driver 580).
 */
#include "daemon/pool/cuda.h"
#include "daemon/pool/pool_internal.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>

#define GRANULARITY 512u /* what cuMemAllocFromPoolAsync rounds to (driver 580) */

/* Importing a single pointer of more than 5248 MiB ends the importer with SIGSEGV inside the driver
 * (5248 worked, 5249 did not; driver 580), so no block is larger than 4 GiB. */
#define BLOCK_MAX (4ull << 30)

_Static_assert(RECORD_BYTES == sizeof(CUmemPoolPtrExportData), "a record on the wire is CUDA's");

struct mempool {
	CUmemoryPool pool;
	CUstream stream; /* made on first use; non-blocking, so that no other stream delays it */
};

/* Exports and destroys of different pools crashed the driver when they ran at the same time, as
 * others have reported. Each device has its own thread, so one lock is for all. */
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
#define locked_call(call, ...)                          \
	({                                              \
		CUresult locked_;                       \
		pthread_mutex_lock(&driver_lock);       \
		locked_ = cuda_call(call, __VA_ARGS__); \
		pthread_mutex_unlock(&driver_lock);     \
		locked_;                                \
	})

/* The driver makes a vmm allocation's fd close-on-exec, but not a pool's (driver 580). */
static int export_pool(CUmemoryPool pool, int *ret, struct fault *f)
{
	CUresult result = locked_call(cuMemPoolExportToShareableHandle, ret, pool,
				      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

	if (result == CUDA_SUCCESS)
		fcntl(*ret, F_SETFD, FD_CLOEXEC);
	return cuda_fault(f, CUDA_INDEX(cuMemPoolExportToShareableHandle), result);
}

static int export_pointer(CUdeviceptr address, void *ret, struct fault *f)
{
	CUmemPoolPtrExportData data;
	CUresult result = locked_call(cuMemPoolExportPointer, &data, address);

	if (result == CUDA_SUCCESS)
		memcpy(ret, &data, sizeof(data));
	return cuda_fault(f, CUDA_INDEX(cuMemPoolExportPointer), result);
}

static void destroy_pool(CUmemoryPool pool)
{
	cuda_undone(CUDA_INDEX(cuMemPoolDestroy), locked_call(cuMemPoolDestroy, pool));
}

/* Makes the pool keep freed memory for the next allocation, instead of giving it back to the system
 * at each synchronize; and exports the fd. */
static int set_up(CUmemoryPool pool, int *ret, struct fault *f)
{
	cuuint64_t threshold = UINT64_MAX;
	int err = cuda_try(f, cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
			   &threshold);

	return err ?: export_pool(pool, ret, f);
}

static int create_pool(const struct pool *pool, CUmemoryPool *ret, struct fault *f)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				 .maxSize = pool->size };

	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = pool->device->ordinal;
	return cuda_try(f, cuMemPoolCreate, ret, &props);
}

static CUresult import_once(int fd)
{
	CUmemoryPool pool;
	CUresult result =
		locked_call(cuMemPoolImportFromShareableHandle, &pool, (void *)(uintptr_t)fd,
			    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

	if (result == CUDA_SUCCESS)
		destroy_pool(pool);
	return result;
}

/* Whether the driver takes the fd of a pool that was destroyed, as gpushmd's restart needs it;
 * makes one to find out. */
static int try_fresh_one(const struct pool *pool, struct fault *f)
{
	_cleanup_(close_fd) int fd = -1;
	CUmemoryPool fresh;
	int err = create_pool(pool, &fresh, f);

	if (err < 0)
		return err;
	err = export_pool(fresh, &fd, f);
	destroy_pool(fresh);
	return err
		       ?: cuda_fault_kept(f, POOL_MEMPOOL,
					  CUDA_INDEX(cuMemPoolImportFromShareableHandle),
					  import_once(fd));
}

static int mempool_open(struct pool *pool, struct pool_opened *ret, struct fault *f)
{
	_cleanup_(free_ptr) struct mempool *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return fault(f, CODE_NO_MEMORY, "out of memory");

	err = try_fresh_one(pool, f);
	err = err ?: create_pool(pool, &m->pool, f);
	if (err < 0)
		return err;

	err = set_up(m->pool, &ret->fd, f);
	if (err < 0) {
		destroy_pool(m->pool);
		return err;
	}

	ret->granularity = GRANULARITY;
	ret->max_block = BLOCK_MAX;
	pool->impl = take_ptr(m);
	return 0;
}

static int retain_context(struct device *device, struct fault *f)
{
	CUcontext context = NULL;
	CUdevice handle = 0;
	int err = cuda_try(f, cuDeviceGet, &handle, device->ordinal);

	err = err ?: cuda_try(f, cuDevicePrimaryCtxRetain, &context, handle);
	if (err == 0)
		device->context = context;
	return err;
}

/* Makes what the first allocation needs; a daemon whose mempools are never used does not need it.
 */
static int enter_context(struct pool *pool, struct fault *f)
{
	struct mempool *m = pool->impl;
	CUstream stream;
	int err = pool->device->context ? 0 : retain_context(pool->device, f);

	err = err ?: cuda_try(f, cuCtxSetCurrent, pool->device->context);
	if (err < 0 || m->stream)
		return err;

	err = cuda_try(f, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	if (err == 0)
		m->stream = stream;
	return err;
}

/* Whose bytes could a new block show? mempool_free() has cleared those of the block's last owner,
 * and a block whose free failed is never reused. But no documentation promises that memory which
 * the pool has just got from the system is zero, and the driver does not say where a block comes
 * from. So both allocation and free clear it: 1 GiB takes 0.25 ms (4.3 TB/s measured on an H200).
 */
static int scrub(CUdeviceptr address, uint64_t bytes, CUstream stream, struct fault *f)
{
	return cuda_try(f, cuMemsetD8Async, address, 0, bytes, stream);
}

/* The export takes the CPU about 15 us, while the GPU clears: a pointer may be exported before the
 * stream is done, only not used (CUDA Driver API, cuMemPoolImportPointer). */
static int fill_in(CUstream stream, uint64_t bytes, struct pointer *p, struct fault *f)
{
	int err = scrub(p->address, bytes, stream, f);

	err = err ?: export_pointer(p->address, p->record, f);
	return err ?: cuda_try(f, cuStreamSynchronize, stream);
}

static int mempool_alloc(struct pool *pool, uint64_t bytes, struct block *ret, struct fault *f)
{
	_cleanup_(free_ptr) struct pointer *p = calloc(1, sizeof(*p));
	struct mempool *m = pool->impl;
	CUdeviceptr address = 0;
	int err;

	if (!p)
		return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");

	err = enter_context(pool, f);
	err = err ?: cuda_try(f, cuMemAllocFromPoolAsync, &address, bytes, m->pool, m->stream);
	if (err < 0)
		return err;

	p->address = address;
	err = fill_in(m->stream, bytes, p, f);
	if (err < 0) {
		cuda_undo(cuMemFreeAsync, address, m->stream);
		cuda_undo(cuStreamSynchronize, m->stream);
		return err;
	}

	*ret = BLOCK_NONE;
	ret->bytes = bytes;
	ret->pointer = take_ptr(p);
	return 0;
}

static int mempool_free(struct pool *pool, struct block *block, struct fault *f)
{
	const struct mempool *m = pool->impl;
	CUdeviceptr address = block->pointer->address;
	int err = enter_context(pool, f);

	err = err ?: scrub(address, block->bytes, m->stream, f);
	/* A memset reports a failure when it runs: only a clean block is given back. */
	err = err ?: cuda_try(f, cuStreamSynchronize, m->stream);
	err = err ?: cuda_try(f, cuMemFreeAsync, address, m->stream);
	return err ?: cuda_try(f, cuStreamSynchronize, m->stream);
}

/* The exported fd keeps the pool's physical memory even after the pool is destroyed, until it is
 * closed here and in every client (kept and freed, in proto/facts.h). */
static void mempool_close(struct pool *pool)
{
	struct mempool *m = take_ptr(pool->impl);

	/* Blocks that stay in use are still allocated: the driver keeps them until the process
	 * ends, and their importers keep them after that. */
	if (!pool->let_go) {
		if (m->stream)
			cuda_undo(cuStreamDestroy, m->stream);
		destroy_pool(m->pool);
	}
	close_fd(&pool->pool_fd);
	free(m);
}

static int mempool_verify(struct pool *pool, int fd, struct fault *f)
{
	CUresult result = import_once(fd);
	struct fault ignored;
	int err = cuda_fault(f, CUDA_INDEX(cuMemPoolImportFromShareableHandle), result);

	if (!cuda_refuses_handle(result))
		return err;
	return try_fresh_one(pool, &ignored) == 0 ? -ESTALE : err;
}

const struct pool_ops mempool_ops = {
	.kind = POOL_MEMPOOL,
	.reuses_pending = false,
	.max_block_why = "importing a larger one would end the importer inside the driver; "
			 "use a vmm pool",
	.open = mempool_open,
	.alloc = mempool_alloc,
	.free = mempool_free,
	.close = mempool_close,
	.verify = mempool_verify,
};
