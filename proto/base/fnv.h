/* SPDX-License-Identifier: MIT
 *
 * FNV-1a with 64 bits (Fowler, Noll, Vo). It finds and compares; it protects nothing.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FNV1A_BASIS 0xcbf29ce484222325u /* the hash of no bytes */

/* Adds bytes to a hash, which starts as FNV1A_BASIS. */
static inline uint64_t fnv1a(uint64_t hash, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ p[i]) * 0x100000001b3u; /* the prime 2^40 + 0x1b3 */
	return hash;
}
