/* SPDX-License-Identifier: MIT
 *
 * Where the values of a configuration came from: one origin for each assignment that counts.
 */
#ifndef GPUSHM_DAEMON_CONFIG_CONFIG_ORIGIN_H
#define GPUSHM_DAEMON_CONFIG_CONFIG_ORIGIN_H

#include "daemon/config/config_key.h"

struct config_origin {
	enum section section;
	size_t subject;		      /* index of the user or pool, else 0 */
	const struct config_key *key; /* NULL: the section's header */
	size_t sequence;	      /* in the order of reading */
	size_t first, count;	      /* list: the members that came from here */
	bool reset;		      /* an empty assignment: back to the default */
	const char *file;	      /* one of config::files */
	unsigned line;
};

/* Adds a copy of it; sequence is filled in. 0 or -ENOMEM. */
int config_origin_add(struct config *c, const struct config_origin *origin);

/* Sorts the origins and drops those that a later one overrides. To be called once, when all has
 * been read; only then the next function finds anything. */
void config_origin_settle(struct config *c);

/* The origins of one value, in the order of reading: one, or several for a list. NULL and 0: it is
 * the default. key NULL: of a section's header. */
const struct config_origin *config_origin_find(const struct config *c, enum section section,
					       size_t subject, const struct config_key *key,
					       size_t *ret_n);

#endif
