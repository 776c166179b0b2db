/* SPDX-License-Identifier: MIT
 *
 * Digests of a buffer as the file that it is for others.
 */
#pragma once

#include "client/models/copy/digest.h"
#include "client/relay/offer/mapping.h"

/* What a load or a pull has left as the digest of the contents, if that is the file's, too: of all
 * arrays in the order of the buffer. False: it has left none. */
bool contents_attr(const struct mapping *m, char ret[DIGEST_TEXT]);

/* Hashes the blocks of the file's data. 0, or a negative errno with gpushm_error() set. Free *ret
 * with digest_clear(), also after an error. */
int contents_hash(const struct mapping *m, struct digest *ret);

/* The first half of the SHA-256 of the file's header, as the ETag has it. */
void contents_hash_header(const struct mapping *m, char ret[17]);
