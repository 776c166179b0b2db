/* SPDX-License-Identifier: MIT
 *
 * An array that grows by one: its room is the next power of two, so that only the count is kept.
 */
#ifndef GPUSHM_PROTO_BASE_GROW_H
#define GPUSHM_PROTO_BASE_GROW_H

#include <stdlib.h>

/* items, moved if need be, with room for one more than n members of `size` bytes. NULL where memory
 * ran out: then items is as it was. */
static inline void *grow(void *items, size_t n, size_t size)
{
	if ((n & (n - 1)) != 0)
		return items;
	return reallocarray(items, n == 0 ? 1 : 2 * n, size);
}

#endif
