/* SPDX-License-Identifier: MIT
 *
 * Where each block starts is computed once, so that threads find any block at once. A hash is kept
 * as its 8 bytes, little end first, so that a digest is the same on every machine.
 */
#include "client/models/copy/blocks.h"

#include "client/gpushm_private.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- digests ---- */

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

bool digest_of(const struct gpushm_buffer *b, char ret[DIGEST_TEXT])
{
	const void *text;
	size_t size;

	if (gpushm_buffer_attr(b, "gpushm.content", &text, &size) < 0 || size >= DIGEST_TEXT)
		return false;
	memcpy(ret, text, size);
	ret[size] = '\0';
	return true;
}

/* ---- blocks ---- */

static void find_starts(struct blocks *b)
{
	const struct run *runs = b->plan->runs;
	struct block_start at = { 0 };

	for (uint64_t i = 0; i < b->n; i++) {
		b->starts[i] = at;
		at.skip += BLOCK_BYTES;
		while (at.run < b->plan->n && at.skip >= runs[at.run].bytes)
			at.skip -= runs[at.run++].bytes;
	}
}

int blocks_init(struct blocks *b, const struct plan *plan)
{
	*b = (struct blocks){ .plan = plan,
			      .n = plan->bytes / BLOCK_BYTES + (plan->bytes % BLOCK_BYTES != 0) };
	b->starts = calloc(b->n + 1, sizeof(*b->starts));
	if (!b->starts)
		return gpushm_private_fail(ENOMEM, "out of memory for %zu runs of bytes", plan->n);
	find_starts(b);
	return 0;
}

void blocks_clear(struct blocks *b)
{
	free(b->starts);
	b->starts = NULL;
}

unsigned blocks_threads(uint64_t n, unsigned most)
{
	return n == 0 ? 1 : n < most ? (unsigned)n : most;
}

struct cursor blocks_cursor(const struct blocks *b, uint64_t block)
{
	uint64_t left = b->plan->bytes - block * BLOCK_BYTES;

	return (struct cursor){ .run = &b->plan->runs[b->starts[block].run],
				.skip = b->starts[block].skip,
				.left = left < BLOCK_BYTES ? left : BLOCK_BYTES };
}

bool cursor_next(struct cursor *c, struct run *ret)
{
	uint64_t n;

	if (c->left == 0)
		return false;
	n = c->run->bytes - c->skip;
	n = n < c->left ? n : c->left;
	*ret = (struct run){ .file = c->run->file,
			     .file_offset = c->run->file_offset + c->skip,
			     .buffer_offset = c->run->buffer_offset + c->skip,
			     .bytes = n };
	c->left -= n;
	c->skip += n;
	if (c->skip == c->run->bytes) {
		c->run++;
		c->skip = 0;
	}
	return true;
}

static bool follows_in_file(const struct run *a, const struct run *b)
{
	return a->file == b->file && a->file_offset + a->bytes == b->file_offset;
}

static bool follows_in_buffer(const struct run *a, const struct run *b)
{
	return a->buffer_offset + a->bytes == b->buffer_offset;
}

static bool next_joined(struct cursor *c, bool (*follows)(const struct run *, const struct run *),
			struct run *ret)
{
	struct cursor ahead;
	struct run part;

	if (!cursor_next(c, ret))
		return false;
	for (ahead = *c; cursor_next(&ahead, &part) && follows(ret, &part); *c = ahead)
		ret->bytes += part.bytes;
	return true;
}

bool cursor_next_in_file(struct cursor *c, struct run *ret)
{
	return next_joined(c, follows_in_file, ret);
}

bool cursor_next_in_buffer(struct cursor *c, struct run *ret)
{
	return next_joined(c, follows_in_buffer, ret);
}
