/* SPDX-License-Identifier: MIT
 *
 * Buffers whose memory is gone though nobody freed it: a GPU was reset, or an fd was not kept. The
 * buffer goes with it, and its name is free; who asks for that name is told what became of it,
 * until somebody creates it anew. No more names are remembered than were restored.
 */
#include "daemon/catalog/catalog.h"

#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct lost {
	struct list all_link;	    /* catalog::lost */
	struct hashtable_link link; /* catalog::lost_by_name */
	uint64_t ns;		    /* CLOCK_REALTIME */
	char why[192];
	char key[];
};

static struct lost *find(const struct catalog *c, const char *key)
{
	struct hashtable_link *link =
		hashtable_first(&c->lost_by_name, hashtable_hash(key, strlen(key)));

	while (link && strcmp(container_of(link, struct lost, link)->key, key) != 0)
		link = hashtable_next(link);
	return link ? container_of(link, struct lost, link) : NULL;
}

static void drop(struct catalog *c, struct lost *l)
{
	list_drop(&l->all_link);
	hashtable_drop(&c->lost_by_name, &l->link);
	free(l);
}

/* Without memory for it people are told less. */
void catalog_remember_lost(struct catalog *c, const char *key, const char *why)
{
	struct lost *l;

	catalog_forget_lost(c, key);
	l = malloc(sizeof(*l) + strlen(key) + 1);
	if (!l)
		return;
	strcpy(l->key, key);
	snprintf(l->why, sizeof(l->why), "%s", why);
	l->ns = clock_realtime_ns();
	list_insert(&c->lost, &l->all_link);
	hashtable_insert(&c->lost_by_name, &l->link, hashtable_hash(key, strlen(key)));
}

void catalog_forget_lost(struct catalog *c, const char *key)
{
	struct lost *l = find(c, key);

	if (l)
		drop(c, l);
}

void catalog_forget_all_lost(struct catalog *c)
{
	struct lost *l;

	list_foreach (l, &c->lost, all_link)
		drop(c, l);
}

int catalog_missing(const struct catalog *c, const char *key, struct fault *f)
{
	const struct lost *l = find(c, key);
	char when[32] = "";
	struct tm tm;

	if (!l)
		return fault(f, CODE_NOT_FOUND,
			     "no buffer \"%s\" (gpushmctl ls shows what there is; open can wait "
			     "for it)",
			     key);
	if (gmtime_r(&(time_t){ (time_t)(l->ns / 1000000000u) }, &tm))
		strftime(when, sizeof(when), " at %Y-%m-%d %H:%M:%S UTC", &tm);
	return fault(f, CODE_NOT_FOUND,
		     "no buffer \"%s\": its memory was lost%s (%s); who made it creates it again",
		     key, when, l->why);
}
