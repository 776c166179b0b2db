/* SPDX-License-Identifier: MIT
 *
 * Whether a request for bytes of a file is served here, or sent to another machine that has them,
 * too. There is no coordinator: a relay knows of others what they say in their requests
 * (announcement.h), and names them when it is busy.
 *
 * While this relay itself pulls the file, a request waits for blocks that are not here yet, if the
 * one who asks began later. So a number of machines that are busy one after the other make a chain
 * or a tree in which the bytes stream.
 */
#pragma once

#include "client/relay/fleet/mirrors.h"
#include "client/relay/serve/exchange.h"

/* Before the first request. 0 or -ENOMEM. */
int fanout_start(void);

/* What a request was let in with; all zero: nothing. */
struct fanout_pass {
	char address[64], etag[64];
	unsigned requests; /* of the transfer, with this one; 0: it does not count */
	bool may_wait;	   /* for blocks that are not here yet */
};

/* Cuts a range behind the file's header if what follows is not here yet, and is not waited for: a
 * reply may have fewer bytes than were asked for (RFC 9110, 15.3.7). */
void fanout_cut(const struct exchange *x, struct offer *o, const struct offer_facts *facts,
		uint64_t begin, uint64_t *n);

/* Bytes of an offer, whose facts are known. False: the reply says that this relay is busy, and
 * where else the file is; *ret_reply is its result. */
bool fanout_enter(const struct exchange *x, struct offer *o, const struct offer_facts *facts,
		  uint64_t begin, uint64_t n, struct fanout_pass *ret, enum MHD_Result *ret_reply);
/* A zeroed pass is allowed. */
void fanout_leave(struct fanout_pass *p);

/* A request for the manifest: of a machine that says where it offers the same file. */
void fanout_hear(const struct exchange *x, const struct offer_facts *facts);

/* Mirrors of a file that `x` may read from: how many. */
size_t fanout_mirrors(const struct exchange *x, const char *etag,
		      struct announcement ret[MIRRORS_NAMED]);
