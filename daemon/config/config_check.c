/* SPDX-License-Identifier: MIT
 *
 * Makes a configuration whole once every file has been read: defaults where nothing was set, and
 * the checks that need more than one value. It comes last because drop-ins may come in any order: a
 * pool's kind decides the default of its size, and [limits] that of every [limits USER].
 */
#include "daemon/config/config_default.h"
#include "daemon/config/config_origin.h"
#include "daemon/config/config_reader.h"
#include "proto/base/own.h"

#include <errno.h>
#include <string.h>

/* Where a value was set; NULL where it is the default. */
static const struct config_origin *origin_of(const struct config *c, enum section section,
					     size_t subject, const char *key)
{
	size_t n;

	return config_origin_find(c, section, subject, config_key_find(section, key), &n);
}

/* Copies the defaults of a section's values that nothing set. */
static void fill(struct config *c, enum section section, size_t subject, const void *defaults)
{
	char *members = config_subject(c, section, subject);
	size_t n, n_origins;
	const struct config_key *keys = config_keys(section, &n);

	for (size_t i = 0; i < n; i++)
		if (!config_origin_find(c, section, subject, &keys[i], &n_origins))
			memcpy(members + keys[i].offset, (const char *)defaults + keys[i].offset,
			       keys[i].type->size);
}

static void fill_pool(struct config *c, size_t pool)
{
	struct pool_config *p = &c->pools[pool];
	struct pool_config defaults;

	pool_config_default(p->kind, &defaults);
	fill(c, SECTION_POOL, pool, &defaults);
	p->restricted = p->allow_users.n > 0 || p->allow_groups.n > 0;
}

static int fill_all(struct config *c)
{
	struct config daemon;
	struct limits_config limits;

	config_default_daemon(&daemon);
	config_default_limits(&limits);
	config_default_pool(c, daemon.default_pool);
	fill(c, SECTION_DAEMON, 0, &daemon);
	fill(c, SECTION_LIMITS, 0, &limits);
	for (size_t i = 0; i < c->n_user_limits; i++)
		fill(c, SECTION_USER, i, &c->limits);
	for (size_t i = 0; i < c->n_pools; i++)
		fill_pool(c, i);
	c->auto_pools = c->n_pools == 0;
	if (!c->socket_path)
		c->socket_path = config_default_socket();
	return c->socket_path ? 0 : -ENOMEM;
}

/* Complains of a value that the pool's kind has no use for: who set it expects something of it. */
static void check_useless(struct config_reader *r, size_t pool, const char *key,
			  const char *allowed)
{
	const struct pool_config *p = &r->config->pools[pool];
	const struct config_origin *origin = origin_of(r->config, SECTION_POOL, pool, key);

	if (!origin)
		return;
	r->complaints.file = origin->file;
	diagnostics_add(&r->complaints, origin->line,
			"[pool %s]: %s has no meaning with kind=%s; allowed: with kind=%s", p->name,
			key, pool_kind_name(p->kind), allowed);
}

static void check_pool(struct config_reader *r, size_t pool)
{
	const struct pool_config *p = &r->config->pools[pool];
	const struct config_origin *header;
	size_t n;

	if (!origin_of(r->config, SECTION_POOL, pool, "kind")) {
		header = config_origin_find(r->config, SECTION_POOL, pool, NULL, &n);
		r->complaints.file = header->file;
		diagnostics_add(&r->complaints, header->line,
				"[pool %s] has no kind; allowed: kind= with %s", p->name,
				value_kind.allowed);
		return;
	}
	if (p->kind == 0)
		return;
	if (p->kind == POOL_HOST)
		check_useless(r, pool, "device", "vmm, mempool or pinned");
	if (p->kind != POOL_PINNED)
		check_useless(r, pool, "numa-node", "pinned");
}

static void check_default_pool(struct config_reader *r)
{
	const struct config *c = r->config;
	const struct config_origin *origin = origin_of(c, SECTION_DAEMON, 0, "default-pool");
	char names[512] = "";
	size_t used = 0;

	/* The names of pools that are made by themselves depend on the machine. */
	if (!origin || c->n_pools == 0 || c->default_pool[0] == '\0')
		return;
	for (size_t i = 0; i < c->n_pools; i++) {
		if (strcmp(c->pools[i].name, c->default_pool) == 0)
			return;
		if (used < sizeof(names))
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
						 i > 0 ? ", " : "", c->pools[i].name);
	}
	r->complaints.file = origin->file;
	diagnostics_add(&r->complaints, origin->line,
			"default-pool=%s: there is no such pool; allowed: %s", c->default_pool,
			names);
}

int config_reader_finish(struct config_reader *r, struct config **ret)
{
	int e;

	config_origin_settle(r->config);
	for (size_t i = 0; i < r->config->n_pools; i++)
		check_pool(r, i);
	check_default_pool(r);
	if (r->complaints.n > 0)
		return -EINVAL;
	e = fill_all(r->config);
	if (e < 0)
		return e;
	*ret = take_ptr(r->config);
	return 0;
}
