/* SPDX-License-Identifier: MIT
 *
 * Any bytes as what a relay grants by NIXL. What is accepted covers the file's data, and no part of
 * a read leaves the memory that it names.
 */
#include "client/models/nixl/grant.h"
#include "proto/base/own.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check_parts(const struct grant *g, uint64_t offset, uint64_t n)
{
	_cleanup_(free_ptr) struct nixl_part *parts = NULL;
	const uint64_t local = 1ull << 62;
	uint64_t sum = 0;
	size_t n_parts;

	assert(grant_parts(g, offset, n, local, &parts, &n_parts) == 0);
	for (size_t i = 0; i < n_parts; i++) {
		const struct nixl_part *p = &parts[i];

		assert(p->local == local + sum && p->bytes > 0);
		assert(p->remote >= g->memory.address);
		assert(p->bytes <= g->memory.bytes);
		assert(p->remote - g->memory.address <= g->memory.bytes - p->bytes);
		sum += p->bytes;
	}
	assert(sum == n);
}

static void check(const struct grant *g)
{
	uint64_t bytes = g->size - g->header;

	assert(g->header <= g->size && g->n_metadata > 0 && g->expires_s > 0);
	assert(strlen(g->session) == GRANT_SESSION);
	assert(!g->slots || g->slots * g->slot_bytes <= g->memory.bytes);
	if (g->slots || bytes == 0)
		return;
	check_parts(g, g->header, bytes);
	check_parts(g, g->size - 1, 1);
	check_parts(g, g->header + bytes / 3, bytes - bytes / 3);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	/* A copy of its exact size, so that ASan finds a read past its end. */
	_cleanup_(free_ptr) char *text = malloc(size + !size), *again = NULL;
	struct grant g;

	assert(text);
	memcpy(text, data, size);
	if (grant_parse("fuzz", text, size, &g) == 0) {
		check(&g);
		assert(gpushm_private_grant_format(&g, &again) == 0);
	}
	grant_clear(&g);
	return 0;
}
