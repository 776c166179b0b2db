/* SPDX-License-Identifier: MIT
 *
 * From the sections and assignments of files to the values of a struct config. Each assignment is
 * checked, even one that a later file overrides: such a mistake would show up when the other file
 * is removed. Each leaves its origin. Keys come from the table of config_table.c.
 *
 * Defaults and the checks that need more than one value come last, because drop-ins may come in any
 * order: a pool's kind decides the default of its size, and [limits] that of every [limits USER].
 */
#include "daemon/config/config_reader.h"

#include "proto/base/grow.h"
#include "proto/base/own.h"
#include "proto/base/text.h"
#include "proto/name.h"

#include <errno.h>
#include <string.h>

#define USERS_MAX 4096u /* [limits USER] sections; a search looks at each */

void config_reader_done(struct config_reader *r)
{
	r->config = config_free(r->config);
}

/* Keeps the file's name for the origins. */
static int add_file(struct config *c, const char *file, char **ret)
{
	char **added = grow_append(&c->files, &c->n_files, sizeof(*added));

	if (!added)
		return -ENOMEM;
	*added = *ret = strdup(file);
	return *added ? 0 : -ENOMEM;
}

/* Remembers where a value, or a section's header, was found. */
static int add_origin(struct config_reader *r, const struct keyfile_key *key, unsigned line,
		      size_t first, size_t count, bool reset)
{
	struct config_origin origin = { .section = r->section,
					.subject = r->subject,
					.key = key,
					.first = first,
					.count = count,
					.reset = reset,
					.file = r->keys.diagnostics.file,
					.line = line };

	return config_origin_add(r->config, &origin);
}

/* Reports a fault in the item that is being read. */
#define report(...) diagnostics_add(&r->keys.diagnostics, item->line, __VA_ARGS__)

/* Enters [limits USER]; an earlier section may have named the same user. */
static int enter_user(struct config_reader *r, const struct ini_item *item)
{
	struct config *c = r->config;
	char wrong[KEYFILE_WRONG_MAX] = "";
	struct user_limits *user;
	uid_t uid;
	int e = config_parse_id(ID_USER, item->argument, &uid, wrong);

	if (e == -EINVAL) {
		report("%s; allowed: a user's name or number", wrong);
		/* This configuration is refused; the section's keys are checked all the same. */
		return 0;
	}
	if (e < 0)
		return e;
	for (r->subject = 0; r->subject < c->n_user_limits; r->subject++)
		if (c->user_limits[r->subject].uid == uid)
			break;
	if (r->subject == USERS_MAX) {
		report("one [limits USER] too many; allowed: %u of them", USERS_MAX);
		r->keys.section = NULL;
		return 0;
	}
	r->section = SECTION_USER;
	if (r->subject < c->n_user_limits)
		return 0;
	user = grow_append(&c->user_limits, &c->n_user_limits, sizeof(*user));
	if (user)
		user->uid = uid;
	return user ? 0 : -ENOMEM;
}

/* Enters [pool NAME]. */
static int enter_pool(struct config_reader *r, const struct ini_item *item)
{
	struct config *c = r->config;
	const char *wrong = name_check_pool(item->argument, strlen(item->argument));
	struct pool_config *pool;

	if (wrong) {
		report("[pool %.80s]: %s; allowed: %s", item->argument, wrong, value_pool.allowed);
		r->keys.section = NULL;
		return 0;
	}
	for (r->subject = 0; r->subject < c->n_pools; r->subject++)
		if (strcmp(c->pools[r->subject].name, item->argument) == 0)
			break;
	if (r->subject == POOLS_MAX) {
		report("one pool too many; allowed: %u of them", POOLS_MAX);
		r->keys.section = NULL;
		return 0;
	}
	if (r->subject < c->n_pools)
		return 0;
	pool = grow_append(&c->pools, &c->n_pools, sizeof(*pool));
	if (pool)
		strcpy(pool->name, item->argument);
	return pool ? 0 : -ENOMEM;
}

static int on_section(struct keyfile *keys, const struct ini_item *item)
{
	struct config_reader *r = container_of(keys, struct config_reader, keys);
	int e = 0;

	r->section = (enum section)(keys->section - config_sections);
	r->subject = 0;
	if (r->section == SECTION_POOL)
		e = enter_pool(r, item);
	else if (r->section == SECTION_LIMITS && item->argument[0] != '\0')
		e = enter_user(r, item);
	return e < 0 || !keys->section ? e : add_origin(r, NULL, item->line, 0, 0, false);
}

/* Reads a value into its member; an empty one restores the default. A wrong one leaves its origin,
 * too, so that it is not reported again as missing. */
static int on_key(struct keyfile *keys, const struct keyfile_key *key, const struct ini_item *item)
{
	struct config_reader *r = container_of(keys, struct config_reader, keys);
	char *members = config_subject(r->config, r->section, r->subject);
	const struct id_list *list =
		key->type->list ? (struct id_list *)(members + key->offset) : NULL;
	bool reset = item->value[0] == '\0';
	size_t before = list ? list->n : 0;
	int e = 0;

	if (!reset)
		e = keyfile_set(keys, key, item, members);
	else if (key->type->clear)
		key->type->clear(members + key->offset);
	if (e < 0 && e != -EINVAL)
		return e;
	return add_origin(r, key, item->line, before, list && !reset ? list->n - before : 0, reset);
}

int config_reader_init(struct config_reader *r, FILE *errors)
{
	*r = (struct config_reader){ .keys = { .diagnostics.out = errors,
					       .sections = config_sections,
					       .n_sections = SECTION_USER,
					       .on_section = on_section,
					       .on_key = on_key } };
	r->config = calloc(1, sizeof(*r->config));
	return r->config ? 0 : -ENOMEM;
}

int config_reader_text(struct config_reader *r, const char *file, char *text, size_t len)
{
	char *kept;
	int e = add_file(r->config, file, &kept);

	return e < 0 ? e : keyfile_read(&r->keys, kept, text, len);
}

/* Copies the defaults of a section's values that nothing set. */
static void fill(struct config *c, enum section section, size_t subject, const void *defaults)
{
	char *members = config_subject(c, section, subject);
	const struct keyfile_section *s = config_section(section);

	for (const struct keyfile_key *key = s->keys; key < s->keys + s->n_keys; key++)
		if (!config_origin_find(c, section, subject, key, NULL))
			memcpy(members + key->offset, (const char *)defaults + key->offset,
			       key->type->size);
}

static void fill_pool(struct config *c, size_t pool)
{
	struct pool_config *p = &c->pools[pool];
	struct pool_config defaults;

	pool_config_default(p->kind, &defaults);
	fill(c, SECTION_POOL, pool, &defaults);
	p->restricted = p->allow_users.n > 0 || p->allow_groups.n > 0;
	for (size_t i = 0; i < p->allow_users.n; i++)
		if (p->allow_users.ids[i] == ID_EVERYBODY)
			p->restricted = false;
	config_restrict_mempool(c, p);
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
	if (config_default_groups(c) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_pools; i++)
		fill_pool(c, i);
	c->auto_pools = c->n_pools == 0;
	if (!c->socket_path)
		c->socket_path = config_default_socket();
	return c->socket_path ? 0 : -ENOMEM;
}

/* Reports a value that means nothing for the pool's kind: its author expects an effect. */
static void check_useless(struct config_reader *r, size_t pool, const char *key,
			  const char *allowed)
{
	const struct pool_config *p = &r->config->pools[pool];
	const struct config_origin *origin = config_origin_of(r->config, SECTION_POOL, pool, key);

	if (!origin)
		return;
	r->keys.diagnostics.file = origin->file;
	diagnostics_add(&r->keys.diagnostics, origin->line,
			"[pool %s]: %s has no meaning with kind=%s; allowed: with kind=%s", p->name,
			key, kind_word(p->kind), allowed);
}

static void check_pool(struct config_reader *r, size_t pool)
{
	const struct pool_config *p = &r->config->pools[pool];
	const struct config_origin *header;

	if (!config_origin_of(r->config, SECTION_POOL, pool, "kind")) {
		header = config_origin_find(r->config, SECTION_POOL, pool, NULL, NULL);
		r->keys.diagnostics.file = header->file;
		diagnostics_add(&r->keys.diagnostics, header->line,
				"[pool %s] has no kind; allowed: kind= with %s", p->name,
				value_kind.allowed);
		return;
	}
	if (p->kind == 0)
		return;
	if (!kind_of(p->kind)->by_driver)
		check_useless(r, pool, "device", "vmm, mempool or pinned");
	else if (p->allocate) /* a dump has the default of every key */
		check_useless(r, pool, "allocate", "host");
	if (p->kind != POOL_PINNED)
		check_useless(r, pool, "numa-node", "pinned");
}

static void check_default_pool(struct config_reader *r)
{
	const struct config *c = r->config;
	const struct config_origin *origin = config_origin_of(c, SECTION_DAEMON, 0, "default-pool");
	char names[512] = "";

	/* Without [pool] sections the names of the pools depend on the machine. */
	if (!origin || c->n_pools == 0 || c->default_pool[0] == '\0')
		return;
	for (size_t i = 0; i < c->n_pools; i++) {
		if (strcmp(c->pools[i].name, c->default_pool) == 0)
			return;
		text_append(names, sizeof(names), "%s%s", i > 0 ? ", " : "", c->pools[i].name);
	}
	r->keys.diagnostics.file = origin->file;
	diagnostics_add(&r->keys.diagnostics, origin->line,
			"default-pool=%s: there is no such pool; allowed: %s", c->default_pool,
			names);
}

int config_reader_finish(struct config_reader *r, struct config **ret)
{
	int e;

	config_origin_settle(r->config, &r->keys.diagnostics);
	for (size_t i = 0; i < r->config->n_pools; i++)
		check_pool(r, i);
	check_default_pool(r);
	if (r->keys.diagnostics.n > 0)
		return -EINVAL;
	e = fill_all(r->config);
	if (e < 0)
		return e;
	*ret = take_ptr(r->config);
	return 0;
}
