/* SPDX-License-Identifier: MIT
 *
 * gpushmd.conf as the rest of the daemon sees it: values that are checked, users and groups
 * that are looked up, and for each value where it came from. gpushmd.conf(5) is its manual.
 */
#ifndef GPUSHM_DAEMON_CONFIG_CONFIG_H
#define GPUSHM_DAEMON_CONFIG_CONFIG_H

#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum pool_kind {
	POOL_HOST = 1,
	POOL_PINNED,
	POOL_VMM,
	POOL_MEMPOOL
}; /* enum Kind of gpushm.proto */

const char *pool_kind_name(enum pool_kind kind); /* "host", "pinned", "vmm", "mempool" */

/* A size as it is written: "40G" (binary units K M G T), or "80%" of the device's or the host's
 * memory. */
struct config_size {
	uint64_t bytes;
	double percent; /* where > 0, bytes is not used */
};

struct id_list {
	uint32_t *ids; /* owned */
	size_t n;
};

struct pool_config {
	char name[POOL_NAME_MAX + 1];
	enum pool_kind kind;
	char device[64]; /* "GPU-<uuid>", "0000:3b:00.0" or an ordinal; empty: the first */
	int numa_node;	 /* pinned; -1: the device's own */
	struct config_size size;
	bool restricted; /* allow-users or allow-groups was given: nobody else but admins */
	struct id_list allow_users, allow_groups;
	uint32_t pending_max_count; /* more than so many freed buffers wait: all are given back
				       (Numba's rule) */
	double pending_max_ratio;   /* likewise for their bytes, of the pool's size */
	bool builtin;		    /* from the defaults, not from a file */
};

struct limits_config {
	uint64_t bytes;			 /* of buffers; UINT64_MAX: no limit */
	uint64_t tables;		 /* bytes of the buffers' tables; likewise */
	uint32_t buffers, leases, peers; /* UINT32_MAX: no limit */
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
	bool trust_unwatched;		      /* clients that have no pidfd are served */
	uint32_t driver_timeout;	      /* s that a driver call may take */
	uint32_t busy_poll;		      /* us that the loop looks for more before it sleeps */
	char default_pool[POOL_NAME_MAX + 1]; /* empty: gpu0 where there is one, else host */
	bool auto_pools; /* no [pool] section in any file: make the defaults of gpushmd.conf(5) */
	struct pool_config *pools; /* owned */
	size_t n_pools;
	struct limits_config limits;
	struct user_limits *user_limits; /* owned; [limits USER] */
	size_t n_user_limits;
	struct config_origin *origins; /* owned; where each value came from, for config_dump() */
	size_t n_origins;
	char **files; /* owned; all that was read */
	size_t n_files;
};

/* Reads path (NULL: /etc/gpushm/gpushmd.conf, which may be missing; a path that was named must
 * exist) and its drop-ins PATH.d/ *.conf in the order of their names. 0 with a *ret that the caller
 * frees; else -errno (-EINVAL for a bad file), with every fault that was found written to `errors`
 * as "FILE:LINE: what is wrong; what is allowed". */
int config_load(const char *path, FILE *errors, struct config **ret);
struct config *config_free(struct config *c);

/* Every value, one a line as "key=value  # file:line" or "# default", in the form of the file. */
void config_dump(const struct config *c, FILE *out);

/* The limits of one uid: [limits USER] where there is one, else [limits]. */
const struct limits_config *config_limits(const struct config *c, uid_t uid);

/* Compares a reloaded configuration with the one in force: writes the names of the keys that differ
 * and need a restart (pools that came or
 * went, pools' kind, device, node and size; the socket, its mode and group) to `names`, separated
 * by ",
 * ". Returns how many there are. */
size_t config_needs_restart(const struct config *old, const struct config *fresh, char *names,
			    size_t size);

/* The default of each [pool] key for a kind; the name is the caller's to fill in. */
void pool_config_default(enum pool_kind kind, struct pool_config *ret);

#endif
