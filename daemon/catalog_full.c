/* SPDX-License-Identifier: MIT
 *
 * Who fills a pool: the users whose buffers take most of it, for who is told that it is full.
 */
#include "daemon/catalog.h"

#include "proto/size.h"

#include <stdio.h>
#include <string.h>

#define TOLD_MAX 3

static void count_by_user(struct catalog *c, const struct pool *pool)
{
	struct account *a;
	const struct buffer *b;

	list_foreach (a, &c->accounts.all, all_link)
		a->tally = 0;
	list_foreach (b, &c->buffers, all_link)
		if (b->pool == pool)
			b->bytes_charge.account->tally += b->block.bytes;
}

static struct account *largest(struct catalog *c)
{
	struct account *a, *found = NULL;

	list_foreach (a, &c->accounts.all, all_link)
		if (a->tally > (found ? found->tally : 0))
			found = a;
	return found;
}

void catalog_tell_full(struct catalog *c, const struct pool *pool, struct fault *f)
{
	struct account *a;

	count_by_user(c, pool);
	for (int i = 0; i < TOLD_MAX && (a = largest(c)); i++) {
		size_t len = strlen(f->text);

		snprintf(f->text + len, sizeof(f->text) - len, "%suid %u: %s",
			 i ? ", " : "; held in it by ", a->uid, size_format(a->tally).text);
		a->tally = 0;
	}
}
