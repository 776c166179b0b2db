/* SPDX-License-Identifier: MIT
 *
 * What a relay says about a buffer, at /v1/manifests/NAME, as JSON. gpushm-relay(8) describes it.
 * Relays write it, and gpushm_pull() reads it: from a stranger, as far as its certificate is one.
 *
 *	{ "version": 1, "name": "llama", "id": 42, "etag": "\"...\"",
 *	  "size": 1000, "header": 200, "data": 800,
 *	  "block": 4194304, "blocks": "base64", "content": "xxh3:0123456789abcdef",
 *	  "attributes": { "key": "base64" }, "complete": true,
 *	  "mirrors": [ "https://b:19401/v1/buffers/llama" ] }
 *
 * Unknown members are ignored.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_VERSION 1u
#define MANIFEST_BYTES_MAX (64u << 20) /* of the text */

struct manifest_attr {
	char *key;   /* owned */
	void *value; /* owned */
	size_t size;
};

struct manifest {
	char *name;  /* owned */
	uint64_t id; /* of the buffer, on its machine: another generation has another one */
	char *etag;  /* owned: strong, with its quotes; the same on all machines that have this file
		      */
	uint64_t size;	 /* bytes of the safetensors file */
	uint64_t header; /* those before its data: the length, and the JSON text */
	uint64_t data;	 /* the others */

	/* XXH3-64 of each block of 4 MiB of the data, little end first; the last one may be
	 * shorter. content: their digest, as gpushm_verify() defines it for a buffer that the file
	 * was loaded into. A machine that loads the buffer itself has these from where it loads. */
	uint64_t *blocks; /* owned */
	uint64_t n_blocks;
	char content[32];

	struct manifest_attr
		*attrs; /* owned: those that belong to the contents, not to the machine */
	size_t n_attrs;
	bool complete;	/* false: that machine is loading it; ranges come as it gets them */
	char **mirrors; /* owned: where the same file is */
	size_t n_mirrors;
};

/* Every number is checked against the others, and the digest against the blocks. source: for
 * errors. 0; -EBADMSG, -ENOMEM with gpushm_error() set. Clear *ret in any case. */
int manifest_parse(const char *source, const char *text, size_t n, struct manifest *ret);

/* The text, which free() releases. 0 or -ENOMEM. */
int manifest_format(const struct manifest *m, char **ret_text, size_t *ret_n);

/* May be called on a zeroed manifest and twice. */
void manifest_clear(struct manifest *m);
