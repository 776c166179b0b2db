/* SPDX-License-Identifier: MIT
 *
 * A buffer as the safetensors file that it is for others: struct mapping.
 */
#pragma once

#include "client/gpushm_load_private.h"

/* The piece that has this byte of the file; NULL: it is the header's, or there is none. */
const struct piece *mapping_find(const struct mapping *m, uint64_t offset);
