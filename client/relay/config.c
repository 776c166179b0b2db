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
#include "proto/base/ini.h"
#include "proto/base/own.h"
#include "proto/base/size.h"
#include "proto/base/suggest.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_PATH GPUSHM_SYSCONFDIR "/gpushm/gpushm-relay.conf"
#define FILE_MAX (1u << 20)

enum type { TYPE_TEXT, TYPE_LIST, TYPE_COUNT, TYPE_SECONDS, TYPE_SIZE, TYPE_YES, TYPE_MODE };

struct key {
	const char *name;
	enum type type;
	size_t offset; /* of the member */
	uint64_t min, max;
	bool once; /* it is read at the start only */
};

struct section {
	const char *name;
	bool has_argument;
	const struct key *keys;
	size_t n_keys;
};

#define CONFIG(key, member, type, low, high)                                 \
	{                                                                    \
		key, type, offsetof(struct config, member), low, high, false \
	}
#define ONCE(key, member, type, low, high)                                  \
	{                                                                   \
		key, type, offsetof(struct config, member), low, high, true \
	}
static const struct key relay_keys[] = {
	ONCE("listen", listen, TYPE_LIST, 0, 0),
	ONCE("socket", socket, TYPE_TEXT, 0, 0),
	CONFIG("cert", cert, TYPE_TEXT, 0, 0),
	CONFIG("key", key, TYPE_TEXT, 0, 0),
	CONFIG("ca", ca, TYPE_TEXT, 0, 0),
	ONCE("insecure", insecure, TYPE_YES, 0, 0),
	ONCE("nixl", nixl, TYPE_YES, 0, 0),
	ONCE("nixl-gpu", nixl_gpu, TYPE_YES, 0, 0),
	ONCE("nixl-idle", nixl_idle, TYPE_SECONDS, 1, 3600),
	ONCE("advertise", advertise, TYPE_TEXT, 0, 0),
	ONCE("max-connections", max_connections, TYPE_COUNT, 1, 16384),
	ONCE("max-connections-per-address", max_connections_per_address, TYPE_COUNT, 1, 16384),
	CONFIG("max-transfers", max_transfers, TYPE_COUNT, 0, 16384),
	CONFIG("fan-out", fan_out, TYPE_COUNT, 0, 16384),
	CONFIG("header-time", header_time, TYPE_SECONDS, 1, 3600),
	CONFIG("max-rate", max_rate, TYPE_SIZE, 0, 0),
	CONFIG("min-rate", min_rate, TYPE_SIZE, 0, 0),
	ONCE("gpu-memory", gpu_memory, TYPE_SIZE, 16u << 20, UINT64_MAX),
};
static const struct key offer_keys[] = {
	CONFIG("name", offer, TYPE_LIST, 0, 0),
	CONFIG("hide", hide, TYPE_LIST, 0, 0),
};
static const struct key allow_keys[] = {
	{ "offer", TYPE_LIST, offsetof(struct config_allow, offer), 0, 0, false },
};
static const struct key pull_keys[] = {
	{ "source", TYPE_TEXT, offsetof(struct config_pull, source), 0, 0, false },
	{ "follow", TYPE_YES, offsetof(struct config_pull, follow), 0, 0, false },
	{ "pool", TYPE_TEXT, offsetof(struct config_pull, pool), 0, 0, false },
	{ "mode", TYPE_MODE, offsetof(struct config_pull, mode), 0, 0, false },
};
#define SECTION(name, argument, keys)                  \
	{                                              \
		name, argument, keys, array_size(keys) \
	}
static const struct section sections[] = {
	SECTION("relay", false, relay_keys),
	SECTION("offer", false, offer_keys),
	SECTION("allow", true, allow_keys),
	SECTION("pull", true, pull_keys),
};

struct reader {
	struct config *config;
	struct diagnostics diagnostics;
	const struct section *section; /* NULL: an unknown one, whose keys are passed over */
	void *of;		       /* what the section's keys are members of */
	bool no_memory;
};

/* ---- values ---- */

static int add_string(struct strings *s, const char *text)
{
	char **items = grow(s->items, s->n, sizeof(*items));

	if (!items)
		return -ENOMEM;
	s->items = items;
	items[s->n] = strdup(text);
	return items[s->n] ? (s->n++, 0) : -ENOMEM;
}

static int parse_number(const char *text, unsigned base, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, (int)base);
	return errno || *end || end == text || *text == '-' || *text == '+' ? -EINVAL : 0;
}

static int parse_yes(const char *text, bool *ret)
{
	*ret = strcmp(text, "yes") == 0;
	return *ret || strcmp(text, "no") == 0 ? 0 : -EINVAL;
}

static int parse_numeric(const struct key *k, const char *text, void *member)
{
	bool size = k->type == TYPE_SIZE;
	uint64_t value = 0;
	int r = size ? (size_parse(text, &value) ? -EINVAL : 0)
		     : parse_number(text, k->type == TYPE_MODE ? 8 : 10, &value);

	if (r < 0 || (k->max && (value < k->min || value > k->max)) ||
	    (k->type == TYPE_MODE && value > 0777))
		return -EINVAL;
	if (size)
		*(uint64_t *)member = value;
	else
		*(uint32_t *)member = (uint32_t)value;
	return 0;
}

/* 0, -EINVAL, -ENOMEM. */
static int set(const struct key *k, const char *text, void *of)
{
	void *member = (char *)of + k->offset;

	if (k->type == TYPE_LIST)
		return add_string(member, text);
	if (k->type == TYPE_YES)
		return parse_yes(text, member);
	if (k->type != TYPE_TEXT)
		return parse_numeric(k, text, member);
	free(*(char **)member);
	*(char **)member = strdup(text);
	return *(char **)member ? 0 : -ENOMEM;
}

static void describe(const struct key *k, char *ret, size_t size)
{
	static const char *const words[] = { [TYPE_SIZE] = "a size, such as 64K or 1.5G",
					     [TYPE_YES] = "yes or no",
					     [TYPE_MODE] = "an octal mode, such as 0640" };

	if (k->type == TYPE_COUNT || k->type == TYPE_SECONDS)
		snprintf(ret, size, "%" PRIu64 " to %" PRIu64 "%s", k->min, k->max,
			 k->type == TYPE_SECONDS ? " seconds" : "");
	else if (k->type == TYPE_SIZE && k->min)
		snprintf(ret, size, "a size of at least %s, such as 256M",
			 size_format(k->min).text);
	else
		snprintf(ret, size, "%s", words[k->type] ? words[k->type] : "text");
}

/* ---- items ---- */

static const struct key *find_key(struct reader *r, const struct ini_item *item)
{
	const char *names[array_size(relay_keys)];
	char text[512];

	for (size_t i = 0; i < r->section->n_keys; i++) {
		names[i] = r->section->keys[i].name;
		if (strcmp(names[i], item->key) == 0)
			return &r->section->keys[i];
	}
	suggest(item->key, names, r->section->n_keys, text, sizeof(text));
	diagnostics_add(&r->diagnostics, item->line, "[%s] has no key \"%.64s\"; %s",
			r->section->name, item->key, text);
	return NULL;
}

static void assign(struct reader *r, const struct ini_item *item)
{
	const struct key *k = r->section ? find_key(r, item) : NULL;
	char allowed[128];
	int e;

	if (!k)
		return;
	e = *item->value ? set(k, item->value, r->of) : -EINVAL;
	r->no_memory |= e == -ENOMEM;
	describe(k, allowed, sizeof(allowed));
	if (e == -EINVAL)
		diagnostics_add(&r->diagnostics, item->line, "%s=%.128s: allowed: %s", k->name,
				item->value, allowed);
}

/* A zeroed struct at the end of an array, or NULL. */
static void *append(void *items, size_t *n, size_t size)
{
	void **array = items;
	char *grown = grow(*array, *n, size);

	if (!grown)
		return NULL;
	*array = grown;
	grown += size * (*n)++;
	memset(grown, 0, size);
	return grown;
}

static void *begin_allow(struct config *c, const char *certificate)
{
	struct config_allow *a = append(&c->allows, &c->n_allows, sizeof(*a));

	if (a)
		a->certificate = strdup(certificate);
	return a && a->certificate ? a : NULL;
}

static void *begin_pull(struct config *c, const char *name)
{
	struct config_pull *p = append(&c->pulls, &c->n_pulls, sizeof(*p));

	if (p)
		p->name = strdup(name);
	return p && p->name ? p : NULL;
}

static void begin_section(struct reader *r, const struct ini_item *item)
{
	const char *names[array_size(sections)];
	char text[256];

	r->section = NULL;
	r->of = r->config;
	for (size_t i = 0; i < array_size(sections); i++) {
		names[i] = sections[i].name;
		if (strcmp(names[i], item->section) == 0)
			r->section = &sections[i];
	}
	if (!*item->section)
		return;
	if (!r->section) {
		suggest(item->section, names, array_size(names), text, sizeof(text));
		diagnostics_add(&r->diagnostics, item->line, "there is no section [%.64s]; %s",
				item->section, text);
	} else if (r->section->has_argument != (*item->argument != '\0')) {
		diagnostics_add(&r->diagnostics, item->line, "write [%s%s]", r->section->name,
				r->section->has_argument ? " NAME" : "");
		r->section = NULL;
	} else {
		if (strcmp(item->section, "allow") == 0)
			r->of = begin_allow(r->config, item->argument);
		if (strcmp(item->section, "pull") == 0)
			r->of = begin_pull(r->config, item->argument);
		r->no_memory |= !r->of;
		if (!r->of)
			r->section = NULL;
	}
}

/* ---- the file ---- */

/* 0; 1: there is no such file; -EINVAL with a diagnostic; -ENOMEM. */
static int read_text(struct reader *r, const char *path, char **ret, size_t *ret_n)
{
	_cleanup_(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	_cleanup_(free_ptr) char *text = malloc(FILE_MAX + 1);
	struct stat st;
	ssize_t n = 0;

	if (!text)
		return -ENOMEM;
	if (fd < 0 && errno == ENOENT)
		return 1;
	if (fd >= 0 && fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISCHR(st.st_mode)))
		n = read(fd, text, FILE_MAX);
	else if (fd >= 0)
		errno = EISDIR;
	if (fd < 0 || n < 0 || (n == 0 && errno == EISDIR)) {
		diagnostics_add(&r->diagnostics, 0, "can't be read: %s", strerror(errno));
		return -EINVAL;
	}
	if (n == FILE_MAX) {
		diagnostics_add(&r->diagnostics, 0, "it is larger than 1 MiB");
		return -EINVAL;
	}
	*ret = take_ptr(text);
	*ret_n = (size_t)n;
	return 0;
}

static int read_file(struct reader *r, const char *path)
{
	_cleanup_(free_ptr) char *text = NULL;
	struct ini_item item;
	enum ini_what what;
	struct ini ini;
	size_t n = 0;
	int e;

	errno = 0;
	r->diagnostics.file = path ? path : DEFAULT_PATH;
	e = read_text(r, r->diagnostics.file, &text, &n);
	if (e == 1 && path)
		diagnostics_add(&r->diagnostics, 0, "there is no such file");
	if (e != 0)
		return e < 0 ? e : 0;
	r->config->found = true;
	ini_init(&ini, text, n, &r->diagnostics);
	while ((what = ini_next(&ini, &item)) != INI_END) {
		if (what == INI_SECTION)
			begin_section(r, &item);
		else if (r->of)
			assign(r, &item);
		else
			diagnostics_add(&r->diagnostics, item.line,
					"no section is open; write [relay] before it");
	}
	return 0;
}

/* ---- all of it ---- */

/* Two sources of one name would replace each other's buffer again and again. */
static void check_pulls(struct reader *r)
{
	const struct config_pull *pulls = r->config->pulls;

	for (size_t i = 0; i < r->config->n_pulls; i++) {
		if (!pulls[i].source)
			diagnostics_add(&r->diagnostics, 0,
					"[pull %s] needs source=HOST[:PORT]/NAME", pulls[i].name);
		else if (gpushm_private_pull_check(pulls[i].source) < 0)
			diagnostics_add(&r->diagnostics, 0, "[pull %s]: %s", pulls[i].name,
					gpushm_error());
		for (size_t j = 0; j < i; j++)
			if (strcmp(pulls[i].name, pulls[j].name) == 0)
				diagnostics_add(&r->diagnostics, 0, "there are two of [pull %s]",
						pulls[i].name);
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
		diagnostics_add(&r->diagnostics, 0, "cert= and key= go together");
	if (c->insecure && c->ca && !c->cert)
		diagnostics_add(&r->diagnostics, 0,
				"ca= needs cert= and key=, without which no client shows a "
				"certificate, and insecure=yes lets all of them read");
	if (c->n_allows && (!c->ca || !c->cert))
		diagnostics_add(&r->diagnostics, 0,
				"[allow] needs cert=, key= and ca=, without which no client shows "
				"a certificate");
	if (c->advertise && !is_base(c->advertise))
		diagnostics_add(&r->diagnostics, 0, "advertise=: allowed: https://HOST:PORT");
	check_pulls(r);
}

static int complete(struct config *c, const char *listen)
{
	static const char *const all = "*";

	while (listen && c->listen.n > 0)
		free(c->listen.items[--c->listen.n]);
	if (c->listen.n == 0 && add_string(&c->listen, listen ? listen : CONFIG_DEFAULT_LISTEN) < 0)
		return -ENOMEM;
	return c->offer.n == 0 ? add_string(&c->offer, all) : 0;
}

int config_read(const char *path, const char *listen, FILE *errors, struct config **ret)
{
	struct reader r = { .diagnostics = { .out = errors } };
	int e;

	r.config = calloc(1, sizeof(*r.config));
	if (!r.config)
		return -ENOMEM;
	r.config->refs = 1;
	r.config->max_connections = 1024;
	r.config->max_connections_per_address = 256;
	r.config->max_transfers = 8;
	r.config->fan_out = 2;
	r.config->header_time = 10;
	r.config->nixl_idle = 60;
	r.config->min_rate = 16u << 10;
	r.config->gpu_memory = 256u << 20;
	e = read_file(&r, path);
	check(&r);
	if (e == 0)
		e = r.no_memory ? -ENOMEM : complete(r.config, listen);
	if (e == 0 && r.diagnostics.n > 0)
		e = -EINVAL;
	if (e < 0)
		r.config = config_release(r.config);
	else
		*ret = r.config;
	return e;
}

static void free_strings(struct strings *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->items[i]);
	free(s->items);
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
		free_strings(&c->allows[i].offer);
	}
	for (size_t i = 0; i < c->n_pulls; i++) {
		free(c->pulls[i].name);
		free(c->pulls[i].source);
		free(c->pulls[i].pool);
	}
	for (size_t i = 0; i < array_size(relay_keys); i++)
		if (relay_keys[i].type == TYPE_TEXT)
			free(*(char **)((char *)c + relay_keys[i].offset));
	free_strings(&c->listen);
	free_strings(&c->offer);
	free_strings(&c->hide);
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

static bool is_same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_same_list(const struct strings *a, const struct strings *b)
{
	bool same = a->n == b->n;

	for (size_t i = 0; same && i < a->n; i++)
		same = strcmp(a->items[i], b->items[i]) == 0;
	return same;
}

static bool is_same_value(const struct key *k, const struct config *a, const struct config *b)
{
	const void *x = (const char *)a + k->offset, *y = (const char *)b + k->offset;

	switch (k->type) {
	case TYPE_TEXT:
		return is_same_text(*(char *const *)x, *(char *const *)y);
	case TYPE_LIST:
		return is_same_list(x, y);
	case TYPE_YES:
		return *(const bool *)x == *(const bool *)y;
	case TYPE_SIZE:
		return *(const uint64_t *)x == *(const uint64_t *)y;
	default:
		return *(const uint32_t *)x == *(const uint32_t *)y;
	}
}

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
		if (relay_keys[i].once && !is_same_value(&relay_keys[i], started, next))
			fprintf(out, "gpushm-relay: %s= is taken over at the next start\n",
				relay_keys[i].name);
	return 0;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct config *current; /* under lock: a reference */

struct config *config_current(void)
{
	struct config *c;

	lock_take(&lock, LOCK_CONFIG);
	c = config_ref(current);
	lock_drop(&lock);
	return c;
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
