/* SPDX-License-Identifier: MIT
 *
 * A pool pointer's way into another process. An exported pointer has a line in the table behind the
 * pool's data, with a random number while it lives; the 64-byte record carries both, so that an
 * importer knows a stale one. An importer holds a read lock on the bytes that it uses, on an open
 * file of its own; the exporter's free asks the kernel for locks there. A killed importer has none.
 */
#include "tests/fakecuda/fake_pointer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define RECORDS (MEMORY_EXTRA / sizeof(uint64_t))
#define IMPORT_MAX (5248ull << 20) /* driver 580: a larger one crashes inside the import */

struct record {
	uint64_t pool; /* memory_tag::serial */
	uint64_t offset, size;
	uint64_t number; /* of the table's line */
	uint32_t line, pad;
	uint64_t check;
};
_Static_assert(sizeof(struct record) <= sizeof(CUmemPoolPtrExportData), "a record fits");

static _Atomic uint64_t *table_line(const struct mempool *p, uint32_t line)
{
	return (_Atomic uint64_t *)p->memory->extra + line;
}

/* FNV-1a over all that stands before the check. */
static uint64_t record_check(const struct record *r)
{
	const unsigned char *bytes = (const unsigned char *)r;
	uint64_t sum = 14695981039346656037ull;

	for (size_t i = 0; i < offsetof(struct record, check); i++)
		sum = (sum ^ bytes[i]) * 1099511628211ull;
	return sum;
}

static CUresult lock_import(struct mempool *p, uint64_t offset, uint64_t bytes, short type)
{
	struct flock l = { .l_type = type, .l_start = offset, .l_len = bytes };

	return fcntl(p->lock_fd, F_OFD_SETLK, &l) < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

bool record_drop(struct pointer *it)
{
	struct flock l = { .l_type = F_WRLCK, .l_start = it->offset, .l_len = it->bytes };

	if (it->record != NO_RECORD)
		*table_line(it->mempool, it->record) = 0;
	return fcntl(it->mempool->memory->fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

void record_unlock(struct pointer *it)
{
	lock_import(it->mempool, it->offset, it->bytes, F_UNLCK);
}

static CUresult record_new(struct pointer *it)
{
	uint64_t number = 0;

	for (uint32_t line = 0; line < RECORDS; line++) {
		if (*table_line(it->mempool, line))
			continue;
		while (!number)
			if (getrandom(&number, sizeof(number), 0) < 0)
				return CUDA_ERROR_OPERATING_SYSTEM;
		*table_line(it->mempool, line) = number;
		it->record = line;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult pointer_export(CUmemPoolPtrExportData *ret, CUdeviceptr address)
{
	struct pointer *it = pointer_at(address);
	CUresult result;
	struct record r;

	if (!ret || !it || !it->mempool || !it->mempool->exported)
		return CUDA_ERROR_INVALID_VALUE;
	if (it->record == NO_RECORD) {
		result = record_new(it);
		if (result)
			return result;
	}
	r = (struct record){
		.pool = it->mempool->memory->tag.serial,
		.offset = it->offset,
		.size = it->range.size,
		.number = *table_line(it->mempool, it->record),
		.line = it->record,
	};
	r.check = record_check(&r);
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &r, sizeof(r));
	return CUDA_SUCCESS;
}

/* What the driver does, instead of an error. */
static void crash(const struct record *r)
{
	dprintf(STDERR_FILENO,
		"fakecuda: import of a pool pointer of %llu MiB: above 5248 the driver crashes\n",
		(unsigned long long)(r->size >> 20));
	signal(SIGSEGV, SIG_DFL);
	raise(SIGSEGV);
}

static CUresult import_new(struct mempool *p, const struct record *r, CUdeviceptr *ret)
{
	uint64_t bytes = pointer_round(r->size);
	struct pointer *it;
	CUresult result;

	if (r->size > IMPORT_MAX)
		crash(r);
	/* First the lock, then the look; the exporter clears the line, then asks for locks. */
	result = lock_import(p, r->offset, bytes, F_RDLCK);
	if (result)
		return result;
	if (*table_line(p, r->line) != r->number) {
		lock_import(p, r->offset, bytes, F_UNLCK);
		return misuse("import of a pool pointer that its exporter has freed");
	}
	result = pointer_new(p, r->offset, r->size, &it);
	if (result) {
		lock_import(p, r->offset, bytes, F_UNLCK);
		return result;
	}
	*ret = it->range.start;
	return CUDA_SUCCESS;
}

static CUresult pointer_import(CUdeviceptr *ret, CUmemoryPool pool,
			       const CUmemPoolPtrExportData *data)
{
	struct mempool *p = mempool_find(pool);
	struct pointer *there;
	struct record r;

	if (!ret || !data || !p || !p->memory->imported)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&r, data, sizeof(r));
	if (r.pool != p->memory->tag.serial || r.check != record_check(&r) || r.line >= RECORDS)
		return CUDA_ERROR_INVALID_VALUE;

	there = pointer_at((uintptr_t)p->base + r.offset);
	if (!there)
		return import_new(p, &r, ret);
	*ret = there->range.start;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr ptr)
{
	return FAKE_CALL(CALL_PLAIN, pointer_export(data, ptr));
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	return FAKE_CALL(CALL_PLAIN, pointer_import(ptr, pool, data));
}
