/* SPDX-License-Identifier: MIT
 *
 * An account: what one uid holds. Every object has its charge as a member and discharges it; an
 * account lives while anything is charged to it.
 *
 * Bytes, tables (and pages of streams), buffers, leases and connections have a limit for each user.
 * What the daemon has a fixed number of, all users share: its descriptors, the descriptors that the
 * kernel lets it have in flight, the places in the fd store, and watched names. A user may hold at
 * most as much of such a thing as it leaves to others (max-share), and an eighth of it is for
 * administrators alone.
 */
#pragma once

#include "daemon/config/config.h"
#include "proto/base/hashtable.h"
#include "proto/base/list.h"
#include "proto/code.h"

enum account_item {
	ACCOUNT_BYTES,
	ACCOUNT_TABLES,
	ACCOUNT_BUFFERS,
	ACCOUNT_LEASES,
	ACCOUNT_PEERS,
	ACCOUNT_FDS,	    /* descriptors of the daemon: the first of those with a budget */
	ACCOUNT_IN_FLIGHT,  /* descriptors in replies that the client may not have read */
	ACCOUNT_KEPT,	    /* buffers that systemd keeps over the daemon's death */
	ACCOUNT_KEPT_PIDS,  /* pidfds that systemd keeps, of processes that we don't see */
	ACCOUNT_KEPT_PAGES, /* pages of streams that systemd keeps */
	ACCOUNT_WATCHED,    /* names and buffers in WATCH requests that wait */
	ACCOUNT_ITEMS
};

/* What all users share. */
struct budget {
	uint64_t total; /* UINT64_MAX: no bound */
	uint64_t used;
};

struct accounts {
	struct budget budgets[ACCOUNT_ITEMS];
	struct hashtable by_uid;     /* account::link */
	struct list all;	     /* account::all_link */
	const struct config *config; /* borrowed: the limits in force */
};

struct account {
	struct hashtable_link link;
	struct list all_link;
	struct accounts *accounts;
	uid_t uid;
	uint64_t used[ACCOUNT_ITEMS];
	uint64_t blocks[POOLS_MAX]; /* bytes of its buffers' blocks, by pool::index */
	uint64_t making[POOLS_MAX]; /* the same of buffers that wait for their block */
	struct list unread;	    /* unread::link: connections with descriptors in flight */
	struct list turn_link;	    /* turns::users, while it has work */
	bool in_turn;		    /* its work is being done */
	struct list work;	    /* work::link */
	uint64_t served_ns;	    /* the time that was spent for it: turns.h */
	bool unwatched;		    /* the log has reported that a process of it can't be watched */
	bool admin; /* an administrator has connected: no share or reserve bounds it */
};

/* A part of an account. Zeroed: nothing is charged. */
struct charge {
	struct account *account;
	enum account_item item;
	uint64_t amount;
};

/* 0 or -ENOMEM. */
int accounts_init(struct accounts *a, const struct config *config);
/* Everything must have been discharged. */
void accounts_done(struct accounts *a);

/* Charges a uid, which may exceed its limit or its share by `slack`. 0; -EDQUOT or -ENOMEM with *f
 * filled in. The caller calls discharge() later. */
int charge(struct accounts *a, uid_t uid, enum account_item item, uint64_t amount, uint64_t slack,
	   struct charge *ret, struct fault *f);

/* Changes the charge to `amount`; a larger amount must be within the limit. 0, or -EDQUOT with *f
 * filled in and nothing changed. c must be charged. */
int recharge(struct charge *c, uint64_t amount, struct fault *f);

/* Ends the charge; frees the account with its last one. A second call does nothing. */
void discharge(struct charge *c);

/* NULL: nothing is charged to it. */
struct account *account_find(const struct accounts *a, uid_t uid);

/* Counts the descriptors that the daemon has open and may have, so that users share the rest. Call
 * it from time to time. */
void accounts_count_fds(struct accounts *a);

/* Frees an account to which nothing is charged, and which has no work. */
void account_free_if_unused(struct account *account);

/* The limit of an item for a uid, or its present share; UINT64_MAX: none. */
uint64_t account_limit(const struct accounts *a, uid_t uid, enum account_item item);

/* The same of a thing that has `total` places, of which that uid has `own` and all have `used`; at
 * least 1. */
uint64_t accounts_share(const struct accounts *a, uid_t uid, uint64_t total, uint64_t used,
			uint64_t own);
