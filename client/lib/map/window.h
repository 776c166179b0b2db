/* SPDX-License-Identifier: MIT
 *
 * A range of addresses that maps one allocation of the driver's, imported from its fd: what vmm and
 * pinned memory share. After cuda_start(). All return 0, or -errno with gpushm_error() set.
 */
#pragma once

#include "client/lib/map/cuda.h"
#include "client/lib/map/map.h"

static inline CUmemAccessDesc window_access(CUmemLocationType where, int id, bool write)
{
	return (CUmemAccessDesc){ .location = { .type = where, .id = id },
				  .flags = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
						 : CU_MEM_ACCESS_FLAGS_PROT_READ };
}

/* Imports the fd, which stays the caller's, and maps all its bytes with that access: at *ptr, or,
 * if that is 0, at addresses that it reserves and writes there. An error leaves all as it was.
 * Needs no context. */
int window_open(int fd, size_t bytes, const CUmemAccessDesc *access, size_t n_access,
		CUdeviceptr *ptr);

/* map_kind::unmap for both kinds: for both map.device_ptr is the window. */
int window_unmap(struct map_private *p, bool keep);
