/* SPDX-License-Identifier: MIT
 *
 * From a file's sections and assignments to the values of a struct config. Each assignment is
 * checked, even one that a later file overrides: a mistake that sleeps there would wake up when the
 * other file goes. Each leaves its origin.
 *
 * It goes by the table of config_key.c and knows no key by itself; what needs more than one value
 * to be seen as wrong is config_check.c's.
 */
#include "daemon/config/config_reader.h"

#include "daemon/config/config_id.h"
#include "daemon/config/config_origin.h"
#include "daemon/config/ini.h"
#include "proto/base/grow.h"
#include "proto/base/own.h"
#include "proto/name.h"

#include <errno.h>
#include <string.h>

#define USERS_MAX 4096u /* [limits USER] sections; they are searched one by one */

int config_reader_init(struct config_reader *r, FILE *errors)
{
	*r = (struct config_reader){ .complaints.out = errors };
	r->config = calloc(1, sizeof(*r->config));
	return r->config ? 0 : -ENOMEM;
}

void config_reader_done(struct config_reader *r)
{
	r->config = config_free(r->config);
}

/* Keeps the file's name for the origins. */
static int add_file(struct config *c, const char *file, char **ret)
{
	char **files = grow(c->files, c->n_files, sizeof(*files));

	if (!files)
		return -ENOMEM;
	c->files = files;
	files[c->n_files] = strdup(file);
	if (!files[c->n_files])
		return -ENOMEM;
	*ret = files[c->n_files++];
	return 0;
}

/* Where this or a later assignment goes to. */
static int add_origin(struct config_reader *r, const struct config_key *key, unsigned line,
		      size_t first, size_t count, bool reset)
{
	struct config_origin origin = { .section = r->section,
					.subject = r->subject,
					.key = key,
					.first = first,
					.count = count,
					.reset = reset,
					.file = r->complaints.file,
					.line = line };

	return config_origin_add(r->config, &origin);
}

/* Makes [limits USER] the section, for a user who may have been named before. */
static int enter_user(struct config_reader *r, const struct ini_item *item)
{
	struct config *c = r->config;
	char wrong[WRONG_MAX] = "";
	struct user_limits *users;
	uid_t uid;
	int e = config_id_user(item->argument, &uid, wrong);

	if (e == -EINVAL)
		diagnostics_add(&r->complaints, item->line, "%s; allowed: a user's name or number",
				wrong);
	if (e < 0)
		return e == -EINVAL ? 0 : e;
	for (r->subject = 0; r->subject < c->n_user_limits; r->subject++)
		if (c->user_limits[r->subject].uid == uid)
			break;
	if (r->subject == USERS_MAX) {
		diagnostics_add(&r->complaints, item->line,
				"one [limits USER] too many; allowed: %u of them", USERS_MAX);
		return 0;
	}
	r->section = SECTION_USER;
	if (r->subject < c->n_user_limits)
		return 0;
	users = grow(c->user_limits, c->n_user_limits, sizeof(*users));
	if (!users)
		return -ENOMEM;
	c->user_limits = users;
	users[c->n_user_limits++] = (struct user_limits){ .uid = uid };
	return 0;
}

/* Likewise for [pool NAME]. */
static int enter_pool(struct config_reader *r, const struct ini_item *item)
{
	struct config *c = r->config;
	const char *wrong = name_check_pool(item->argument, strlen(item->argument));
	struct pool_config *pools;

	if (wrong) {
		diagnostics_add(&r->complaints, item->line, "[pool %.80s]: %s; allowed: %s",
				item->argument, wrong, value_pool.allowed);
		return 0;
	}
	for (r->subject = 0; r->subject < c->n_pools; r->subject++)
		if (strcmp(c->pools[r->subject].name, item->argument) == 0)
			break;
	if (r->subject == POOLS_MAX) {
		diagnostics_add(&r->complaints, item->line,
				"one pool too many; allowed: %u of them", POOLS_MAX);
		return 0;
	}
	r->section = SECTION_POOL;
	if (r->subject < c->n_pools)
		return 0;
	pools = grow(c->pools, c->n_pools, sizeof(*pools));
	if (!pools)
		return -ENOMEM;
	c->pools = pools;
	pools[c->n_pools] = (struct pool_config){ 0 };
	strcpy(pools[c->n_pools++].name, item->argument);
	return 0;
}

static int enter_daemon(struct config_reader *r, const struct ini_item *item)
{
	if (item->argument[0] != '\0')
		diagnostics_add(&r->complaints, item->line,
				"[daemon %.64s]: this section takes no name; allowed: [daemon]",
				item->argument);
	else
		r->section = SECTION_DAEMON;
	return 0;
}

static int enter_limits(struct config_reader *r, const struct ini_item *item)
{
	if (item->argument[0] != '\0')
		return enter_user(r, item);
	r->section = SECTION_LIMITS;
	return 0;
}

static const struct {
	const char *name;
	int (*enter)(struct config_reader *r, const struct ini_item *item);
} sections[] = {
	{ "daemon", enter_daemon },
	{ "limits", enter_limits },
	{ "pool", enter_pool },
};

static int on_section(struct config_reader *r, const struct ini_item *item)
{
	char suggestion[128];
	int e;

	r->section = SECTION_NONE;
	r->subject = 0;
	r->complained = true;
	if (item->section[0] == '\0')
		return 0;
	for (size_t i = 0; i < array_size(sections); i++) {
		if (strcmp(item->section, sections[i].name) != 0)
			continue;
		e = sections[i].enter(r, item);
		return e < 0 || r->section == SECTION_NONE
			       ? e
			       : add_origin(r, NULL, item->line, 0, 0, false);
	}
	config_section_suggest(item->section, suggestion, sizeof(suggestion));
	diagnostics_add(&r->complaints, item->line, "unknown section [%.64s]; %s", item->section,
			suggestion);
	return 0;
}

/* Reads a value into its member; an empty one takes back what was set before. A wrong one leaves
 * its origin, too, so that it is not complained of again as missing. */
static int assign(struct config_reader *r, const struct config_key *key,
		  const struct ini_item *item)
{
	char *member = (char *)config_subject(r->config, r->section, r->subject) + key->offset;
	const struct id_list *list = key->type->list ? (struct id_list *)member : NULL;
	bool reset = item->value[0] == '\0';
	size_t before = list ? list->n : 0;
	char wrong[WRONG_MAX] = "";
	int e = 0;

	if (!reset)
		e = key->type->parse(item->value, member, wrong);
	else if (key->type->clear)
		key->type->clear(member);
	if (e == -EINVAL)
		diagnostics_add(&r->complaints, item->line, "%s=%.80s: %s; allowed: %s", key->name,
				item->value, wrong[0] != '\0' ? wrong : "this can't be used",
				key->type->allowed);
	if (e < 0 && e != -EINVAL)
		return e;
	return add_origin(r, key, item->line, before, list && !reset ? list->n - before : 0, reset);
}

static int on_assignment(struct config_reader *r, const struct ini_item *item)
{
	const struct config_key *key = config_key_find(r->section, item->key);
	char suggestion[256];

	if (r->section == SECTION_NONE) {
		if (!r->complained)
			diagnostics_add(&r->complaints, item->line,
					"an assignment before any section; allowed: [daemon], "
					"[limits] or [pool NAME] first");
		r->complained = true;
		return 0;
	}
	if (key)
		return assign(r, key, item);
	config_key_suggest(r->section, item->key, suggestion, sizeof(suggestion));
	diagnostics_add(&r->complaints, item->line, "unknown key \"%.64s\"; %s", item->key,
			suggestion);
	return 0;
}

int config_reader_text(struct config_reader *r, const char *file, char *text, size_t len)
{
	struct ini ini;
	struct ini_item item;
	enum ini_what what;
	char *kept;
	int e = add_file(r->config, file, &kept);

	if (e < 0)
		return e;
	r->complaints.file = kept;
	r->section = SECTION_NONE;
	r->complained = false;
	ini_init(&ini, text, len, &r->complaints);
	while ((what = ini_next(&ini, &item)) != INI_END) {
		e = what == INI_SECTION ? on_section(r, &item) : on_assignment(r, &item);
		if (e < 0)
			return e;
	}
	return 0;
}
