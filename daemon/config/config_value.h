/* SPDX-License-Identifier: MIT
 *
 * The types of values in gpushmd.conf: how each is read, written, and what is allowed.
 */
#ifndef GPUSHM_DAEMON_CONFIG_CONFIG_VALUE_H
#define GPUSHM_DAEMON_CONFIG_CONFIG_VALUE_H

#include "daemon/config/config.h"

#define WRONG_MAX 160u /* bytes of what parse() has to say */

struct value_type {
	const char *allowed; /* for people, after "allowed: " */
	size_t size;	     /* of the member; 0 where it owns memory: it is not copied, and all
				zero while no file sets it */
	bool list;	     /* a later assignment adds to it */
	/* Reads text, which is not empty, into the member. 0; -EINVAL with *wrong said, and the
	 * member as it was but for members of a list; -ENOMEM. */
	int (*parse)(const char *text, void *member, char wrong[WRONG_MAX]);
	/* Writes what parse() would read; nothing for what can only be a default. */
	void (*format)(const void *member, FILE *out);
	void (*clear)(void *member); /* frees what the member owns; NULL where size is not 0 */
};

/* config_number.c */
extern const struct value_type value_mode, value_node, value_size, value_bytes, value_count,
	value_pending, value_ratio, value_seconds, value_microseconds;
/* config_name.c */
extern const struct value_type value_path, value_pool, value_kind, value_device, value_trust;
/* config_id.c */
extern const struct value_type value_group, value_users, value_groups;

#endif
