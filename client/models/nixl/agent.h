/* SPDX-License-Identifier: MIT
 *
 * An agent of NIXL with UCX behind it: memory that others may read, and reads of theirs.
 *
 * UCX has no authentication: where it works over TCP, a machine that reaches its ports can read and
 * write the memory of this process, also what is not registered. Use it on networks alone where all
 * machines are trusted.
 *
 * Any number of threads may use an agent. A thread of UCX does the transfers.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nixl_agent;

/* Memory that NIXL knows, of this process or of a peer. */
struct nixl_memory {
	bool gpu; /* else of the processor */
	int device;
	uint64_t address, bytes;
};

/* Side by side in both memories. */
struct nixl_part {
	uint64_t local, remote, bytes;
};

/* Finds the library, and starts an agent with a name that no other one has, anywhere. Takes some
 * 0.5 s. 0; -ENOSYS (no library), -EIO (NIXL), -ENOMEM with gpushm_error() set. */
int nixl_agent_new(struct nixl_agent **ret);

/* Ends its connections; nothing is written into memory after that, also not by a read that was
 * given up. All memory that it knows must live until now. NULL is allowed. Returns NULL. */
struct nixl_agent *nixl_agent_free(struct nixl_agent *a);

/* Lets peers read this memory, and reads write into it. Once for the same memory. nixl_agent_free()
 * ends it. 0, -EIO, -ENOMEM. */
int nixl_agent_register(struct nixl_agent *a, const struct nixl_memory *m);

/* What a peer needs to know, after all is registered; free() releases it. 0 or -EIO. */
int nixl_agent_metadata(struct nixl_agent *a, void **ret, size_t *ret_n);

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
 * nixl_agent_free(). NULL is allowed. Returns NULL. */
struct nixl_read *nixl_read_end(struct nixl_read *r);
