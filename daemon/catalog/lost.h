/* SPDX-License-Identifier: MIT
 *
 * The names of buffers that are gone although nobody unlinked them. Either the memory was lost (a
 * GPU was reset, or an fd was not kept), or the creator ended or closed the buffer before it
 * published it. A client that asks for such a name learns what happened, until somebody creates the
 * name again.
 *
 * There are at most as many names of lost memory as buffers were restored. Of dropped buffers the
 * last 16 of each user are remembered, and the last 256 of all users.
 */
#pragma once

#include "daemon/catalog/buffer.h"
#include "proto/base/hashtable.h"
#include "proto/base/list.h"

#include <stdbool.h>

struct lost_names {
	struct list all;     /* lost memory */
	struct list dropped; /* the newest first */
	uint32_t n_dropped;
	struct hashtable by_key;
};

/* 0 or -ENOMEM. */
int lost_init(struct lost_names *l);
void lost_done(struct lost_names *l);

/* Remembers why the memory of that name was lost. Without memory for it the name is only missing.
 */
void lost_add(struct lost_names *l, const char *key, const char *why);

/* Remembers that the process, the buffer's creator, has closed it or has ended before it published
 * it. The buffer still has its name. */
void lost_add_dropped(struct lost_names *l, const struct buffer *b, const struct process *creator,
		      bool ended);

void lost_forget(struct lost_names *l, const char *key); /* a name that was not lost is allowed */

/* Writes what happened to the buffer of that name, and what to do, and returns true; false if there
 * is nothing to say to this process. Of a dropped buffer a process learns that might have opened
 * it. The creator's process is named to its user and to administrators only. */
bool lost_explain(const struct lost_names *l, const struct process *p, const char *key, char *ret,
		  size_t size);
