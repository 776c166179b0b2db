/* SPDX-License-Identifier: MIT
 *
 * What a reload can't change: a pool is memory that clients have mapped, and the socket is where
 * they connected. Two configurations are compared value by value, as they would be written, so that
 * "40G" and "40960M" are the same.
 */
#include "daemon/config/config_key.h"

#include <stdarg.h>
#include <string.h>

#define TEXT_MAX 256u /* the longest value of a key that needs a restart is a socket's path */

struct names {
	char *text;
	size_t size, used, n;
};

/* Adds a name, ", " before it; one that does not fit is counted and left out. */
__attribute__((format(printf, 2, 3))) static void names_add(struct names *names, const char *format,
							    ...)
{
	char name[POOL_NAME_MAX + 64];
	const char *comma = names->used > 0 ? ", " : "";
	va_list args;
	size_t len;

	va_start(args, format);
	vsnprintf(name, sizeof(name), format, args);
	va_end(args);
	names->n++;
	len = strlen(comma) + strlen(name);
	if (names->used + len >= names->size)
		return;
	sprintf(names->text + names->used, "%s%s", comma, name);
	names->used += len;
}

/* Whether both have the same value. If memory runs out the answer is no, which asks for a restart
 * too many, not one too few. */
static bool is_same(const struct config_key *key, const void *old, const void *fresh)
{
	const void *members[2] = { old, fresh };
	char text[2][TEXT_MAX] = { "", "" };

	for (int i = 0; i < 2; i++) {
		FILE *out = fmemopen(text[i], TEXT_MAX, "w");

		if (!out)
			return false;
		key->type->format((const char *)members[i] + key->offset, out);
		fclose(out);
	}
	return strcmp(text[0], text[1]) == 0;
}

static void compare_section(enum section section, const char *label, const void *old,
			    const void *fresh, struct names *names)
{
	size_t n;
	const struct config_key *keys = config_keys(section, &n);

	for (size_t i = 0; i < n; i++) {
		if (keys[i].restart && !is_same(&keys[i], old, fresh))
			names_add(names, "%s %s", label, keys[i].name);
	}
}

static const struct pool_config *find_pool(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->n_pools; i++)
		if (strcmp(c->pools[i].name, name) == 0)
			return &c->pools[i];
	return NULL;
}

size_t config_needs_restart(const struct config *old, const struct config *fresh, char *names,
			    size_t size)
{
	struct names all = { .text = names, .size = size };
	char label[POOL_NAME_MAX + 16];

	names[0] = '\0';
	compare_section(SECTION_DAEMON, "[daemon]", old, fresh, &all);
	for (size_t i = 0; i < old->n_pools; i++) {
		const struct pool_config *pool = find_pool(fresh, old->pools[i].name);

		snprintf(label, sizeof(label), "[pool %s]", old->pools[i].name);
		if (pool)
			compare_section(SECTION_POOL, label, &old->pools[i], pool, &all);
		else
			names_add(&all, "%s", label);
	}
	for (size_t i = 0; i < fresh->n_pools; i++)
		if (!find_pool(old, fresh->pools[i].name))
			names_add(&all, "[pool %s]", fresh->pools[i].name);
	return all.n;
}
