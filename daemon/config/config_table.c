/* SPDX-License-Identifier: MIT
 *
 * The table of gpushmd.conf's keys: the section of each, the place of its value, its type, and
 * whether a change needs a restart. A new key needs a line here, a member in config.h or
 * pool_config.h, a default in config.c and a paragraph in gpushmd.conf(5); reading, --dump-config
 * and the messages follow from the table.
 *
 * While files are read every assignment leaves an origin. Settling sorts them by what they set. It
 * keeps the last one of a single value, those since the last reset of a list, and the first one of
 * a section's header, where a reader looks for it. A file of 1 MiB may hold 100,000 assignments, so
 * finding one is a binary search.
 */
#include "daemon/config/config_table.h"

#include "proto/base/grow.h"
#include "proto/base/own.h"

#include <errno.h>
#include <string.h>

#define KEY(of, name, member, type, restart)                     \
	{                                                        \
		name, offsetof(struct of, member), type, restart \
	}
#define DAEMON(...) KEY(config, __VA_ARGS__)
#define LIMIT(...) KEY(limits_config, __VA_ARGS__, false)
#define POOL(...) KEY(pool_config, __VA_ARGS__)

/* The socket gets its mode and group when it is made, by the daemon or by systemd. */
static const struct keyfile_key daemon_keys[] = {
	DAEMON("socket", socket_path, &value_path, true),
	DAEMON("mode", socket_mode, &keyfile_mode, true),
	DAEMON("group", socket_gid, &value_group, true),
	DAEMON("admin-group", admin_gid, &value_group, false),
	DAEMON("default-pool", default_pool, &value_pool, false),
	DAEMON("unwatched-clients", trust_unwatched, &value_trust, false),
	DAEMON("unmapped-users", share_unmapped, &value_share, false),
	DAEMON("audit", audit, &value_yes, false),
	DAEMON("driver-timeout", driver_timeout, &value_seconds, false),
	DAEMON("busy-poll", busy_poll, &value_microseconds, false),
	DAEMON("keep", keep, &value_age, false),
	DAEMON("yield-timeout", yield_timeout, &value_age, false),
};

static const struct keyfile_key limits_keys[] = {
	LIMIT("max-bytes", bytes, &value_bytes),
	LIMIT("max-pool-share", pool_share, &value_part),
	LIMIT("max-buffers", buffers, &value_some),
	LIMIT("max-leases", leases, &value_some),
	LIMIT("max-connections", peers, &value_count),
	LIMIT("max-share", share, &value_part),
};

static const struct keyfile_key pool_keys[] = {
	POOL("kind", kind, &value_kind, true),
	POOL("device", device, &value_device, true),
	POOL("numa-node", numa_node, &value_node, true),
	POOL("size", size, &value_size, true),
	POOL("allow-users", allow_users, &value_users, false),
	POOL("allow-groups", allow_groups, &value_groups, false),
	POOL("max-pool-share", share, &value_part, false),
	POOL("allocate", allocate, &value_allocate, true),
	POOL("pending-max-age", pending_max_age, &value_age, false),
};

/* Version 0.2 had them. */
static const struct keyfile_former limits_former[] = {
	{ "max-table-bytes", "delete it: each user may have 256 MiB of tables" },
};
#define PENDING "delete it; pending-max-age=0 gives freed memory back at once"
static const struct keyfile_former pool_former[] = {
	{ "pending-max-count", PENDING },
	{ "pending-max-ratio", PENDING },
	{ "pending-max-bytes", PENDING },
	{ "pending-max-buffer", PENDING },
};

const struct keyfile_section config_sections[] = {
	[SECTION_DAEMON] = { "daemon", "[daemon]", daemon_keys, array_size(daemon_keys),
			     .no_argument = true },
	[SECTION_LIMITS] = { "limits", "[limits]", limits_keys, array_size(limits_keys),
			     .former = limits_former, .n_former = array_size(limits_former) },
	[SECTION_POOL] = { "pool", "[pool NAME]", pool_keys, array_size(pool_keys),
			   .former = pool_former, .n_former = array_size(pool_former) },
};

const struct keyfile_section *config_section(enum section section)
{
	return &config_sections[section == SECTION_USER ? SECTION_LIMITS : section];
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

int config_origin_add(struct config *c, const struct config_origin *origin)
{
	struct config_origin *added = grow_append(&c->origins, &c->n_origins, sizeof(*added));

	if (!added)
		return -ENOMEM;
	*added = *origin;
	added->sequence = c->n_origins;
	return 0;
}

/* Compares what they set. The keys of a section are members of one array, so that their addresses
 * compare. */
static int compare_target(const struct config_origin *a, const struct config_origin *b)
{
	if (a->section != b->section)
		return a->section < b->section ? -1 : 1;
	if (a->subject != b->subject)
		return a->subject < b->subject ? -1 : 1;
	if (a->key != b->key)
		return !a->key || (b->key && a->key < b->key) ? -1 : 1;
	return 0;
}

static int compare(const void *x, const void *y)
{
	const struct config_origin *a = x, *b = y;
	int r = compare_target(a, b);

	return r != 0 ? r : a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

/* Copies those of one target's origins that count to `to`. Returns their number. */
static size_t keep(const struct config_origin *from, size_t n, struct config_origin *to)
{
	size_t first = 0, kept = 0;

	if (!from->key) {
		*to = *from;
		return 1;
	}
	if (!from->key->type->list)
		first = n - 1;
	for (size_t i = first; i < n; i++)
		if (from[i].reset)
			first = i + 1;
	for (size_t i = first; i < n; i++)
		to[kept++] = from[i];
	return kept;
}

/* One of two values in a file has no effect, and its author may read that one. An empty value says
 * what it does. */
static void report_twice(const struct config_origin *o, size_t n, struct diagnostics *d)
{
	for (size_t i = 1; i < n && o->key && !o->key->type->list; i++) {
		if (o[i].file != o[i - 1].file || o[i].reset || o[i - 1].reset)
			continue;
		d->file = o[i].file;
		diagnostics_add(d, o[i].line,
				"%s= is in line %u, too; delete one of them; allowed: once in a "
				"section of a file",
				o->key->name, o[i - 1].line);
	}
}

void config_origin_settle(struct config *c, struct diagnostics *d)
{
	size_t kept = 0;

	if (c->n_origins == 0)
		return;
	qsort(c->origins, c->n_origins, sizeof(*c->origins), compare);
	for (size_t i = 0, n; i < c->n_origins; i += n) {
		for (n = 1; i + n < c->n_origins; n++)
			if (compare_target(&c->origins[i], &c->origins[i + n]) != 0)
				break;
		report_twice(&c->origins[i], n, d);
		kept += keep(&c->origins[i], n, &c->origins[kept]);
	}
	c->n_origins = kept;
}

const struct config_origin *config_origin_find(const struct config *c, enum section section,
					       size_t subject, const struct keyfile_key *key,
					       size_t *ret_n)
{
	struct config_origin wanted = { .section = section, .subject = subject, .key = key };
	size_t low = 0, high = c->n_origins, n = 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare_target(&c->origins[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	while (low + n < c->n_origins && compare_target(&c->origins[low + n], &wanted) == 0)
		n++;
	if (ret_n)
		*ret_n = n;
	return n > 0 ? &c->origins[low] : NULL;
}

const struct config_origin *config_origin_of(const struct config *c, enum section section,
					     size_t subject, const char *key)
{
	return config_origin_find(c, section, subject, keyfile_find(config_section(section), key),
				  NULL);
}
