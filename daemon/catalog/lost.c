/* SPDX-License-Identifier: MIT
 *
 * Lost names are two lists, which own them, and an index by name. The list of dropped buffers is in
 * the order of their ends: the names of one user that are too many are found from its start, and
 * the oldest one of all is its last.
 */
#include "daemon/catalog/lost.h"

#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <stdio.h>
#include <string.h>

#define DROPPED_MAX 256u
#define DROPPED_OF_USER_MAX 16u

struct lost {
	struct list link;	      /* lost_names::all or lost_names::dropped */
	struct hashtable_link by_key; /* lost_names::by_key */
	uint64_t ns;		      /* CLOCK_REALTIME */
	char why[192];		      /* lost memory; "": dropped, with what follows */
	struct rights rights;
	pid_t pid; /* the creator */
	char command[16];
	bool ended; /* the creator did not close it */
	char key[];
};

int lost_init(struct lost_names *l)
{
	list_init(&l->all);
	list_init(&l->dropped);
	return hashtable_init(&l->by_key);
}

static void drop(struct lost_names *l, struct lost *it)
{
	l->n_dropped -= !*it->why;
	list_drop(&it->link);
	hashtable_drop(&l->by_key, &it->by_key);
	free(it);
}

void lost_done(struct lost_names *l)
{
	struct lost *it;

	list_foreach (it, &l->all, link)
		drop(l, it);
	list_foreach (it, &l->dropped, link)
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

/* In no list yet; NULL without memory. */
static struct lost *add(struct lost_names *l, const char *key)
{
	struct lost *it;

	lost_forget(l, key);
	it = calloc(1, sizeof(*it) + strlen(key) + 1);
	if (!it)
		return NULL;
	strcpy(it->key, key);
	it->ns = clock_realtime_ns();
	hashtable_insert(&l->by_key, &it->by_key, hashtable_hash(key, strlen(key)));
	return it;
}

void lost_add(struct lost_names *l, const char *key, const char *why)
{
	struct lost *it = add(l, key);

	if (!it)
		return;
	snprintf(it->why, sizeof(it->why), "%s", *why ? why : "unknown");
	list_insert(&l->all, &it->link);
}

void lost_forget(struct lost_names *l, const char *key)
{
	struct lost *it = find(l, key);

	if (it)
		drop(l, it);
}

/* ---- dropped buffers ---- */

/* The user's oldest name if he has too many; else the oldest one if there are too many of all. */
static struct lost *find_surplus(const struct lost_names *l, uid_t uid)
{
	struct lost *it, *oldest = NULL;
	uint32_t n = 0;

	list_foreach (it, &l->dropped, link) {
		oldest = it;
		n += it->rights.uid == uid;
		if (n > DROPPED_OF_USER_MAX)
			return it;
	}
	return l->n_dropped > DROPPED_MAX ? oldest : NULL;
}

void lost_add_dropped(struct lost_names *l, const struct buffer *b, const struct process *creator,
		      bool ended)
{
	struct lost *it = add(l, b->key), *surplus;

	if (!it)
		return;
	it->rights = buffer_rights(b);
	it->pid = creator->pid;
	memcpy(it->command, creator->command, sizeof(it->command));
	it->ended = ended;
	list_insert(l->dropped.next, &it->link);
	l->n_dropped++;
	surplus = find_surplus(l, b->uid);
	if (surplus)
		drop(l, surplus);
}

/* "process 4711 (python3) of uid 1001" */
static void name_creator(const struct lost *it, const struct process *p, char *ret, size_t size)
{
	if (p->admin || p->uid == it->rights.uid)
		snprintf(ret, size, "process %d (%s) of uid %u", it->pid, it->command,
			 it->rights.uid);
	else
		snprintf(ret, size, "its creator, uid %u,", it->rights.uid);
}

bool lost_explain(const struct lost_names *l, const struct process *p, const char *key, char *ret,
		  size_t size)
{
	const struct lost *it = find(l, key);
	char creator[64];

	if (it && *it->why) {
		snprintf(ret, size,
			 "its memory was lost at %s (%s); its creator must create it again",
			 clock_format(it->ns).text, it->why);
		return true;
	}
	if (!it || !rights_allow(&it->rights, p, ACCESS_READ))
		return false;
	name_creator(it, p, creator, sizeof(creator));
	snprintf(ret, size,
		 it->ended ? "%s ended at %s before it published it: it must be created again"
			   : "%s closed it at %s without publishing it: it must be created again, "
			     "and published before it is closed",
		 creator, clock_format(it->ns).text);
	return true;
}
