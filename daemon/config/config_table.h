/* SPDX-License-Identifier: MIT
 *
 * The sections and keys of gpushmd.conf: one table for reading, dumping, comparing and for error
 * messages. Also the origins: where each value of a configuration was set.
 */
#pragma once

#include "daemon/config/config_types.h"

enum section {
	SECTION_NONE,	/* before the first header, or under a wrong one */
	SECTION_DAEMON, /* members of struct config */
	SECTION_LIMITS, /* of config::limits */
	SECTION_USER,	/* [limits USER]: of user_limits::limits */
	SECTION_POOL,	/* [pool NAME]: of struct pool_config */
};

struct config_key {
	const char *name;
	size_t offset; /* of the member in its section's struct */
	const struct value_type *type;
	bool restart; /* a change needs a restart of the daemon */
};

/* The keys of a section, in the order of the manual. */
const struct config_key *config_keys(enum section section, size_t *ret_n);

/* NULL if the section has no such key. */
const struct config_key *config_key_find(enum section section, const char *name);

/* Writes the end of a message about an unknown key or section: "did you mean ...?", or all names
 * that are allowed. */
void config_key_suggest(enum section section, const char *name, char *buf, size_t size);
void config_section_suggest(const char *name, char *buf, size_t size);

/* The struct that has a section's members. subject: the index of the user or pool, else 0. */
void *config_subject(const struct config *c, enum section section, size_t subject);

/* One assignment that still counts, or a section's header. */
struct config_origin {
	enum section section;
	size_t subject;		      /* index of the user or pool, else 0 */
	const struct config_key *key; /* NULL: the section's header */
	size_t sequence;	      /* in the order of reading */
	size_t first, count;	      /* list: the members that this assignment added */
	bool reset;		      /* an empty assignment: back to the default */
	const char *file;	      /* one of config::files */
	unsigned line;
};

/* Adds a copy and sets its sequence. 0 or -ENOMEM. */
int config_origin_add(struct config *c, const struct config_origin *origin);

/* Sorts the origins and drops those that a later one overrides. Call it once, when all files are
 * read and before config_origin_find(). */
void config_origin_settle(struct config *c);

/* The origins of one value in the order of reading: one, or several for a list. NULL, and 0 in
 * *ret_n: the value is the default. key NULL: the section's header. ret_n may be NULL. */
const struct config_origin *config_origin_find(const struct config *c, enum section section,
					       size_t subject, const struct config_key *key,
					       size_t *ret_n);
