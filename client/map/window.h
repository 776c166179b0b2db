/* SPDX-License-Identifier: MIT
 *
 * A window of addresses on memory that came as an fd of the driver's: what vmm and pinned share.
 */
#ifndef GPUSHM_CLIENT_MAP_WINDOW_H
#define GPUSHM_CLIENT_MAP_WINDOW_H

#include "client/map/cuda.h"

/* Imports the fd, which stays the caller's, and maps all its bytes with that access. 0 or -errno
 * with gpushm_error() set; then nothing is left. Needs no context. */
int window_open(const struct cuda *cu, int fd, size_t bytes, const CUmemAccessDesc *access,
		size_t n_access, CUdeviceptr *ret);

/* Changes the access of those that `access` names. 0 or -errno. */
int window_set_access(const struct cuda *cu, CUdeviceptr ptr, size_t bytes,
		      const CUmemAccessDesc *access, size_t n_access);

/* 0, or -errno where the memory may still be mapped. */
int window_close(const struct cuda *cu, CUdeviceptr ptr, size_t bytes);

#endif
