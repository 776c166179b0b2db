/* SPDX-License-Identifier: MIT
 *
 * What of a configuration this machine does not have, for `gpushmd --check-config`. A daemon with
 * such a configuration starts all the same: a GPU may be away for a while, and the host may swap.
 */
#include "daemon/config/config_table.h"
#include "daemon/pool/pools.h"
#include "proto/base/size.h"

#include <string.h>
#include <sys/sysinfo.h>

static void check_size(const struct pool_config *p, const struct config_origin *at,
		       struct devices *devices, struct diagnostics *d)
{
	const struct kind *kind = kind_of(p->kind);
	const struct device *gpu = kind->on_gpu ? devices_find(devices, p->device) : NULL;
	struct sysinfo host = { 0 };
	uint64_t has = gpu ? gpu->bytes : UINT64_MAX;

	if (!kind->on_gpu && sysinfo(&host) == 0)
		has = (host.totalram + (kind->by_driver ? 0 : host.totalswap)) *
		      (uint64_t)host.mem_unit;
	if (!at || p->size.percent > 0 || p->size.bytes <= has)
		return;
	d->file = at->file;
	diagnostics_add(d, at->line,
			"[pool %s]: size=%s is more than the %s has; allowed: %s, or a part of it "
			"(\"80%%\")",
			p->name, size_format(p->size.bytes).text, gpu ? "GPU" : "machine",
			size_format(has).text);
}

/* The names are those of make_defaults() in pools.c. */
static bool is_made(const char *name, const struct devices *devices)
{
	char gpu[32];

	for (size_t i = 0; i < devices->n; i++) {
		int n = snprintf(gpu, sizeof(gpu), "gpu%d", devices->items[i].ordinal);

		if (strncmp(name, gpu, (size_t)n) == 0 &&
		    (name[n] == '\0' || strcmp(name + n, "-mempool") == 0))
			return true;
	}
	return strcmp(name, "host") == 0 || (devices->n > 0 && strcmp(name, "pinned") == 0);
}

int pools_check(const struct config *c, FILE *errors)
{
	const struct config_origin *standard =
		config_origin_of(c, SECTION_DAEMON, 0, "default-pool");
	struct diagnostics d = { .out = errors };
	struct devices devices = { 0 };
	bool asks = c->auto_pools && standard && strcmp(c->default_pool, "host") != 0;

	for (size_t i = 0; i < c->n_pools; i++)
		asks = asks || kind_of(c->pools[i].kind)->by_driver;
	if (asks)
		devices_probe(&devices);
	for (size_t i = 0; i < c->n_pools; i++)
		check_size(&c->pools[i], config_origin_of(c, SECTION_POOL, i, "size"), &devices,
			   &d);
	if (c->auto_pools && standard && *c->default_pool && !is_made(c->default_pool, &devices)) {
		d.file = standard->file;
		diagnostics_add(
			&d, standard->line,
			"default-pool=%s: this machine has no such pool%s%s; allowed: host%s",
			c->default_pool, devices.n ? "" : ": ", devices.why_none,
			devices.n ? ", pinned, or gpuN and gpuN-mempool of a GPU that it has" : "");
	}
	devices_done(&devices);
	return d.n > 0 ? -EINVAL : 0;
}
