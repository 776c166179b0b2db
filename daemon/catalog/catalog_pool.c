/* SPDX-License-Identifier: MIT
 *
 * Which pool a name means, and who may use it.
 */
#include "daemon/catalog/catalog.h"

#include <stdio.h>
#include <string.h>

/* An adopted one will be ready in a moment, and lets who creates in it wait for that. */
static bool is_usable(const struct pool *pool)
{
	return pool->opened || (pool->state == POOL_STARTING && pool->is_adopted);
}

static struct pool *default_pool(const struct catalog *c)
{
	struct pool *it, *host = NULL, *gpu = NULL;

	list_foreach (it, c->pools, link) {
		if (strcmp(it->config.name, c->default_pool) == 0)
			return it;
		if (!host && it->config.kind == POOL_HOST)
			host = it;
		/* One whose GPU was lost stays the default: a CREATE is refused rather than given
		 * another kind of memory. */
		if (!gpu && it->config.kind == POOL_VMM && is_usable(it))
			gpu = it;
	}
	return gpu ? gpu : host;
}

int catalog_lookup_pool(const struct catalog *c, const char *name, struct pool **ret,
			struct fault *f)
{
	struct pool *it, *found = *name ? NULL : default_pool(c);
	char names[160] = "";
	size_t len = 0;

	list_foreach (it, c->pools, link) {
		if (strcmp(it->config.name, name) == 0)
			found = it;
		if (len < sizeof(names))
			len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s",
						len ? ", " : "", it->config.name);
	}
	if (!found)
		return fault(f, CODE_NOT_FOUND, "no pool \"%s\"; there are: %s", name, names);
	*ret = found;
	return 0;
}

bool catalog_pool_is_open_to(const struct pool *pool, const struct process *p)
{
	return p->admin || pool_allows(pool, p->uid, p->gids, p->n_gids);
}

/* A mempool's fd opens all of the pool, so whoever attaches to a buffer must be one of its users.
 */
bool catalog_may_attach(const struct pool *pool, const struct process *p)
{
	return pool->config.kind != POOL_MEMPOOL || catalog_pool_is_open_to(pool, p);
}

int catalog_refuse_pool(const struct pool *pool, const struct process *p, struct fault *f)
{
	return fault(f, CODE_ACCESS,
		     "pool \"%s\" is not open to uid %u (allow-users and allow-groups in "
		     "gpushmd.conf)",
		     pool->config.name, p->uid);
}
