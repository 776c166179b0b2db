/* SPDX-License-Identifier: MIT
 *
 * One of the codes of block_hash.h: BLOCK_HASH is its name. xxhash.h chooses the vectors by what
 * the compiler was told, and everything in it is inline, so that the codes share no function.
 */
#include "client/models/copy/block_hash.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <xxhash.h>

#ifndef BLOCK_HASH
#define BLOCK_HASH block_hash_plain
#endif

struct block_hash {
	XXH3_state_t state;
};

static struct block_hash *hash_new(void)
{
	return aligned_alloc(_Alignof(struct block_hash), sizeof(struct block_hash));
}

static void hash_free(struct block_hash *h)
{
	free(h);
}

static void hash_begin(struct block_hash *h)
{
	XXH3_64bits_reset(&h->state);
}

static void hash_add(struct block_hash *h, const void *bytes, size_t n)
{
	XXH3_64bits_update(&h->state, bytes, n);
}

static uint64_t hash_end(const struct block_hash *h)
{
	return XXH3_64bits_digest(&h->state);
}

const struct block_hash_code BLOCK_HASH = {
	.new = hash_new,
	.free = hash_free,
	.begin = hash_begin,
	.add = hash_add,
	.end = hash_end,
};
