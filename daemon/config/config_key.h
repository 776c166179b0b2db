/* SPDX-License-Identifier: MIT
 *
 * The sections and keys of gpushmd.conf: one table that reading, dumping, comparing and the error
 * messages go by.
 */
#ifndef GPUSHM_DAEMON_CONFIG_CONFIG_KEY_H
#define GPUSHM_DAEMON_CONFIG_CONFIG_KEY_H

#include "daemon/config/config_value.h"

#include <stdbool.h>
#include <stddef.h>

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

/* NULL where the section has no such key. */
const struct config_key *config_key_find(enum section section, const char *name);

/* Writes what a message about an unknown key or section says after the semicolon: "did you mean
 * ...?", or all that is allowed. */
void config_key_suggest(enum section section, const char *name, char *buf, size_t size);
void config_section_suggest(const char *name, char *buf, size_t size);

/* The struct whose members a section's keys are. subject: index of the user or pool, else 0. */
void *config_subject(const struct config *c, enum section section, size_t subject);

#endif
