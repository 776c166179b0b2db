/* SPDX-License-Identifier: MIT
 *
 * The sections and keys of gpushmd.conf: one table for reading, dumping, comparing and for error
 * messages. Also the origins: where each value of a configuration was set.
 */
#pragma once

#include "daemon/config/config.h"
#include "proto/base/keyfile.h"

/* SECTION_USER is [limits USER], with the keys of [limits]; the others are sections of
 * config_sections. */
enum section { SECTION_DAEMON, SECTION_LIMITS, SECTION_POOL, SECTION_USER };

extern const struct keyfile_section config_sections[SECTION_USER];

const struct keyfile_section *config_section(enum section section);

/* The struct that has a section's members. subject: the index of the user or pool, else 0. */
void *config_subject(const struct config *c, enum section section, size_t subject);

/* One assignment that still counts, or a section's header. */
struct config_origin {
	enum section section;
	size_t subject;		       /* index of the user or pool, else 0 */
	const struct keyfile_key *key; /* NULL: the section's header */
	size_t sequence;	       /* in the order of reading */
	size_t first, count;	       /* list: the members that this assignment added */
	bool reset;		       /* an empty assignment: back to the default */
	const char *file;	       /* one of config::files */
	unsigned line;
};

/* Adds a copy and sets its sequence. 0 or -ENOMEM. */
int config_origin_add(struct config *c, const struct config_origin *origin);

/* Sorts the origins and drops those that a later one overrides; reports those of the same file.
 * Call it once, when all files are read and before config_origin_find(). */
void config_origin_settle(struct config *c, struct diagnostics *d);

/* The origins of one value in the order of reading: one, or several for a list. NULL, and 0 in
 * *ret_n: the value is the default. key NULL: the section's header. ret_n may be NULL. */
const struct config_origin *config_origin_find(const struct config *c, enum section section,
					       size_t subject, const struct keyfile_key *key,
					       size_t *ret_n);

/* Where a value was set; NULL: it is the default. */
const struct config_origin *config_origin_of(const struct config *c, enum section section,
					     size_t subject, const char *key);

/* ---- config_types.c: how each type of value is read and written, and what is allowed ---- */

enum id_kind { ID_USER, ID_GROUP };

extern const struct keyfile_type value_node, value_size, value_bytes, value_count, value_some,
	value_age, value_part, value_seconds, value_microseconds;
extern const struct keyfile_type value_path, value_pool, value_kind, value_device, value_trust,
	value_share, value_allocate, value_yes;
extern const struct keyfile_type value_group, value_users, value_groups;

/* Reads a name or number. 0; -EINVAL with the fault in *wrong, of KEYFILE_WRONG_MAX bytes; -ENOMEM.
 * May ask the network, see nsswitch.conf(5). */
int config_parse_id(enum id_kind kind, const char *word, uint32_t *ret, char *wrong);

/* Writes the name if config_parse_id() reads it as the same number, also in a list, else the
 * number. */
void config_format_id(enum id_kind kind, uint32_t id, FILE *out);
