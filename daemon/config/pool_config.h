/* SPDX-License-Identifier: MIT
 *
 * What gpushmd.conf says of one pool. It is all of the configuration that a pool knows.
 */
#pragma once

#include "proto/kind.h"
#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "40G", or "80%" of the device's or the host's memory. */
struct config_size {
	uint64_t bytes;
	double percent; /* if > 0, bytes is not used */
};

#define ID_EVERYBODY UINT32_MAX /* "*" in allow-users */

struct id_list {
	uint32_t *ids; /* owned */
	size_t n;
};

/* Whether sorted ids have that one. */
static inline bool ids_have(const uint32_t *ids, size_t n, uint32_t id)
{
	size_t low = 0;

	while (low < n) {
		size_t middle = low + (n - low) / 2;

		if (ids[middle] == id)
			return true;
		if (ids[middle] < id)
			low = middle + 1;
		else
			n = middle;
	}
	return false;
}

struct pool_config {
	char name[POOL_NAME_MAX + 1];
	enum pool_kind kind;
	char device[64]; /* "GPU-<uuid>", "0000:3b:00.0" or an ordinal; empty: the first GPU */
	int numa_node;	 /* pinned; -1: the device's own */
	struct config_size size;
	bool restricted; /* only these and admins create in it */
	struct id_list allow_users, allow_groups;
	double share;  /* percent that one user may hold; < 0: limits_config::pool_share */
	bool allocate; /* host: a create allocates all pages, else each page's first user does */
	uint32_t
		pending_max_age; /* seconds that a freed block waits; 0: it is given back at once */
	bool builtin;		 /* made without a [pool] section */
};

/* Sets the default of each [pool] key for a kind. The name stays empty. Defined in config.c. */
void pool_config_default(enum pool_kind kind, struct pool_config *ret);
