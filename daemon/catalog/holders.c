/* SPDX-License-Identifier: MIT
 *
 * Who holds a full pool, for the user who found no room in it: the largest of that user's own
 * buffers, with why each of them stays, and what all other users have together.
 */
#include "daemon/catalog/catalog.h"

#include "proto/base/clock.h"
#include "proto/base/size.h"
#include "proto/base/text.h"

#include <inttypes.h>

#define NAMED_MAX 3

struct holdings {
	const struct buffer *largest[NAMED_MAX]; /* the user's own */
	uint64_t own, others;			 /* bytes */
	char text[1024];
};

#define add(h, ...) text_append((h)->text, sizeof((h)->text), __VA_ARGS__)

static void rank(struct holdings *h, const struct buffer *b)
{
	for (int i = 0; i < NAMED_MAX && b; i++) {
		const struct buffer *other = h->largest[i];

		if (other && other->block.bytes >= b->block.bytes)
			continue;
		h->largest[i] = b;
		b = other;
	}
}

static void sum(struct holdings *h, const struct catalog *c, uid_t uid, const struct pool *pool)
{
	const struct buffer *b;

	list_foreach (b, &c->buffers, all_link) {
		if (b->pool != pool || b->block.bytes == 0)
			continue;
		*(b->uid == uid ? &h->own : &h->others) += b->block.bytes;
		if (b->uid == uid)
			rank(h, b);
	}
}

/* Why its memory stays. */
static void add_reason(struct holdings *h, const struct buffer *b)
{
	const struct lease *l, *user = NULL;

	list_foreach (l, &b->leases, buffer_link)
		if (!l->away && !user)
			user = l;
	if (user)
		add(h, "pid %d %s, ", user->process->pid, user->process->command);
	if (user && b->cached && cached_is_wanted(b->cached))
		add(h, "asked %" PRIu64 " s ago",
		    (clock_monotonic_ns() - b->cached->asked_ns) / 1000000000);
	else
		add(h, !b->twin ? "no twin" : user ? "not asked" : "kept");
}

void catalog_name_holders(const struct catalog *c, uid_t uid, const struct pool *pool,
			  struct fault *f)
{
	struct holdings h = { 0 };
	struct fault full = *f;

	sum(&h, c, uid, pool);
	if (h.own)
		add(&h, "; held in it by uid %u: %s", uid, size_format(h.own).text);
	for (int i = 0; i < NAMED_MAX && h.largest[i]; i++) {
		add(&h, "%s\"%s\" %s (", i ? ", " : ": ", buffer_name(h.largest[i]),
		    size_format(h.largest[i]->block.bytes).text);
		add_reason(&h, h.largest[i]);
		add(&h, ")");
	}
	if (h.others)
		add(&h, "; %s of other users", size_format(h.others).text);
	fault(f, full.code, "%s%s", full.text, h.text);
}
