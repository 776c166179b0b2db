/* SPDX-License-Identifier: MIT
 *
 * Whether a published buffer is the model that is to be loaded: same contents, trusted owner.
 */
#pragma once

#include "client/gpushm_load.h"
#include "client/models/files/checkpoint.h"
#include "client/models/files/model.h"

struct pulled;

struct match {
	struct gpushm *c;
	struct checkpoint *cp;
	const struct model *m;
	const struct gpushm_create_options *options;
	const struct gpushm_load_options *load;
	const struct pulled *pulled; /* what is known of a relay's file; NULL */
};

/* MATCH_SAME: it is. MATCH_OTHER: it is not; gpushm_error() says why. A negative errno: it could
 * not be found out. Files that changed their names or times, but not their headers, are read and
 * hashed; a stream is, too, unless it must be kept for a load that replaces the buffer. */
#define MATCH_OTHER 0
#define MATCH_SAME 1
int match_buffer(const struct match *m, struct gpushm_buffer *b);
