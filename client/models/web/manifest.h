/* SPDX-License-Identifier: MIT
 *
 * What a relay says about a buffer, at /v1/manifests/NAME, as JSON: struct manifest. It is read
 * from a stranger, as far as its certificate is one.
 */
#pragma once

#include "client/gpushm_load_private.h"

#define MANIFEST_VERSION 1u
#define MANIFEST_BYTES_MAX (64u << 20) /* of the text */

/* Every number is checked against the others, and the digest against the blocks. source: for
 * errors. 0; -EBADMSG, -ENOMEM with gpushm_error() set. Clear *ret in any case. */
int manifest_parse(const char *source, const char *text, size_t n, struct manifest *ret);
