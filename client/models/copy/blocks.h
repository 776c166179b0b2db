/* SPDX-License-Identifier: MIT
 *
 * A plan, cut into blocks of BLOCK_BYTES: the pieces of work of a load, save or verification, and
 * the blocks of the digest. A block is a few parts of runs.
 */
#pragma once

#include "client/gpushm_load_private.h"
#include "client/models/copy/block_hash.h"
#include "client/models/files/plan.h"

/* ---- digests ---- */

/* XXH3-64 hashes of the blocks, which may come in any order and from any thread. */
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

/* The text that a load, or gpushm_digest(), left with the buffer. False: the buffer has none. */
bool digest_of(const struct gpushm_buffer *b, char ret[DIGEST_TEXT]);

/* The code that is best for this processor. */
const struct block_hash_code *digest_code(void);

/* ---- blocks ---- */

struct block_start {
	size_t run;
	uint64_t skip; /* bytes of the run that are in blocks before */
};

struct blocks {
	const struct plan *plan;
	struct block_start *starts; /* owned; n of them */
	uint64_t n;
};

/* The plan must live as long. 0 or -ENOMEM with gpushm_error() set. */
int blocks_init(struct blocks *b, const struct plan *plan);
void blocks_clear(struct blocks *b);

/* How many threads have something to do: as many as there are blocks, at least one and at most
 * `most`. */
unsigned blocks_threads(uint64_t n, unsigned most);

/* A place in the plan, and how much is left to go from there. */
struct cursor {
	const struct run *run;
	uint64_t skip, left; /* bytes */
};

/* At the start of a block, with the whole block left. */
struct cursor blocks_cursor(const struct blocks *b, uint64_t block);

/* The next part: what is left of a run, or of the block. False at the end. */
bool cursor_next(struct cursor *c, struct run *ret);

/* The next parts that lie side by side in a file, as one, whose buffer_offset is that of the first.
 * False at the end. */
bool cursor_next_in_file(struct cursor *c, struct run *ret);

/* The same for parts that lie side by side in the buffer, whatever their files. */
bool cursor_next_in_buffer(struct cursor *c, struct run *ret);
