/* SPDX-License-Identifier: MIT
 *
 * Bytes of GPUs, through pinned memory: a copy by the GPU into pinned memory is several times as
 * fast as one into other memory. All readers share a number of pieces of it,
 * for which gpushm_private_mapping_limit() sets the bytes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Copies n bytes at a GPU's address; waits for a piece of pinned memory if others have all of them.
 * device: a CUDA ordinal. 0, or -ENODEV, -ENOMEM, -EIO with gpushm_error() set. */
int copier_read(int device, uint64_t from, void *to, size_t n);
