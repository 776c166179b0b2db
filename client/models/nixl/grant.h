/* SPDX-License-Identifier: MIT
 *
 * What a relay lets a machine read by NIXL: struct grant, as the puller reads it.
 */
#pragma once

#include "client/models/nixl/agent.h"

#define GRANT_BYTES_MAX (64u << 20) /* of the text */

/* Every number is checked against the others. source: for errors. 0; -EBADMSG, -ENOMEM with
 * gpushm_error() set. Clear *ret in any case. */
int grant_parse(const char *source, const char *text, size_t n, struct grant *ret);

/* May be called on a zeroed grant and twice. */
void grant_clear(struct grant *g);

/* The parts of the memory that are those bytes of the file, which must lie in its data; `local` is
 * where the first of them goes. *ret is the caller's to free. 0 or -ENOMEM. */
int grant_parts(const struct grant *g, uint64_t offset, uint64_t n, uint64_t local,
		struct nixl_part **ret, size_t *ret_n);
