/* SPDX-License-Identifier: MIT
 *
 * mempool memory: the daemon's whole pool is imported once, from its fd; then each buffer costs a
 * pointer record of 64 bytes. The driver has no read-only access here (it refuses
 * cuMemPoolSetAccess with PROT_READ), so that one map serves readers and writers. It does not count
 * imports of a pointer, so the register of maps does.
 *
 * An imported pool is kept as long as a connection that has used it, not as its buffers: it keeps
 * the pool's physical memory in the daemon, but so does the fd, which the connection has anyway,
 * and importing the pool again for each first buffer would cost 150 us. Pools are imported and
 * destroyed under one lock: drivers were seen to crash when one pool was destroyed while another
 * was exported.
 */
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/base/process.h"
#include "client/lib/map/cuda.h"
#include "proto/base/own.h"

#include <stdint.h>
#include <string.h>

/* Above 5,248 MiB an import kills the process inside the driver (580.159, measured); the daemon
 * refuses to make such a buffer above 4 GiB. */
#define POINTER_BYTES_MAX (4ull << 30)

struct map_import {
	struct map_import *next; /* process::imports */
	unsigned char daemon[DAEMON_ID_BYTES];
	uint32_t id;
	CUmemoryPool pool;
	unsigned users;	  /* struct map_pool of connections that have it in use */
	uint64_t devices; /* bit n: GPU n has access */
};
_Static_assert(sizeof(CUmemPoolPtrExportData) == RECORD_BYTES, "a record is the driver's");

static struct map_import *find(struct process *self, const struct map_pool *pool)
{
	struct map_import *i = self->imports;

	while (i && (i->id != pool->id || memcmp(i->daemon, pool->daemon, sizeof(i->daemon)) != 0))
		i = i->next;
	return i;
}

static int import_pool(struct process *self, const struct map_request *r, struct map_import **ret)
{
	struct map_import *i = calloc(1, sizeof(*i));
	int result;

	if (!i)
		return error_set(ENOMEM, "out of memory for a pool");
	result = cuda_try(cuMemPoolImportFromShareableHandle, &i->pool, (void *)(uintptr_t)r->fd,
			  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (result < 0) {
		free(i);
		return result;
	}
	memcpy(i->daemon, r->pool->daemon, sizeof(i->daemon));
	i->id = r->pool->id;
	i->next = self->imports;
	self->imports = i;
	*ret = i;
	return 0;
}

static int give_access(struct map_import *i, int device)
{
	CUmemAccessDesc access = window_access(CU_MEM_LOCATION_TYPE_DEVICE, device, true);
	int r = 0;

	if (!(i->devices & 1ull << device))
		r = cuda_try(cuMemPoolSetAccess, i->pool, &access, 1);
	if (r == 0)
		i->devices |= 1ull << device;
	return r;
}

static void destroy(struct process *self, struct map_import *i)
{
	struct map_import **at = &self->imports;

	while (*at != i)
		at = &(*at)->next;
	*at = i->next;
	/* If the driver refuses, the pool stays imported until the process ends. */
	cuda.cuMemPoolDestroy(i->pool);
	free(i);
}

void map_pool_done(struct map_pool *pool)
{
	struct process *self = process();
	struct map_import *i;

	if (!pool->imported)
		return;
	lock_guard(&self->import_lock, LOCK_IMPORTS);
	i = find(self, pool);
	pool->imported = false;
	if (i && --i->users == 0)
		destroy(self, i);
}

static int prepare_pool(struct process *self, const struct map_request *r, int device)
{
	struct map_import *i = find(self, r->pool);
	_cleanup_(map_leave) struct map_entered entered = { 0 };
	int result;

	if (i && r->pool->imported && i->devices & 1ull << device)
		return 0;
	if (!i && r->fd < 0)
		return error_set(EPROTO, "the daemon has not sent the pool's handle");
	result = map_enter(device, &entered);
	if (result < 0)
		return result;
	if (!i)
		result = import_pool(self, r, &i);
	if (result == 0) {
		i->users += !r->pool->imported;
		r->pool->imported = true;
		result = give_access(i, device);
	}
	return result;
}

static int mempool_prepare(const struct map_request *r, int *ret_owner, int *ret_device)
{
	struct process *self = process();
	int result;

	if (r->allocated_bytes > POINTER_BYTES_MAX)
		return error_set(EPROTO,
				 "the daemon made a mempool buffer of %llu bytes; above 4 GiB "
				 "importing it would end this process",
				 (unsigned long long)r->allocated_bytes);
	result = context_find_devices(r, ret_owner, ret_device);
	if (result < 0)
		return result;
	lock_guard(&self->import_lock, LOCK_IMPORTS);
	return prepare_pool(self, r, *ret_device);
}

static int import_pointer(const struct map_request *r, struct map_import *i, struct map_private *p)
{
	CUmemPoolPtrExportData record;
	_cleanup_(map_leave) struct map_entered entered;
	CUdeviceptr ptr = 0;
	int result = map_enter(p->device, &entered);

	if (result < 0)
		return result;
	memcpy(&record, r->record, sizeof(record));
	result = cuda_try(cuMemPoolImportPointer, &ptr, i->pool, &record);
	p->import = i;
	p->map.device_ptr = (void *)(uintptr_t)ptr;
	return result;
}

static int mempool_map(const struct map_request *r, struct map_private *p)
{
	struct process *self = process();
	struct map_import *i;

	lock_take(&self->import_lock, LOCK_IMPORTS);
	i = find(self, r->pool); /* not NULL: this connection uses it since prepare */
	lock_drop(&self->import_lock);
	return import_pointer(r, i, p);
}

static int mempool_unmap(struct map_private *p, bool keep)
{
	_cleanup_(map_leave) struct map_entered entered;
	CUresult result;
	int r = map_enter(p->device, &entered);

	if (r < 0)
		return r;
	r = cuda_try(cuMemFreeAsync, (uintptr_t)p->map.device_ptr, NULL);
	/* The daemon must not free its side before the stream has passed the free. */
	result = cuda.cuStreamSynchronize(NULL);
	return r < 0 ? r : cuda_check("cuStreamSynchronize", result);
}

static int mempool_share(struct map_private *p, int device)
{
	lock_guard(&process()->import_lock, LOCK_IMPORTS);
	return give_access(p->import, device);
}

/* protect is never called: the kind has no read-only maps. */
const struct map_kind map_mempool = { .prepare = mempool_prepare,
				      .map = mempool_map,
				      .unmap = mempool_unmap,
				      .share = mempool_share };
