/* SPDX-License-Identifier: MIT
 *
 * What a relay replies to POST /v1/nixl/NAME, as JSON: which memory a puller may read by NIXL, for
 * how long, and how the file lies in it. gpushm-relay(8) describes it.
 *
 *	{ "version": 1, "session": "0123...", "expires": 60, "nixl": "1.5.1",
 *	  "etag": "\"...\"", "size": 1000, "header": 200, "metadata": "base64",
 *	  "memory": { "gpu": false, "device": 0, "address": 139637976727552, "bytes": 4096 },
 *	  "pieces": [ [ 200, 800, 0 ] ] }
 *
 * Either there are "pieces" of the file's data: where in the file, bytes, where in the memory. Or
 * the memory is a ring of "slots", which the puller has filled before it reads them:
 * POST { "session": "0123...", "fill": { "slot": 0, "offset": 200, "bytes": 800 } }. A session ends
 * when no request has named it for as many seconds as "expires" says, or by
 * POST { "session": "0123...", "end": true }.
 */
#pragma once

#include "client/models/nixl/agent.h"

#define GRANT_VERSION 1
#define GRANT_SESSION 32 /* hexadecimal digits */
#define GRANT_SLOTS_MAX 256u
#define GRANT_BYTES_MAX (64u << 20) /* of the text */

struct grant_piece {
	uint64_t begin, bytes; /* in the file */
	uint64_t offset;       /* in the memory */
};

struct grant {
	char session[GRANT_SESSION + 1];
	unsigned expires_s;
	char nixl[32]; /* the relay's version; "": not known */
	char *etag;    /* owned */
	uint64_t size, header;
	void *metadata; /* owned */
	size_t n_metadata;
	struct nixl_memory memory;
	struct grant_piece *pieces; /* owned; in the order of the file, without gaps */
	size_t n_pieces;
	unsigned slots; /* not 0: there are no pieces */
	uint64_t slot_bytes;
};

/* Every number is checked against the others. source: for errors. 0; -EBADMSG, -ENOMEM with
 * gpushm_error() set. Clear *ret in any case. */
int grant_parse(const char *source, const char *text, size_t n, struct grant *ret);

/* The text, which free() releases. 0 or -ENOMEM. */
int grant_format(const struct grant *g, char **ret);

/* May be called on a zeroed grant and twice. */
void grant_clear(struct grant *g);

/* The parts of the memory that are those bytes of the file, which must lie in its data; `local` is
 * where the first of them goes. *ret is the caller's to free. 0 or -ENOMEM. */
int grant_parts(const struct grant *g, uint64_t offset, uint64_t n, uint64_t local,
		struct nixl_part **ret, size_t *ret_n);
