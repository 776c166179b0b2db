/* SPDX-License-Identifier: MIT
 *
 * Writes a configuration in the form of its file, with the origin of each value (--dump-config),
 * and compares two of them at a reload.
 *
 * A dump is a valid file that means the same: a default that has no written form (no group, no NUMA
 * node) becomes an empty assignment, which means the default.
 *
 * A reload can't change a pool, which is memory that clients have mapped, nor the socket, to which
 * they are connected. Two values are compared as they would be written, so that "40G" and "40960M"
 * are the same.
 */
#include "daemon/config/config_table.h"
#include "proto/base/text.h"

#include <limits.h>
#include <string.h>

/* ---- --dump-config ---- */

static void dump_origin(const struct config_origin *origin, FILE *out)
{
	char file[PATH_MAX];

	if (!origin) {
		fputs("  # default\n", out);
		return;
	}
	text_escape(origin->file, file, sizeof(file));
	fprintf(out, "  # %s:%u\n", file, origin->line);
}

/* Writes one line for each assignment that added to the list. */
static void dump_list(const struct keyfile_key *key, const struct id_list *list,
		      const struct config_origin *origins, size_t n, FILE *out)
{
	for (size_t i = 0; i < n; i++) {
		struct id_list part = { list->ids + origins[i].first, origins[i].count };

		fprintf(out, "%s=", key->name);
		key->type->format(key->type, &part, out);
		dump_origin(&origins[i], out);
	}
}

static void dump_keys(const struct config *c, enum section section, size_t subject, FILE *out)
{
	const char *members = config_subject(c, section, subject);
	const struct keyfile_section *s = config_section(section);
	const struct keyfile_key *keys = s->keys;
	size_t n_origins;

	for (size_t i = 0; i < s->n_keys; i++) {
		const char *member = members + keys[i].offset;
		const struct config_origin *origins =
			config_origin_find(c, section, subject, &keys[i], &n_origins);

		/* [limits] gives the values that [limits USER] does not set; they share the keys.
		 */
		if (!origins && section == SECTION_USER)
			origins = config_origin_find(c, SECTION_LIMITS, 0, &keys[i], &n_origins);
		if (keys[i].type->list && origins) {
			dump_list(&keys[i], (const struct id_list *)member, origins, n_origins,
				  out);
			continue;
		}
		fprintf(out, "%s=", keys[i].name);
		keys[i].type->format(keys[i].type, member, out);
		dump_origin(origins, out);
	}
}

static void dump_header(const struct config *c, enum section section, size_t subject, FILE *out)
{
	const struct config_origin *origin = config_origin_find(c, section, subject, NULL, NULL);

	if (section == SECTION_USER) {
		fputs("\n[limits ", out);
		config_format_id(ID_USER, c->user_limits[subject].uid, out);
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
		fputs("\n# No pool is configured: each GPU gets gpuN and gpuN-mempool; where there "
		      "is one,\n# there is pinned, and always host.\n",
		      out);
}

/* ---- a reload ---- */

static void compare_section(enum section section, const char *label, const void *old,
			    const void *fresh, char *names, size_t size)
{
	const struct keyfile_section *s = config_section(section);

	for (size_t i = 0; i < s->n_keys; i++)
		if (s->keys[i].restart && !keyfile_is_same(&s->keys[i], old, fresh))
			text_append(names, size, "%s%s %s", *names ? ", " : "", label,
				    s->keys[i].name);
}

void config_needs_restart(const struct config *old, const struct config *fresh, char *names,
			  size_t size)
{
	char label[POOL_NAME_MAX + 16];

	names[0] = '\0';
	compare_section(SECTION_DAEMON, "[daemon]", old, fresh, names, size);
	for (size_t i = 0; i < old->n_pools; i++) {
		const struct pool_config *pool = config_pool(fresh, old->pools[i].name);

		snprintf(label, sizeof(label), "[pool %s]", old->pools[i].name);
		if (pool)
			compare_section(SECTION_POOL, label, &old->pools[i], pool, names, size);
		else
			text_append(names, size, "%s%s", *names ? ", " : "", label);
	}
	for (size_t i = 0; i < fresh->n_pools; i++)
		if (!config_pool(old, fresh->pools[i].name))
			text_append(names, size, "%s[pool %s]", *names ? ", " : "",
				    fresh->pools[i].name);
}
