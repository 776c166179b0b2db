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

/* The value of Via in replies about a name; "": this relay does not follow it. */
void route_get(const char *name, char ret[PULL_VIA_MAX]);

/* This relay follows the name, until route_end(). May be called twice. */
void route_begin(const char *name);
void route_end(const char *name);

/* What the source of a name has said in Via. Returns whether this relay is among them; then those
 * before it are left out, so that the list does not grow in each round. */
bool route_hear(const char *name, const char *via);
