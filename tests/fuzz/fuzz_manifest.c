/* SPDX-License-Identifier: MIT
 *
 * Any bytes as the manifest of a relay. What is accepted agrees with itself, and is the same
 * after it was written and read again.
 */
#include "client/models/web/manifest.h"
#include "proto/base/own.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check(const struct manifest *m)
{
	assert(m->header >= 8 && m->header + m->data == m->size);
	assert(m->n_blocks == m->data / (4u << 20) + (m->data % (4u << 20) != 0));
	assert(m->name && m->etag && m->etag[0] == '"' && m->etag[strlen(m->etag) - 1] == '"');
	assert(strlen(m->content) == 21 && strncmp(m->content, "xxh3:", 5) == 0);
	assert(m->n_blocks == 0 || m->blocks);
	for (size_t i = 0; i < m->n_attrs; i++)
		assert(m->attrs[i].key[0] && m->attrs[i].value);
}

static void check_same(const struct manifest *a, const struct manifest *b)
{
	assert(strcmp(a->name, b->name) == 0 && strcmp(a->etag, b->etag) == 0);
	assert(a->id == b->id && a->size == b->size && a->header == b->header);
	assert(a->n_blocks == b->n_blocks && a->complete == b->complete);
	assert(memcmp(a->blocks, b->blocks, a->n_blocks * sizeof(*a->blocks)) == 0);
	assert(a->n_attrs == b->n_attrs && a->n_mirrors == b->n_mirrors);
	for (size_t i = 0; i < a->n_mirrors; i++)
		assert(strcmp(a->mirrors[i], b->mirrors[i]) == 0);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	/* A copy of its exact size, so that ASan finds a read past its end. */
	_cleanup_(free_ptr) char *text = malloc(size + !size), *again = NULL;
	struct manifest m, n = { 0 };
	size_t length;

	assert(text);
	memcpy(text, data, size);
	if (manifest_parse("fuzz", text, size, &m) == 0) {
		check(&m);
		assert(gpushm_private_manifest_format(&m, &again, &length) == 0);
		assert(manifest_parse("fuzz", again, length, &n) == 0);
		check_same(&m, &n);
	}
	gpushm_private_manifest_clear(&m);
	gpushm_private_manifest_clear(&n);
	return 0;
}
