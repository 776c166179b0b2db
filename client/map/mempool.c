/* SPDX-License-Identifier: MIT
 *
 * mempool memory: the daemon's whole pool is imported once, from its fd, and then each buffer costs
 * a pointer record of 64 bytes. The driver knows no read-only here (cuMemPoolSetAccess with
 * PROT_READ is refused), so one map serves readers and writers; and it does not count imports of a
 * pointer, which is why the register does.
 *
 * An imported pool stays as long as a connection that has used it, not as its buffers: it keeps the
 * pool's physical memory alive in the daemon, but so does the fd, which the connection holds
 * anyway, and importing anew for each first buffer would cost 150 us. Pools are imported and let go
 * under one lock: drivers were seen to crash when a pool ended beside another one's export.
 */
#include "client/base/error.h"
#include "client/base/process.h"
#include "client/map/context.h"
#include "client/map/kind.h"
#include "proto/base/own.h"

#include <stdint.h>
#include <string.h>

/* Above 5,248 MiB an import kills the process inside the driver (580.159, measured); the daemon
 * refuses to make such a buffer above 4 GiB. */
#define POINTER_BYTES_MAX (4ull << 30)

struct map_import {
	struct map_import *next; /* state::imports */
	unsigned char daemon[DAEMON_ID_BYTES];
	uint32_t id;
	CUmemoryPool pool;
	unsigned users;	  /* struct map_pool of connections that have it in use */
	uint64_t devices; /* bit n: GPU n has access */
};
_Static_assert(sizeof(CUmemPoolPtrExportData) == RECORD_BYTES, "a record is the driver's");

static struct map_import *find(struct state *s, const struct map_pool *pool)
{
	struct map_import *i = s->imports;

	while (i && (i->id != pool->id || memcmp(i->daemon, pool->daemon, sizeof(i->daemon)) != 0))
		i = i->next;
	return i;
}

static int import_pool(const struct cuda *cu, struct state *s, const struct map_request *r,
		       struct map_import **ret)
{
	struct map_import *i = calloc(1, sizeof(*i));
	CUresult result;

	if (!i)
		return error_set(ENOMEM, "out of memory for a pool");
	result = cu->mempool_import(&i->pool, (void *)(uintptr_t)r->fd,
				    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (result != CUDA_SUCCESS) {
		free(i);
		return cuda_failed("cuMemPoolImportFromShareableHandle", result);
	}
	memcpy(i->daemon, r->pool->daemon, sizeof(i->daemon));
	i->id = r->pool->id;
	i->next = s->imports;
	s->imports = i;
	*ret = i;
	return 0;
}

static int give_access(const struct cuda *cu, struct map_import *i, int device)
{
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
						 .id = device },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUresult result;

	if (i->devices & 1ull << device)
		return 0;
	result = cu->mempool_set_access(i->pool, &access, 1);
	if (result != CUDA_SUCCESS)
		return cuda_failed("cuMemPoolSetAccess", result);
	i->devices |= 1ull << device;
	return 0;
}

static void use(struct map_import *i, struct map_pool *pool)
{
	i->users += !pool->imported;
	pool->imported = true;
}

static void drop(struct state *s, struct map_import *i)
{
	struct map_import **at = &s->imports;
	const struct cuda *cu;

	while (*at != i)
		at = &(*at)->next;
	*at = i->next;
	/* If the driver won't, the pool stays imported until the process ends. */
	if (cuda_start(&cu) == 0)
		cu->mempool_destroy(i->pool);
	free(i);
}

void map_pool_done(struct map_pool *pool)
{
	struct state *s = state();
	struct map_import *i;

	pthread_mutex_lock(&s->import_lock);
	i = pool->imported ? find(s, pool) : NULL;
	pool->imported = false;
	if (i && --i->users == 0)
		drop(s, i);
	pthread_mutex_unlock(&s->import_lock);
}

static int prepare_pool(const struct cuda *cu, struct state *s, const struct map_request *r,
			int device)
{
	struct map_import *i = find(s, r->pool);
	struct map_entered entered;
	int result;

	if (i && r->pool->imported && i->devices & 1ull << device)
		return 0;
	if (!i && r->fd < 0)
		return error_set(EPROTO, "the daemon has not sent the pool's handle");
	result = context_enter(cu, device, &entered);
	if (result < 0)
		return result;
	if (!i)
		result = import_pool(cu, s, r, &i);
	if (result == 0)
		use(i, r->pool);
	if (result == 0)
		result = give_access(cu, i, device);
	context_leave(cu, &entered);
	return result;
}

static int mempool_prepare(const struct map_request *r, int *ret_device)
{
	struct state *s = state();
	const struct cuda *cu;
	int owner, result;

	if (r->allocated_bytes > POINTER_BYTES_MAX)
		return error_set(EPROTO,
				 "the daemon made a mempool buffer of %llu bytes; above 4 "
				 "GiB importing it would end this process",
				 (unsigned long long)r->allocated_bytes);
	result = cuda_start(&cu);
	if (result == 0)
		result = context_find_devices(cu, r, &owner, ret_device);
	if (result < 0)
		return result;
	pthread_mutex_lock(&s->import_lock);
	result = prepare_pool(cu, s, r, *ret_device);
	pthread_mutex_unlock(&s->import_lock);
	return result;
}

static int import_pointer(const struct cuda *cu, const struct map_request *r, CUmemoryPool pool,
			  struct map_private *p)
{
	CUmemPoolPtrExportData record;
	struct map_entered entered;
	CUdeviceptr ptr = 0;
	CUresult result;
	int status = context_enter(cu, p->device, &entered);

	if (status < 0)
		return status;
	memcpy(&record, r->record, sizeof(record));
	result = cu->mempool_import_pointer(&ptr, pool, &record);
	context_leave(cu, &entered);
	if (result != CUDA_SUCCESS)
		return cuda_failed("cuMemPoolImportPointer", result);
	p->map.device_ptr = (void *)(uintptr_t)ptr;
	return 0;
}

static int mempool_map(const struct map_request *r, struct map_private *p)
{
	struct state *s = state();
	const struct map_import *i;
	const struct cuda *cu;
	int owner, device, result = cuda_start(&cu);

	if (result == 0)
		result = context_find_devices(cu, r, &owner, &device);
	if (result < 0)
		return result;
	pthread_mutex_lock(&s->import_lock);
	i = find(s, r->pool); /* there: the connection that asks has it in use since prepare */
	pthread_mutex_unlock(&s->import_lock);
	p->map.device = owner;
	return import_pointer(cu, r, i->pool, p);
}

static int mempool_unmap(struct map_private *p)
{
	struct map_entered entered;
	const struct cuda *cu;
	CUresult result;
	int r = cuda_start(&cu);

	if (r == 0)
		r = context_enter(cu, p->device, &entered);
	if (r < 0)
		return r;
	result = cu->mem_free_async((uintptr_t)p->map.device_ptr, NULL);
	if (result != CUDA_SUCCESS)
		r = cuda_failed("cuMemFreeAsync", result);
	/* Until the stream has passed the free, the daemon must not free its side. */
	result = cu->stream_synchronize(NULL);
	if (r == 0 && result != CUDA_SUCCESS)
		r = cuda_failed("cuStreamSynchronize", result);
	context_leave(cu, &entered);
	return r;
}

static int mempool_synchronize(const struct map_private *p)
{
	const struct cuda *cu;
	int result = cuda_start(&cu);

	if (result < 0)
		return result;
	for (uint64_t left = p->used_from; left; left &= left - 1) {
		int r = context_synchronize(cu, __builtin_ctzll(left));

		result = result < 0 ? result : r;
	}
	return result;
}

/* protect is never called: the kind does not know access. */
const struct map_kind map_mempool = { .prepare = mempool_prepare,
				      .map = mempool_map,
				      .unmap = mempool_unmap,
				      .synchronize = mempool_synchronize };
