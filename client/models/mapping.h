/* SPDX-License-Identifier: MIT
 *
 * A buffer as the safetensors file that it is for others: struct mapping.
 */
#pragma once

#include "client/gpushm_load_private.h"

/* The piece that has this byte of the file; NULL: the byte belongs to the header, or
 * lies behind the file. */
const struct piece *mapping_find(const struct mapping *m, uint64_t offset);
