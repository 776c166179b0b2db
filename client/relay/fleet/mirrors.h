/* SPDX-License-Identifier: MIT
 *
 * Other machines that have a file, or are getting it, as they announced themselves. A busy relay
 * names some of them to those that it turns away. One that has not announced itself for a while is
 * forgotten. Any thread may call.
 */
#pragma once

#include "client/relay/fleet/announcement.h"

#define MIRRORS_NAMED 8u

struct mirrors;

/* NULL: out of memory. */
struct mirrors *mirrors_new(void);
/* NULL is allowed. Returns NULL. */
struct mirrors *mirrors_free(struct mirrors *m);

/* A machine has asked for the file with this ETag, and says where it offers it. The caller has
 * checked that the host is that machine's. */
void mirrors_note(struct mirrors *m, const char *etag, const struct announcement *a);

/* Whom a machine may be sent to: older ones, which began before it, let it wait for blocks that
 * they do not have yet. */
enum mirrors_age { MIRRORS_OLDER, MIRRORS_ANY };

/* Up to MIRRORS_NAMED mirrors of that file, without `asks`. NULL: somebody that nobody waits for,
 * and that may wait for everybody. Those of the same network
 * as `asks`, which a first part of their addresses tells, are named alone if there are a few, so
 * that most bytes stay within a rack. First come those that began last, which are most likely to
 * have nobody that reads from them yet; then some by chance. Returns how many. */
size_t mirrors_choose(struct mirrors *m, const char *etag, const struct announcement *asks,
		      enum mirrors_age age, struct announcement ret[MIRRORS_NAMED]);

/* Whether mirrors_choose() would find an older one. */
bool mirrors_has_older(struct mirrors *m, const char *etag, const struct announcement *asks);

/* Older ones, or without these any, as the value of a header Link (RFC 6249); NULL: there are none.
 * The caller frees it. */
char *mirrors_link(struct mirrors *m, const char *etag, const struct announcement *asks);
