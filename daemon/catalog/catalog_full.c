/* SPDX-License-Identifier: MIT
 *
 * Who fills a pool: the users whose buffers take most of it, for who is told that it is full.
 */
#include "daemon/catalog/catalog.h"

#include "proto/base/size.h"

#include <stdio.h>
#include <string.h>

#define TOLD_MAX 3

static struct account *largest(struct catalog *c)
{
	struct account *a, *found = NULL;

	list_foreach (a, &c->accounts.all, all_link)
		if (a->untold > (found ? found->untold : 0))
			found = a;
	return found;
}

void catalog_tell_full(struct catalog *c, const struct pool *pool, struct fault *f)
{
	struct account *a;

	list_foreach (a, &c->accounts.all, all_link)
		a->untold = a->blocks[pool->index];
	for (int i = 0; i < TOLD_MAX && (a = largest(c)); i++) {
		size_t len = strlen(f->text);

		snprintf(f->text + len, sizeof(f->text) - len, "%suid %u: %s",
			 i ? ", " : "; held in it by ", a->uid, size_format(a->untold).text);
		a->untold = 0;
	}
}
