/* SPDX-License-Identifier: MIT
 *
 * XXH3-64 of one block. The code is compiled once for each set of instructions that makes it
 * faster: with 256-bit vectors it hashes twice as fast as with those that every processor has, and
 * a load hashes while it copies.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct block_hash; /* the state; one for each thread */

struct block_hash_code {
	struct block_hash *(*new)(void); /* NULL: out of memory */
	void (*free)(struct block_hash *h);
	void (*begin)(struct block_hash *h);
	void (*add)(struct block_hash *h, const void *bytes, size_t n);
	uint64_t (*end)(const struct block_hash *h);
};

/* The sets besides the plain one, the best first, as __builtin_cpu_supports() names them. The
 * models.mk compiles block_hash.c for each (BLOCK_HASH_SETS). */
#if defined(__x86_64__)
#define BLOCK_HASH_SETS(X) X(avx512f) X(avx2)
#else
#define BLOCK_HASH_SETS(X)
#endif

#define BLOCK_HASH_DECLARE(set) extern const struct block_hash_code block_hash_##set;
BLOCK_HASH_SETS(BLOCK_HASH_DECLARE)
extern const struct block_hash_code block_hash_plain;
