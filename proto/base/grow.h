/* SPDX-License-Identifier: MIT
 *
 * An array that grows by one member at a time. Its capacity is the next power of two, so that only
 * the count needs to be stored.
 */
#pragma once

#include <stdlib.h>

/* Returns items, perhaps moved, with space for one more than n members of `size` bytes. NULL: out
 * of memory, and items is unchanged. */
static inline void *grow(void *items, size_t n, size_t size)
{
	if ((n & (n - 1)) != 0)
		return items;
	return reallocarray(items, n == 0 ? 1 : 2 * n, size);
}
