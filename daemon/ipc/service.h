/* SPDX-License-Identifier: MIT
 *
 * The service: what requests work on. There is one, a member of the server; each session points to
 * it. It holds the daemon's objects together and decides nothing.
 */
#pragma once

#include "daemon/catalog/catalog.h"
#include "daemon/catalog/reaper.h"
#include "daemon/catalog/turns.h"
#include "daemon/ipc/waiter.h"
#include "daemon/state/reexec.h"
#include "daemon/util/busy_poll.h"
#include "daemon/util/ratelimit.h"
#include "daemon/util/refusals.h"
#include "daemon/util/verb_counts.h"
#include "proto/base/arena.h"

struct service {
	struct catalog catalog;
	struct reaper reaper;
	struct turns turns;
	struct groups_table groups; /* of the connected processes */
	uid_t unmapped_uid;	    /* proto/base/userns.h */
	gid_t unmapped_gid;
	struct waiters waiters;
	struct reexec reexec;
	struct busy_poll busy_poll;
	const struct config *config; /* borrowed */
	unsigned char id[DAEMON_ID_BYTES];
	uint64_t started_ns;	 /* CLOCK_MONOTONIC */
	bool kept;		 /* published buffers outlive this daemon */
	char needs_restart[256]; /* what a reload did not change: config_needs_restart() */
	uint32_t peers;
	uint64_t requests, refused, violations; /* since the start */
	struct refusals refusals;		/* by cause, over restarts */
	struct verb_counts verbs[VERBS_MAX];	/* by field number in Request, since the start */
	struct ratelimit violation_lines;	/* limits the log's lines about violations, */
	struct ratelimit refusal_lines;		/* and about CREATEs that are refused, by code */
	struct arena unpack;			/* memory of the request that is being handled */
	struct arena build;			/* memory of the reply that is being built */
};

static inline struct process_rules service_rules(const struct service *s)
{
	return (struct process_rules){ .admin_gid = s->config->admin_gid,
				       .trust_unwatched = s->config->trust_unwatched,
				       .share_unmapped = s->config->share_unmapped,
				       .unmapped_uid = s->unmapped_uid,
				       .unmapped_gid = s->unmapped_gid };
}

/* Counts the reply to a request. verb: its field number in Request; 0: it was not read. */
static inline void service_replied(struct service *s, unsigned verb, enum code code)
{
	s->verbs[verb].results[code]++;
	if (code == CODE_OK)
		return;
	s->refused++;
	refusals_count(&s->refusals, code);
}
