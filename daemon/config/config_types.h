/* SPDX-License-Identifier: MIT
 *
 * The types of values in gpushmd.conf: how each is read and written, and what is allowed.
 */
#pragma once

#include "daemon/config/config.h"

#include <stdio.h>

#define WRONG_MAX 160u /* bytes of the text that parse() writes */

enum id_kind { ID_USER, ID_GROUP };

struct value_type {
	const char *allowed; /* for people, after "allowed: " */
	size_t size;	     /* of the member; 0: the member owns memory, cannot be copied, and
				is all zero until a file sets it */
	/* Reads text, which is not empty, into the member. Returns 0; -EINVAL, with the fault in
	 * *wrong unless `allowed` says it all; -ENOMEM. On an error the member keeps its value, but
	 * a list may have got some of the new members. */
	int (*parse)(const struct value_type *type, const char *text, void *member, char *wrong);
	/* Writes what parse() reads; nothing for a value that only a default can have. */
	void (*format)(const struct value_type *type, const void *member, FILE *out);
	void (*clear)(void *member); /* frees what the member owns; NULL if size is not 0 */
	bool list;		     /* a struct id_list; a later assignment adds to it */
	enum id_kind ids;	     /* of that list */
	uint32_t min, max;	     /* of a whole number */
	const char *none;	     /* the word for the number UINT32_MAX, or NULL */
	const char *words[2];	     /* of a bool: for false and true */
};

extern const struct value_type value_mode, value_node, value_size, value_bytes, value_count,
	value_pending, value_ratio, value_part, value_seconds, value_microseconds;
extern const struct value_type value_path, value_pool, value_kind, value_device, value_trust,
	value_share, value_allocate, value_yes;
extern const struct value_type value_group, value_users, value_groups;

/* Reads a user's name or number. 0; -EINVAL with the fault in *wrong; -ENOMEM. May ask the network,
 * see nsswitch.conf(5). */
int config_parse_user(const char *text, uid_t *ret, char wrong[WRONG_MAX]);

/* Writes the user's name if config_parse_user() reads it as the same user, else the number. */
void config_format_user(uid_t uid, FILE *out);
