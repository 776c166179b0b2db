/* SPDX-License-Identifier: MIT
 *
 * A hash is kept as its 8 bytes, little end first, so that the digest is the same on every machine.
 */
#include "client/models/copy/digest.h"

#include "client/gpushm_private.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

int digest_init(struct digest *d, uint64_t blocks)
{
	d->n = blocks;
	d->hashes = calloc(blocks + 1, sizeof(*d->hashes));
	return d->hashes ? 0
			 : gpushm_private_fail(ENOMEM, "out of memory for %" PRIu64 " hashes",
					       blocks);
}

void digest_clear(struct digest *d)
{
	free(d->hashes);
	d->hashes = NULL;
}

void digest_set(struct digest *d, uint64_t block, uint64_t hash)
{
	d->hashes[block] = htole64(hash);
}

bool digest_differs(const struct digest *a, const struct digest *b, uint64_t *ret_block)
{
	for (uint64_t i = 0; i < a->n; i++) {
		if (a->hashes[i] != b->hashes[i]) {
			*ret_block = i;
			return true;
		}
	}
	return false;
}

const struct block_hash_code *digest_code(void)
{
#define CHOOSE(set)                       \
	if (__builtin_cpu_supports(#set)) \
		return &block_hash_##set;
	BLOCK_HASH_SETS(CHOOSE)
	return &block_hash_plain;
}

void digest_format(const struct digest *d, char *ret)
{
	uint64_t hash = XXH3_64bits(d->hashes, d->n * sizeof(*d->hashes));

	snprintf(ret, DIGEST_TEXT, "xxh3:%016" PRIx64, hash);
}
