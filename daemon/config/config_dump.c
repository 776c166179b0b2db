/* SPDX-License-Identifier: MIT
 *
 * Writes a configuration in the form of its file, each value with where it came from, for
 * --dump-config. What is written is a valid file that means the same: a default that has no
 * written form (no group, no NUMA node) is an empty assignment, which means the default.
 */
#include "daemon/config/config_id.h"
#include "daemon/config/config_origin.h"
#include "daemon/util/escape.h"

#include <limits.h>
#include <string.h>

static void dump_origin(const struct config_origin *origin, FILE *out)
{
	char file[PATH_MAX];

	if (!origin) {
		fputs("  # default\n", out);
		return;
	}
	escape(origin->file, strlen(origin->file), file, sizeof(file));
	fprintf(out, "  # %s:%u\n", file, origin->line);
}

/* One line for each assignment that added to the list. */
static void dump_list(const struct config_key *key, const struct id_list *list,
		      const struct config_origin *origins, size_t n, FILE *out)
{
	for (size_t i = 0; i < n; i++) {
		struct id_list part = { list->ids + origins[i].first, origins[i].count };

		fprintf(out, "%s=", key->name);
		key->type->format(&part, out);
		dump_origin(&origins[i], out);
	}
}

static void dump_keys(const struct config *c, enum section section, size_t subject, FILE *out)
{
	const char *members = config_subject(c, section, subject);
	size_t n, n_origins;
	const struct config_key *keys = config_keys(section, &n);

	for (size_t i = 0; i < n; i++) {
		const char *member = members + keys[i].offset;
		const struct config_origin *origins =
			config_origin_find(c, section, subject, &keys[i], &n_origins);

		/* What [limits USER] does not set, [limits] may have: they share the keys. */
		if (!origins && section == SECTION_USER)
			origins = config_origin_find(c, SECTION_LIMITS, 0, &keys[i], &n_origins);
		if (keys[i].type->list && origins) {
			dump_list(&keys[i], (const struct id_list *)member, origins, n_origins,
				  out);
			continue;
		}
		fprintf(out, "%s=", keys[i].name);
		keys[i].type->format(member, out);
		dump_origin(origins, out);
	}
}

static void dump_header(const struct config *c, enum section section, size_t subject, FILE *out)
{
	size_t n;
	const struct config_origin *origin = config_origin_find(c, section, subject, NULL, &n);

	if (section == SECTION_USER) {
		fputs("\n[limits ", out);
		config_id_format_user(c->user_limits[subject].uid, out);
	} else {
		fprintf(out, "\n[pool %s", c->pools[subject].name);
	}
	putc(']', out);
	dump_origin(origin, out);
}

void config_dump(const struct config *c, FILE *out)
{
	fputs("[daemon]\n", out);
	dump_keys(c, SECTION_DAEMON, 0, out);
	fputs("\n[limits]\n", out);
	dump_keys(c, SECTION_LIMITS, 0, out);
	for (size_t i = 0; i < c->n_user_limits; i++) {
		dump_header(c, SECTION_USER, i, out);
		dump_keys(c, SECTION_USER, i, out);
	}
	for (size_t i = 0; i < c->n_pools; i++) {
		dump_header(c, SECTION_POOL, i, out);
		dump_keys(c, SECTION_POOL, i, out);
	}
	if (c->auto_pools)
		fputs("\n# No pool is configured: each GPU gets gpuN, gpuN-mempool and a pinned "
		      "pool, and\n# there is always host.\n",
		      out);
}
