/* SPDX-License-Identifier: MIT
 *
 * Allocation handles of cuMemCreate and cuMemImportFromShareableHandle.
 */
#pragma once

#include "tests/fakecuda/fake_memory.h"

/* The memory of a handle, borrowed, or NULL. */
struct memory *vmm_memory(CUmemGenericAllocationHandle handle);
unsigned long vmm_alive(void);

/* Whether memory may be there, with its location made physical. INVALID_DEVICE, INVALID_VALUE. */
CUresult vmm_place(CUmemLocation location, bool shareable, struct memory_tag *ret);
