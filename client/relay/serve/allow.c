/* SPDX-License-Identifier: MIT
 *
 * Names are compared without regard to case, as names of hosts are.
 */
#include "client/relay/serve/allow.h"

#include <fnmatch.h>

static bool is_named(const struct peer *p, const char *glob)
{
	for (size_t i = 0; i < p->names.n; i++)
		if (fnmatch(glob, p->names.items[i], FNM_CASEFOLD) == 0)
			return true;
	return false;
}

bool allow_read(const struct config *c, const struct peer *p, const char *name)
{
	for (size_t i = 0; i < c->n_allows; i++)
		if (is_named(p, c->allows[i].certificate) &&
		    (!name || strings_match(&c->allows[i].offer, name)))
			return true;
	return c->n_allows == 0;
}
