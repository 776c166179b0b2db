/* SPDX-License-Identifier: MIT
 *
 * A relay's own name is random: it says nothing about the machine, and two never have the same.
 */
#include "client/relay/fleet/route.h"

#include "client/relay/locks.h"
#include "proto/base/list.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct route {
	struct list link; /* routes */
	char *name;	  /* owned */
	char via[PULL_VIA_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static struct list routes = { &routes, &routes };
static char self[32];

/* Under the lock. */
static struct route *find(const char *name)
{
	struct route *r;

	list_foreach (r, &routes, link)
		if (strcmp(r->name, name) == 0)
			return r;
	return NULL;
}

/* Under the lock. */
static const char *own_name(void)
{
	uint64_t random = 0;

	if (!self[0] && getrandom(&random, sizeof(random), 0) == sizeof(random))
		snprintf(self, sizeof(self), "gpushm-%016llx", (unsigned long long)random);
	return self;
}

void route_begin(const char *name)
{
	struct route *r;

	lock_guard(&lock, LOCK_ROUTE);
	r = own_name()[0] && !find(name) ? calloc(1, sizeof(*r)) : NULL;
	if (r && (r->name = strdup(name)))
		list_insert(&routes, &r->link);
	else
		free(r);
}

void route_end(const char *name)
{
	struct route *r;

	lock_guard(&lock, LOCK_ROUTE);
	r = find(name);
	if (r) {
		list_drop(&r->link);
		free(r->name);
		free(r);
	}
}

bool route_hear(const char *name, const char *via)
{
	const char *here = NULL;
	struct route *r;

	lock_guard(&lock, LOCK_ROUTE);
	r = find(name);
	if (r)
		here = strstr(via, own_name());
	if (here)
		via = here + strlen(self) + strspn(here + strlen(self), ", ");
	if (r)
		snprintf(r->via, sizeof(r->via), "%s", via);
	return here;
}

void route_get(const char *name, char ret[PULL_VIA_MAX])
{
	const struct route *r;
	int n = 0;

	lock_guard(&lock, LOCK_ROUTE);
	r = find(name);
	if (r)
		n = snprintf(ret, PULL_VIA_MAX, "%s%s1.1 %s", r->via, r->via[0] ? ", " : "", self);
	/* So many are no chain any more. */
	if (!r || n >= (int)PULL_VIA_MAX)
		ret[0] = '\0';
}
