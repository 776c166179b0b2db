/* SPDX-License-Identifier: MIT
 *
 * The table of gpushmd.conf's keys: which section has which, where its value is kept, of what type
 * it is, and whether a change needs a restart. Who adds a key adds a line here, a member to
 * config.h, a default to config_default.c and a paragraph to gpushmd.conf(5); reading,
 * --dump-config and the messages follow from the table.
 */
#include "daemon/config/config_key.h"

#include "proto/base/own.h"
#include "proto/base/suggest.h"

#include <string.h>

#define DAEMON(name, member, type, restart)                          \
	{                                                            \
		name, offsetof(struct config, member), type, restart \
	}
#define LIMIT(name, member, type)                                         \
	{                                                                 \
		name, offsetof(struct limits_config, member), type, false \
	}
#define POOL(name, member, type, restart)                                 \
	{                                                                 \
		name, offsetof(struct pool_config, member), type, restart \
	}

/* The socket's mode and group are given to it when it is made, by us or by systemd. */
static const struct config_key daemon_keys[] = {
	DAEMON("socket", socket_path, &value_path, true),
	DAEMON("mode", socket_mode, &value_mode, true),
	DAEMON("group", socket_gid, &value_group, true),
	DAEMON("admin-group", admin_gid, &value_group, false),
	DAEMON("default-pool", default_pool, &value_pool, false),
	DAEMON("unwatched-clients", trust_unwatched, &value_trust, false),
	DAEMON("driver-timeout", driver_timeout, &value_seconds, false),
	DAEMON("busy-poll", busy_poll, &value_microseconds, false),
};

static const struct config_key limits_keys[] = {
	LIMIT("max-bytes", bytes, &value_bytes),
	LIMIT("max-table-bytes", tables, &value_bytes),
	LIMIT("max-buffers", buffers, &value_count),
	LIMIT("max-leases", leases, &value_count),
	LIMIT("max-connections", peers, &value_count),
};

static const struct config_key pool_keys[] = {
	POOL("kind", kind, &value_kind, true),
	POOL("device", device, &value_device, true),
	POOL("numa-node", numa_node, &value_node, true),
	POOL("size", size, &value_size, true),
	POOL("allow-users", allow_users, &value_users, false),
	POOL("allow-groups", allow_groups, &value_groups, false),
	POOL("pending-max-count", pending_max_count, &value_pending, false),
	POOL("pending-max-ratio", pending_max_ratio, &value_ratio, false),
};

const struct config_key *config_keys(enum section section, size_t *ret_n)
{
	switch (section) {
	case SECTION_DAEMON:
		*ret_n = array_size(daemon_keys);
		return daemon_keys;
	case SECTION_LIMITS:
	case SECTION_USER:
		*ret_n = array_size(limits_keys);
		return limits_keys;
	case SECTION_POOL:
		*ret_n = array_size(pool_keys);
		return pool_keys;
	default:
		*ret_n = 0;
		return NULL;
	}
}

const struct config_key *config_key_find(enum section section, const char *name)
{
	size_t n;
	const struct config_key *keys = config_keys(section, &n);

	for (size_t i = 0; i < n; i++)
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

void config_key_suggest(enum section section, const char *name, char *buf, size_t size)
{
	const char *names[array_size(pool_keys)];
	size_t n;
	const struct config_key *keys = config_keys(section, &n);

	for (size_t i = 0; i < n; i++)
		names[i] = keys[i].name;
	suggest(name, names, n, buf, size);
}
_Static_assert(array_size(daemon_keys) <= array_size(pool_keys) &&
		       array_size(limits_keys) <= array_size(pool_keys),
	       "config_key_suggest() has room for every section's names");

void config_section_suggest(const char *name, char *buf, size_t size)
{
	static const char *const names[] = { "daemon", "limits", "pool" };

	suggest(name, names, array_size(names), buf, size);
}

void *config_subject(const struct config *c, enum section section, size_t subject)
{
	switch (section) {
	case SECTION_DAEMON:
		return (void *)c;
	case SECTION_LIMITS:
		return (void *)&c->limits;
	case SECTION_USER:
		return &c->user_limits[subject].limits;
	case SECTION_POOL:
		return &c->pools[subject];
	default:
		return NULL;
	}
}
