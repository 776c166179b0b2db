/* SPDX-License-Identifier: MIT
 *
 * An agent of NIXL: what the door has of it is for the side that is read; this is for the other
 * one.
 */
#pragma once

#include "client/gpushm_load_private.h"

/* Side by side in both memories. */
struct nixl_part {
	uint64_t local, remote, bytes;
};

/* Gets to know a peer by its metadata: from a relay that is trusted, because NIXL checks little of
 * it. An agent has one peer. 0, -EIO, -ENOMEM. */
int nixl_agent_meet(struct nixl_agent *a, const void *metadata, size_t n);

/* A read that is under way. */
struct nixl_read;

/* Begins to read from memory of the peer. `local` and `remote` are where parts lie. 0, -EIO. */
int nixl_read_begin(struct nixl_agent *a, const struct nixl_memory *local,
		    const struct nixl_memory *remote, const struct nixl_part *parts, size_t n,
		    struct nixl_read **ret);
/* 1: all is there; 0: not yet; -EIO: the connection broke, or the peer has gone. */
int nixl_read_poll(struct nixl_read *r);
/* Frees it. One that is under way is given up: its memory may still be written until
 * gpushm_private_nixl_free(). NULL is allowed. Returns NULL. */
struct nixl_read *nixl_read_end(struct nixl_read *r);
