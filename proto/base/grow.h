/* SPDX-License-Identifier: MIT
 *
 * An array that grows by one member at a time. Its capacity is the next power of two, so that only
 * the count needs to be stored.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

/* Returns items, perhaps moved, with space for one more than n members of `size` bytes. NULL: out
 * of memory, and items is unchanged. */
static inline void *grow(void *items, size_t n, size_t size)
{
	if ((n & (n - 1)) != 0)
		return items;
	return reallocarray(items, n == 0 ? 1 : 2 * n, size);
}

/* Adds a zeroed member to the array that `items` points to, counts it, and returns it. NULL: out of
 * memory. */
static inline void *grow_append(void *items, size_t *n, size_t size)
{
	char *array;

	/* The pointer has another type there. */
	memcpy(&array, items, sizeof(array));
	array = (char *)grow(array, *n, size);
	if (!array)
		return NULL;
	memcpy(items, &array, sizeof(array));
	return memset(array + size * (*n)++, 0, size);
}
