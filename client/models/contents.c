/* SPDX-License-Identifier: MIT
 *
 * Digests of a buffer as the file that it is for others. A file whose pieces lie side by side in
 * arrays is hashed by several threads, as a verification does it; one with strided arrays by one
 * thread, which gathers each block.
 */
#include "client/gpushm_load_private.h"

#include "client/gpushm_private.h"
#include "client/models/copy/readback.h"
#include "client/models/fail.h"
#include "client/models/files/arrays.h"
#include "proto/base/own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As a plan whose file is the data of the safetensors file. */
static int plan_of(const struct mapping *m, struct plan *ret)
{
	*ret = (struct plan){ .runs = calloc(m->n + 1, sizeof(*ret->runs)),
			      .n = m->n,
			      .bytes = m->size - m->n_header };
	if (!ret->runs)
		return load_no_memory();
	for (size_t i = 0; i < m->n; i++)
		ret->runs[i] = (struct run){ .file_offset = m->pieces[i].begin,
					     .buffer_offset = m->pieces[i].buffer_offset,
					     .bytes = m->pieces[i].bytes };
	return 0;
}

static int hash_plain(const struct mapping *m, struct digest *ret)
{
	const struct readback back = { .buffer = m->buffer };
	struct plan plan;
	uint64_t elapsed;
	int r = plan_of(m, &plan);

	if (r == 0)
		r = readback_digest_plan(&back, &plan, m->device, ret, &elapsed);
	free(plan.runs);
	return r;
}

static int hash_gathered(const struct mapping *m, struct digest *ret)
{
	const struct block_hash_code *code = digest_code();
	_cleanup_(free_ptr) char *bytes = malloc(BLOCK_BYTES);
	struct block_hash *hash = code->new ();
	uint64_t data = m->size - m->n_header;
	int r = digest_init(ret, (data + BLOCK_BYTES - 1) / BLOCK_BYTES);

	if (!hash || !bytes)
		r = gpushm_private_fail(ENOMEM, "out of memory for a digest");
	for (uint64_t i = 0; r == 0 && i < ret->n; i++) {
		uint64_t at = i * BLOCK_BYTES;
		size_t n = data - at < BLOCK_BYTES ? (size_t)(data - at) : BLOCK_BYTES;

		r = gpushm_private_mapping_read(m, m->n_header + at, bytes, n);
		code->begin(hash);
		code->add(hash, bytes, n);
		digest_set(ret, i, code->end(hash));
	}
	if (hash)
		code->free(hash);
	return r;
}

/* gpushm_load()'s digest is over the bytes of all arrays in the order of the buffer. It is the
 * file's digest, too, if the file has just these in that order. */
static bool has_same_order(const struct mapping *m)
{
	struct plan plan = { 0 };
	bool same = m->plain && arrays_plan(m->arrays, &plan) == 0 &&
		    plan.bytes == m->size - m->n_header;

	for (size_t i = 1; i < m->n; i++)
		same &= m->pieces[i - 1].buffer_offset < m->pieces[i].buffer_offset;
	free(plan.runs);
	return same;
}

bool gpushm_private_mapping_content(const struct mapping *m, char ret[DIGEST_TEXT])
{
	return has_same_order(m) && digest_of(m->buffer, ret) && strncmp(ret, "xxh3:", 5) == 0 &&
	       strlen(ret + 5) == 16 && strspn(ret + 5, "0123456789abcdef") == 16;
}

int gpushm_private_mapping_hash(const struct mapping *m, uint64_t **ret_blocks, uint64_t *ret_n,
				char ret_content[DIGEST_TEXT])
{
	struct digest digest = { 0 };
	int r = m->plain ? hash_plain(m, &digest) : hash_gathered(m, &digest);

	if (r < 0) {
		digest_clear(&digest);
		return r;
	}
	digest_format(&digest, ret_content);
	*ret_blocks = digest.hashes;
	*ret_n = digest.n;
	return 0;
}

void gpushm_private_mapping_hash_header(const struct mapping *m, char ret[17])
{
	unsigned char hash[SHA256_DIGEST_SIZE];
	struct sha256_ctx ctx;

	sha256_init(&ctx);
	sha256_update(&ctx, m->n_header, (const uint8_t *)m->header);
	sha256_digest(&ctx, sizeof(hash), hash);
	for (int i = 0; i < 8; i++)
		sprintf(ret + 2 * i, "%02x", hash[i]);
}
