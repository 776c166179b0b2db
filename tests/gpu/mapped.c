/* SPDX-License-Identifier: MIT
 *
 * Mappings without the library: import, reserve, map, set access; for a mempool, import of a
 * pointer.
 */
#include "tests/gpu/mapped.h"

#include "proto/base/own.h"

#include <check.h>
#include <stdint.h>
#include <string.h>

#define must(call)                                                         \
	do {                                                               \
		CUresult result_ = (call);                                 \
		if (result_ != CUDA_SUCCESS)                               \
			ck_abort_msg("%s: CUDA error %d", #call, result_); \
	} while (0)

void mapped_init(struct mapped *m, const struct driver *gpu, const Gpushm__Proto__Pool *pool,
		 size_t bytes)
{
	*m = (struct mapped){ .gpu = gpu, .kind = (enum gpushm_kind)pool->kind, .bytes = bytes };
	m->numa_node = pool->has_numa_node ? pool->numa_node : 0;
	m->words = aligned_alloc(4096, bytes);
	ck_assert_ptr_nonnull(m->words);
	memset(m->words, 0, bytes);
	must(gpu->mem_host_register(m->words, bytes, 0));
}

void mapped_done(struct mapped *m)
{
	mapped_close(m);
	if (m->pool)
		must(m->gpu->mempool_destroy(m->pool));
	must(m->gpu->mem_host_unregister(m->words));
	free_ptr(&m->words);
}

void mapped_import_pool(struct mapped *m, int fd)
{
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	must(m->gpu->mempool_import(&m->pool, (void *)(uintptr_t)fd,
				    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	must(m->gpu->mempool_set_access(m->pool, &access, 1));
}

static void open_fd(struct mapped *m, int fd)
{
	const CUmemAccessDesc access[] = {
		{ .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
		  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE },
		{ .location = { .type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = m->numa_node },
		  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE },
	};
	CUmemGenericAllocationHandle handle;

	must(m->gpu->mem_import(&handle, (void *)(uintptr_t)fd,
				CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	must(m->gpu->mem_address_reserve(&m->ptr, m->bytes, 0, 0, 0));
	must(m->gpu->mem_map(m->ptr, m->bytes, 0, handle, 0));
	must(m->gpu->mem_set_access(m->ptr, m->bytes, access, m->kind == GPUSHM_PINNED ? 2 : 1));
	must(m->gpu->mem_release(handle));
}

void mapped_open(struct mapped *m, const Gpushm__Proto__Attach *attach, int fd)
{
	CUmemPoolPtrExportData record;

	ck_assert(m->ptr == 0);
	if (m->kind != GPUSHM_MEMPOOL) {
		ck_assert_uint_eq(attach->allocated_bytes, m->bytes);
		open_fd(m, fd);
		return;
	}
	ck_assert_uint_eq(attach->record.len, sizeof(record));
	memcpy(&record, attach->record.data, sizeof(record));
	must(m->gpu->mempool_import_pointer(&m->ptr, m->pool, &record));
}

void mapped_close(struct mapped *m)
{
	if (!m->ptr)
		return;
	if (m->kind == GPUSHM_MEMPOOL) {
		must(m->gpu->mem_free_async(m->ptr, NULL));
		must(m->gpu->stream_synchronize(NULL));
	} else {
		must(m->gpu->mem_unmap(m->ptr, m->bytes));
		must(m->gpu->mem_address_free(m->ptr, m->bytes));
	}
	m->ptr = 0;
}

void mapped_read(struct mapped *m)
{
	if (m->kind == GPUSHM_PINNED)
		memcpy(m->words, (const void *)m->ptr, m->bytes);
	else
		must(m->gpu->memcpy_dtoh(m->words, m->ptr, m->bytes));
}

void mapped_fill(struct mapped *m, unsigned value)
{
	for (size_t i = 0; i < m->bytes / sizeof(value); i++)
		m->words[i] = value;
	if (m->kind == GPUSHM_PINNED)
		memcpy((void *)m->ptr, m->words, m->bytes);
	else
		must(m->gpu->memcpy_htod(m->ptr, m->words, m->bytes));
}
