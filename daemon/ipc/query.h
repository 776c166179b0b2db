/* SPDX-License-Identifier: MIT
 *
 * The list of pools, which the replies to POOLS and HELLO share.
 */
#pragma once

#include "daemon/ipc/reply.h"

#define QUERY_SOFTWARE "gpushmd " GPUSHM_VERSION

/* Every pool as the session's client sees it, in the build arena. 0, or -ENOMEM with *f filled in.
 */
int query_pools(struct session *s, size_t *ret_n, Gpushm__Proto__Pool ***ret, struct fault *f);
