/* SPDX-License-Identifier: MIT
 *
 * A relay's own name is random: it says nothing about the machine, and two never have the same.
 */
#include "client/relay/fleet/route.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static char self[32];

static void name_self(void)
{
	uint64_t random = 0;

	getrandom(&random, sizeof(random), 0);
	snprintf(self, sizeof(self), "gpushm-%016llx", (unsigned long long)random);
}

static const char *own_name(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, name_self);
	return self;
}

bool route_hear(const char *via, char ret[PULL_VIA_MAX])
{
	const char *here = strstr(via, own_name());

	if (here)
		via = here + strlen(self) + strspn(here + strlen(self), ", ");
	snprintf(ret, PULL_VIA_MAX, "%s", via);
	return here;
}

void route_append(const char *via, char ret[PULL_VIA_MAX])
{
	int n = snprintf(ret, PULL_VIA_MAX, "%s%s1.1 %s", via, via[0] ? ", " : "", own_name());

	if (n >= (int)PULL_VIA_MAX)
		ret[0] = '\0';
}
