/* SPDX-License-Identifier: MIT
 *
 * Every fault of the file is written, not only the first one.
 */
#include "client/relay/config.h"

#include "client/gpushm.h"
#include "client/gpushm_load_private.h"
#include "client/relay/fleet/announcement.h"
#include "client/relay/locks.h"
#include "proto/base/grow.h"
#include "proto/base/keyfile.h"
#include "proto/base/own.h"

#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_PATH GPUSHM_SYSCONFDIR "/gpushm/gpushm-relay.conf"

/* ---- the keys ---- */

/* Adds a text to a struct strings. */
static int parse_list(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	struct strings *s = member;
	char **items = grow(s->items, s->n, sizeof(*items));
	int e;

	if (!items)
		return -ENOMEM;
	s->items = items;
	items[s->n] = NULL;
	e = keyfile_parse_text(type, text, &items[s->n], wrong);
	s->n += e == 0;
	return e;
}

static void format_list(const struct keyfile_type *type, const void *member, FILE *out)
{
	const struct strings *s = member;

	for (size_t i = 0; i < s->n; i++)
		fprintf(out, "%s ", s->items[i]);
}

void strings_add(struct strings *s, const char *text, size_t n)
{
	char *copy = strndup(text, n);
	char **item = copy ? grow_append(&s->items, &s->n, sizeof(*item)) : NULL;

	if (item)
		*item = copy;
	else
		free(copy);
}

void strings_clear(void *member)
{
	struct strings *s = member;

	for (size_t i = 0; i < s->n; i++)
		free(s->items[i]);
	free(s->items);
	*s = (struct strings){ 0 };
}

static const struct keyfile_type value_text = { .allowed = "text",
						.parse = keyfile_parse_text,
						.format = keyfile_format_text,
						.clear = free_ptr };
static const struct keyfile_type value_list = { .allowed = "text",
						.parse = parse_list,
						.format = format_list,
						.clear = strings_clear,
						.list = true };
static const struct keyfile_type value_yes = KEYFILE_WORDS("no", "yes", "yes or no");
static const struct keyfile_type value_connections = KEYFILE_NUMBER(1, 16384, NULL, "1 to 16384");
static const struct keyfile_type value_transfers = KEYFILE_NUMBER(0, 16384, NULL, "0 to 16384");
static const struct keyfile_type value_rate = KEYFILE_SIZE(0, NULL, "a size, such as 64K or 1.5G");
static const struct keyfile_type value_memory =
	KEYFILE_SIZE(16u << 20, NULL, "a size of at least 16.0 MiB, such as 256M");

#define CONFIG(key, member, type)                                 \
	{                                                         \
		key, offsetof(struct config, member), type, false \
	}
#define ONCE(key, member, type)                                  \
	{                                                        \
		key, offsetof(struct config, member), type, true \
	}
static const struct keyfile_key relay_keys[] = {
	ONCE("listen", listen, &value_list),
	ONCE("socket", socket, &value_text),
	CONFIG("cert", cert, &value_text),
	CONFIG("key", key, &value_text),
	CONFIG("ca", ca, &value_text),
	ONCE("insecure", insecure, &value_yes),
	ONCE("nixl", nixl, &value_yes),
	ONCE("nixl-gpu", nixl_gpu, &value_yes),
	ONCE("advertise", advertise, &value_text),
	ONCE("max-connections", max_connections, &value_connections),
	ONCE("max-connections-per-address", max_connections_per_address, &value_connections),
	CONFIG("max-transfers", max_transfers, &value_transfers),
	CONFIG("fan-out", fan_out, &value_transfers),
	CONFIG("max-rate", max_rate, &value_rate),
	ONCE("gpu-memory", gpu_memory, &value_memory),
};
/* Version 0.2 had them. */
static const struct keyfile_former relay_former[] = {
	{ "nixl-idle", "delete it: a session ends after a minute without a request" },
	{ "header-time", "delete it: a client has ten seconds for a whole request" },
	{ "min-rate", "delete it: a client must read 16 KiB a second" },
};
static const struct keyfile_key offer_keys[] = {
	CONFIG("name", offer, &value_list),
	CONFIG("hide", hide, &value_list),
};
static const struct keyfile_key allow_keys[] = {
	{ "offer", offsetof(struct config_allow, offer), &value_list, false },
};
static const struct keyfile_key pull_keys[] = {
	{ "source", offsetof(struct config_pull, source), &value_text, false },
	{ "follow", offsetof(struct config_pull, follow), &value_yes, false },
	{ "pool", offsetof(struct config_pull, pool), &value_text, false },
	{ "mode", offsetof(struct config_pull, mode), &keyfile_mode, false },
};
enum { RELAY, OFFER, ALLOW, PULL };
static const struct keyfile_section sections[] = {
	[RELAY] = { "relay", "[relay]", relay_keys, array_size(relay_keys), relay_former,
		    array_size(relay_former), .no_argument = true },
	[OFFER] = { "offer", "[offer]", offer_keys, array_size(offer_keys), .no_argument = true },
	[ALLOW] = { "allow", "[allow NAME]", allow_keys, array_size(allow_keys),
		    .needs_argument = true },
	[PULL] = { "pull", "[pull NAME]", pull_keys, array_size(pull_keys),
		   .needs_argument = true },
};

/* ---- the file ---- */

struct reader {
	struct keyfile keys;
	struct config *config;
	void *members; /* of the section that is being read */
};

/* Another one in an array of structs whose first member is their name. */
static void *begin(void *array, size_t *n, size_t size, const char *name)
{
	char **item = grow_append(array, n, size);

	if (item)
		*item = strdup(name);
	return item && *item ? item : NULL;
}

static int on_section(struct keyfile *keys, const struct ini_item *item)
{
	struct reader *r = container_of(keys, struct reader, keys);
	struct config *c = r->config;

	r->members = c;
	if (keys->section == &sections[ALLOW])
		r->members = begin(&c->allows, &c->n_allows, sizeof(*c->allows), item->argument);
	else if (keys->section == &sections[PULL])
		r->members = begin(&c->pulls, &c->n_pulls, sizeof(*c->pulls), item->argument);
	return r->members ? 0 : -ENOMEM;
}

static int on_key(struct keyfile *keys, const struct keyfile_key *key, const struct ini_item *item)
{
	int e = keyfile_set(keys, key, item, container_of(keys, struct reader, keys)->members);

	return e == -EINVAL ? 0 : e;
}

/* The faults are in the diagnostics. 0 or -ENOMEM. */
static int read_file(struct reader *r, const char *path)
{
	_cleanup_(free_ptr) char *bytes = NULL;
	size_t n = 0;
	int e;

	r->keys.diagnostics.file = path ? path : DEFAULT_PATH;
	if (!path && access(DEFAULT_PATH, F_OK) < 0 && errno == ENOENT)
		return 0;
	e = keyfile_load(&r->keys.diagnostics, r->keys.diagnostics.file, &bytes, &n);
	if (e < 0)
		return e == -ENOMEM ? e : 0;
	r->config->found = true;
	return keyfile_read(&r->keys, r->keys.diagnostics.file, bytes, n);
}

/* ---- all of it ---- */

/* Two sources of one name would replace each other's buffer again and again. */
static void check_pulls(struct reader *r)
{
	const struct config_pull *pulls = r->config->pulls;

	for (size_t i = 0; i < r->config->n_pulls; i++) {
		if (!pulls[i].source)
			diagnostics_add(&r->keys.diagnostics, 0,
					"[pull %s] needs source=HOST[:PORT]/NAME", pulls[i].name);
		else if (gpushm_private_pull_check(pulls[i].source) < 0)
			diagnostics_add(&r->keys.diagnostics, 0, "[pull %s]: %s", pulls[i].name,
					gpushm_error());
		for (size_t j = 0; j < i; j++)
			if (strcmp(pulls[i].name, pulls[j].name) == 0)
				diagnostics_add(&r->keys.diagnostics, 0,
						"there are two of [pull %s]", pulls[i].name);
	}
}

/* Whether others take URLs that begin so for this machine's: no path, no user, no query. */
static bool is_base(const char *url)
{
	char text[ANNOUNCEMENT_MAX];
	struct announcement a;

	return announcement_format(url, "name", 0, text) == 0 && announcement_parse(text, &a) == 0;
}

static void check(struct reader *r)
{
	const struct config *c = r->config;
	size_t n = c->advertise ? strlen(c->advertise) : 0;

	if (n > 0 && c->advertise[n - 1] == '/')
		c->advertise[n - 1] = '\0';

	if (!c->cert != !c->key)
		diagnostics_add(&r->keys.diagnostics, 0, "cert= and key= go together");
	if (c->insecure && c->ca && !c->cert)
		diagnostics_add(&r->keys.diagnostics, 0,
				"ca= needs cert= and key=, without which no client shows a "
				"certificate, and insecure=yes lets all of them read");
	if (c->n_allows && (!c->ca || !c->cert))
		diagnostics_add(&r->keys.diagnostics, 0,
				"[allow] needs cert=, key= and ca=, without which no client shows "
				"a certificate");
	if (c->advertise && !is_base(c->advertise))
		diagnostics_add(&r->keys.diagnostics, 0, "advertise=: allowed: https://HOST:PORT");
	check_pulls(r);
}

static int complete(struct config *c, const char *listen)
{
	static const char *const all = "*";

	while (listen && c->listen.n > 0)
		free(c->listen.items[--c->listen.n]);
	if (c->listen.n == 0 &&
	    parse_list(&value_list, listen ? listen : CONFIG_DEFAULT_LISTEN, &c->listen, NULL) < 0)
		return -ENOMEM;
	return c->offer.n == 0 ? parse_list(&value_list, all, &c->offer, NULL) : 0;
}

int config_read(const char *path, const char *listen, FILE *errors, struct config **ret)
{
	struct reader r = { .keys = { .diagnostics.out = errors,
				      .sections = sections,
				      .n_sections = array_size(sections),
				      .on_section = on_section,
				      .on_key = on_key } };
	int e;

	r.config = calloc(1, sizeof(*r.config));
	if (!r.config)
		return -ENOMEM;
	r.config->refs = 1;
	r.config->max_connections = 1024;
	r.config->max_connections_per_address = 256;
	r.config->max_transfers = 8;
	r.config->fan_out = 2;
	r.config->gpu_memory = 256u << 20;
	e = read_file(&r, path);
	check(&r);
	if (e == 0)
		e = complete(r.config, listen);
	if (e == 0 && r.keys.diagnostics.n > 0)
		e = -EINVAL;
	if (e < 0)
		r.config = config_release(r.config);
	else
		*ret = r.config;
	return e;
}

struct config *config_ref(struct config *c)
{
	c->refs++;
	return c;
}

struct config *config_release(struct config *c)
{
	if (!c || --c->refs > 0)
		return NULL;
	for (size_t i = 0; i < c->n_allows; i++) {
		free(c->allows[i].certificate);
		keyfile_clear(&sections[ALLOW], &c->allows[i]);
	}
	for (size_t i = 0; i < c->n_pulls; i++) {
		free(c->pulls[i].name);
		keyfile_clear(&sections[PULL], &c->pulls[i]);
	}
	keyfile_clear(&sections[RELAY], c);
	keyfile_clear(&sections[OFFER], c);
	free(c->allows);
	free(c->pulls);
	free(c);
	return NULL;
}

bool strings_match(const struct strings *globs, const char *name)
{
	for (size_t i = 0; i < globs->n; i++)
		if (fnmatch(globs->items[i], name, 0) == 0)
			return true;
	return false;
}

bool config_offers(const struct config *c, const char *name)
{
	return strings_match(&c->offer, name) && !strings_match(&c->hide, name);
}

/* ---- reload ---- */

int config_check_reload(const struct config *started, const struct config *next, FILE *out)
{
	/* Without its file everything would be offered. */
	if (started->found && !next->found) {
		fprintf(out, "gpushm-relay: %s: there is no such file any more\n", DEFAULT_PATH);
		return -EINVAL;
	}
	if (!started->cert != !next->cert || !started->ca != !next->ca) {
		fprintf(out, "gpushm-relay: cert= and ca= can name other files, but they can't be "
			     "added or left out before the next start\n");
		return -EINVAL;
	}
	for (size_t i = 0; i < array_size(relay_keys); i++)
		if (relay_keys[i].restart && !keyfile_is_same(&relay_keys[i], started, next))
			fprintf(out, "gpushm-relay: %s= is taken over at the next start\n",
				relay_keys[i].name);
	return 0;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct config *current; /* under lock: a reference */

struct config *config_current(void)
{
	lock_guard(&lock, LOCK_CONFIG);
	return config_ref(current);
}

void config_use(struct config *c)
{
	struct config *old;

	lock_take(&lock, LOCK_CONFIG);
	old = current;
	current = config_ref(c);
	lock_drop(&lock);
	config_release(old);
}
