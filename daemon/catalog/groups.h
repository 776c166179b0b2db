/* SPDX-License-Identifier: MIT
 *
 * The groups of connected processes, each set kept once for a user: a process may have 65,536
 * groups (NGROUPS_MAX), and a user a thousand connections.
 */
#pragma once

#include "proto/base/hashtable.h"
#include "proto/code.h"

#include <sys/types.h>

#define GROUPS_BYTES_MAX (1u << 20) /* of the different sets of one user */

struct groups_table {
	struct hashtable by_uid; /* groups::link; the server makes and ends it */
};

struct groups {
	struct hashtable_link link; /* groups_table::by_uid */
	struct groups_table *table;
	uid_t uid;
	uint32_t users; /* processes that have it */
	size_t n;
	gid_t ids[]; /* sorted */
};

/* The groups of the process at the other end of a socket: gid, its primary one, and the
 * supplementary ones. `unmapped` (userns_unmapped_gid()) is left out. 0; -EDQUOT (CODE_LIMIT),
 * -ENOMEM, -EPERM (CODE_UNIDENTIFIED) with *f filled in. */
int groups_of_peer(struct groups_table *t, int socket, uid_t uid, gid_t gid, gid_t unmapped,
		   struct groups **ret, struct fault *f);

/* One process less has it. NULL is allowed. Returns NULL. */
struct groups *groups_release(struct groups *g);
