/* SPDX-License-Identifier: MIT
 *
 * From all bytes at once, with the hash of the library's header.
 */
#include "tests/lib/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define BLOCK ((size_t)4 << 20)

void naive_digest(const void *bytes, size_t n, char ret[NAIVE_DIGEST_TEXT])
{
	size_t blocks = (n + BLOCK - 1) / BLOCK;
	uint64_t *hashes = calloc(blocks + 1, sizeof(*hashes));

	for (size_t i = 0; i < blocks; i++) {
		size_t left = n - i * BLOCK;

		hashes[i] =
			XXH3_64bits((const char *)bytes + i * BLOCK, left < BLOCK ? left : BLOCK);
	}
	snprintf(ret, NAIVE_DIGEST_TEXT, "xxh3:%016" PRIx64,
		 (uint64_t)XXH3_64bits(hashes, blocks * sizeof(*hashes)));
	free(hashes);
}
