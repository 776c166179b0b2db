/* SPDX-License-Identifier: MIT
 *
 * The names of buffers whose memory was lost although nobody freed it: a GPU was reset, or an fd
 * was not kept. A client that asks for such a name learns what happened, until somebody creates the
 * name again. There are at most as many lost names as buffers were restored.
 */
#pragma once

#include "proto/base/hashtable.h"
#include "proto/base/list.h"
#include "proto/code.h"

#include <stdbool.h>

struct lost_names {
	struct list all;
	struct hashtable by_key;
};

/* 0 or -ENOMEM. */
int lost_init(struct lost_names *l);
void lost_done(struct lost_names *l);

/* Remembers why the buffer of that name was lost. Without memory for it the name is only missing.
 */
void lost_add(struct lost_names *l, const char *key, const char *why);
void lost_forget(struct lost_names *l, const char *key); /* a name that was not lost is allowed */

/* Writes into *f when and why the buffer was lost, and returns -ENOENT; 0 if it was not lost. */
int lost_refuse(const struct lost_names *l, const char *key, struct fault *f);
