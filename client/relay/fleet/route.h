/* SPDX-License-Identifier: MIT
 *
 * The relays that a buffer comes through. A relay that follows a name says so, with those that its
 * source names, in each reply about that name, whether it has a buffer or not yet:
 *
 *	Via: 1.1 gpushm-0123456789abcdef, 1.1 gpushm-fedcba9876543210
 *
 * (RFC 9110, 7.6.3). A relay that finds itself in what its source says follows in a circle: two
 * buffers would go round for ever. One that pulls once only ends a circle, and says nothing. Any
 * thread may call.
 */
#pragma once

#include "client/gpushm_load_private.h"

#include <stdbool.h>

/* What this relay says of a name whose source has said `via`; "": the list is too long. */
void route_append(const char *via, char ret[PULL_VIA_MAX]);

/* Whether this relay is among those that a source has said; then those before it are left out of
 * what is kept in *ret, so that the list does not grow in each round. */
bool route_hear(const char *via, char ret[PULL_VIA_MAX]);
