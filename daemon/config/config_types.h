/* SPDX-License-Identifier: MIT
 *
 * The types of values in gpushmd.conf: how each is read and written, and what is allowed.
 */
#pragma once

#include "daemon/config/config.h"
#include "proto/base/keyfile.h"

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
