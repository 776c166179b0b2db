/* SPDX-License-Identifier: MIT
 *
 * gpushmd.conf as the rest of the daemon sees it: checked values, with users and groups already
 * looked up. gpushmd.conf(5) is its manual; config_load.c reads it.
 */
#pragma once

#include "daemon/config/pool_config.h"

#include <stdio.h>
#include <sys/types.h>

struct limits_config {
	uint64_t bytes;			 /* of buffers; UINT64_MAX: no limit */
	uint32_t buffers, leases, peers; /* UINT32_MAX: no limit */
	double share;			 /* percent of what all users share: catalog/account.h */
	double pool_share;		 /* percent of each pool; 100: no limit */
};

struct user_limits {
	uid_t uid;
	struct limits_config limits;
};

struct config {
	char *socket_path; /* owned; never NULL after config_load() */
	mode_t socket_mode;
	gid_t socket_gid;		      /* (gid_t)-1: as created */
	gid_t admin_gid;		      /* (gid_t)-1: none */
	bool trust_unwatched;		      /* serve clients that have no pidfd */
	bool share_unmapped;		      /* serve users whom the namespace does not map */
	bool audit;			      /* log what each user did to which buffer */
	uint32_t driver_timeout;	      /* s; a longer driver call means a stuck GPU */
	uint32_t keep;			      /* s that a buffer's memory stays after its use */
	uint32_t yield_timeout;		      /* s that a CREATE waits for who is asked */
	uint32_t busy_poll;		      /* us that the loop polls before it sleeps */
	char default_pool[POOL_NAME_MAX + 1]; /* empty: gpu0 if it exists, else host */
	bool auto_pools;		      /* no [pool] section: make the default pools */
	struct id_list mempool_groups;	      /* owned; of mempools that name no user or group */
	struct pool_config *pools;	      /* owned */
	size_t n_pools;
	struct limits_config limits;
	struct user_limits *user_limits; /* owned; [limits USER] */
	size_t n_user_limits;
	struct config_origin *origins; /* owned; where each value was set: config_table.h */
	size_t n_origins;
	char **files; /* owned; the names of all files that were read */
	size_t n_files;
};

/* ---- config_load.c ---- */

/* Reads path and its drop-ins PATH.d/ *.conf in the order of their names. path NULL means
 * /etc/gpushm/gpushmd.conf, which may be missing; a named file must exist. Returns 0, and the
 * caller frees *ret; else -errno (-EINVAL for a wrong file), with every fault written to `errors`
 * as "FILE:LINE: what is wrong; what is allowed". */
int config_load(const char *path, FILE *errors, struct config **ret);

/* ---- config_report.c ---- */

/* Writes every value as a line "key=value  # file:line" or "# default", in the form of the file. */
void config_dump(const struct config *c, FILE *out);

/* Compares a reloaded configuration with the one in force. Writes the names of the keys that differ
 * and need a restart, separated by ", ", to names, and cuts what does not fit: pools that came or
 * went; a pool's kind, device, node or size; the socket, its mode or its group. */
void config_needs_restart(const struct config *old, const struct config *fresh, char *names,
			  size_t size);

/* ---- config.c ---- */

/* Frees all of it. NULL is allowed. Returns NULL. */
struct config *config_free(struct config *c);

/* The configured pool of that name, or NULL. */
const struct pool_config *config_pool(const struct config *c, const char *name);

/* The limits of one uid: its [limits USER] section, else [limits]. */
static inline const struct limits_config *config_limits(const struct config *c, uid_t uid)
{
	for (size_t i = 0; i < c->n_user_limits; i++)
		if (c->user_limits[i].uid == uid)
			return &c->user_limits[i].limits;
	return &c->limits;
}

/* The defaults of [daemon], except the socket and the default pool; and those of [limits]. */
void config_default_daemon(struct config *ret);
void config_default_limits(struct limits_config *ret);

/* Sets config::mempool_groups: the daemon's own group if it runs as a service, else none, so that
 * all users may use mempools. 0 or -ENOMEM. */
int config_default_groups(struct config *c);

/* Restricts a mempool that names neither users nor groups to config::mempool_groups, which it
 * borrows. */
void config_restrict_mempool(const struct config *c, struct pool_config *pool);

/* The default path of the socket, which depends on the user who runs the daemon. The caller frees
 * it. NULL: out of memory. */
char *config_default_socket(void);

/* The name of the pool that serves a CREATE which names none: the configured pool "gpu0", else
 * "host", else the first one; empty if no pool is configured. */
void config_default_pool(const struct config *c, char ret[POOL_NAME_MAX + 1]);
