/* SPDX-License-Identifier: MIT
 *
 * The digest of a buffer's contents, as gpushm_load.h defines it at gpushm_verify(): XXH3-64 of the
 * XXH3-64 hashes of blocks of BLOCK_BYTES. The blocks' hashes may come in any order and from any
 * thread.
 */
#pragma once

#include "client/gpushm_load_private.h"
#include "client/models/copy/block_hash.h"

#include <stdbool.h>
#include <stdint.h>

struct digest {
	uint64_t *hashes; /* owned; one for each block, little end first */
	uint64_t n;
};

/* 0 or -ENOMEM with gpushm_error() set. */
int digest_init(struct digest *d, uint64_t blocks);
void digest_clear(struct digest *d);

void digest_set(struct digest *d, uint64_t block, uint64_t hash);

/* Whether two digests of as many blocks differ, and in which block first. */
bool digest_differs(const struct digest *a, const struct digest *b, uint64_t *ret_block);

/* Writes "xxh3:0123456789abcdef". */
void digest_format(const struct digest *d, char *ret);

/* The code that is best for this processor. */
const struct block_hash_code *digest_code(void);
