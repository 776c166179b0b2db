/* SPDX-License-Identifier: MIT
 *
 * Lost names are a list, which owns them, and an index by name.
 */
#include "daemon/catalog/lost.h"

#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <stdio.h>
#include <string.h>

struct lost {
	struct list link;	      /* lost_names::all */
	struct hashtable_link by_key; /* lost_names::by_key */
	uint64_t ns;		      /* CLOCK_REALTIME */
	char why[192];
	char key[];
};

int lost_init(struct lost_names *l)
{
	list_init(&l->all);
	return hashtable_init(&l->by_key);
}

static void drop(struct lost_names *l, struct lost *it)
{
	list_drop(&it->link);
	hashtable_drop(&l->by_key, &it->by_key);
	free(it);
}

void lost_done(struct lost_names *l)
{
	struct lost *it;

	list_foreach (it, &l->all, link)
		drop(l, it);
	hashtable_done(&l->by_key);
}

static struct lost *find(const struct lost_names *l, const char *key)
{
	struct lost *it;

	hashtable_foreach (it, &l->by_key, hashtable_hash(key, strlen(key)), by_key)
		if (strcmp(it->key, key) == 0)
			return it;
	return NULL;
}

void lost_add(struct lost_names *l, const char *key, const char *why)
{
	struct lost *it;

	lost_forget(l, key);
	it = malloc(sizeof(*it) + strlen(key) + 1);
	if (!it)
		return;
	strcpy(it->key, key);
	snprintf(it->why, sizeof(it->why), "%s", why);
	it->ns = clock_realtime_ns();
	list_insert(&l->all, &it->link);
	hashtable_insert(&l->by_key, &it->by_key, hashtable_hash(key, strlen(key)));
}

void lost_forget(struct lost_names *l, const char *key)
{
	struct lost *it = find(l, key);

	if (it)
		drop(l, it);
}

int lost_refuse(const struct lost_names *l, const char *key, struct fault *f)
{
	const struct lost *it = find(l, key);

	if (!it)
		return 0;
	return fault(f, CODE_NOT_FOUND,
		     "no buffer \"%s\": its memory was lost at %s (%s); its creator must create "
		     "it again",
		     key, clock_format(it->ns).text, it->why);
}
