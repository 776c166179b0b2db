/* SPDX-License-Identifier: MIT
 *
 * The memory of where each value came from. While files are read every assignment leaves an origin;
 * settling then sorts them by what they set, and keeps the last for a single value, those since the
 * last reset for a list, and the first for a section's header (where a reader will look for it).
 * A file of 1 MiB may hold 100,000 assignments, so finding one is a binary search.
 */
#include "daemon/config/config_origin.h"

#include "proto/base/grow.h"

#include <errno.h>
#include <stdlib.h>

int config_origin_add(struct config *c, const struct config_origin *origin)
{
	struct config_origin *origins = grow(c->origins, c->n_origins, sizeof(*origins));

	if (!origins)
		return -ENOMEM;
	c->origins = origins;
	origins[c->n_origins] = *origin;
	origins[c->n_origins].sequence = c->n_origins;
	c->n_origins++;
	return 0;
}

/* By what is set. The keys of a section are members of one array, so their addresses compare. */
static int compare_target(const struct config_origin *a, const struct config_origin *b)
{
	if (a->section != b->section)
		return a->section < b->section ? -1 : 1;
	if (a->subject != b->subject)
		return a->subject < b->subject ? -1 : 1;
	if (a->key != b->key)
		return !a->key || (b->key && a->key < b->key) ? -1 : 1;
	return 0;
}

static int compare(const void *x, const void *y)
{
	const struct config_origin *a = x, *b = y;
	int r = compare_target(a, b);

	return r != 0 ? r : a->sequence < b->sequence ? -1 : a->sequence > b->sequence;
}

/* Moves the origins of one target that count to `to`; returns how many. */
static size_t keep(const struct config_origin *from, size_t n, struct config_origin *to)
{
	size_t first = 0, kept = 0;

	if (!from->key) {
		*to = *from;
		return 1;
	}
	if (!from->key->type->list)
		first = n - 1;
	for (size_t i = first; i < n; i++)
		if (from[i].reset)
			first = i + 1;
	for (size_t i = first; i < n; i++)
		to[kept++] = from[i];
	return kept;
}

void config_origin_settle(struct config *c)
{
	size_t kept = 0;

	if (c->n_origins == 0)
		return;
	qsort(c->origins, c->n_origins, sizeof(*c->origins), compare);
	for (size_t i = 0, n; i < c->n_origins; i += n) {
		for (n = 1; i + n < c->n_origins; n++)
			if (compare_target(&c->origins[i], &c->origins[i + n]) != 0)
				break;
		kept += keep(&c->origins[i], n, &c->origins[kept]);
	}
	c->n_origins = kept;
}

const struct config_origin *config_origin_find(const struct config *c, enum section section,
					       size_t subject, const struct config_key *key,
					       size_t *ret_n)
{
	struct config_origin wanted = { .section = section, .subject = subject, .key = key };
	size_t low = 0, high = c->n_origins, n = 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare_target(&c->origins[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	while (low + n < c->n_origins && compare_target(&c->origins[low + n], &wanted) == 0)
		n++;
	*ret_n = n;
	return n > 0 ? &c->origins[low] : NULL;
}
