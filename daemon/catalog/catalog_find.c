/* SPDX-License-Identifier: MIT
 *
 * Finding: from a key, an id or a lease's id to what it means, and whether the process that asks
 * may know or have it. Nothing is changed here.
 */
#include "daemon/catalog/catalog.h"

#include "daemon/catalog/private_names.h"

#include <inttypes.h>
#include <string.h>

struct buffer *catalog_by_key(const struct catalog *c, const char *key)
{
	struct hashtable_link *link =
		hashtable_first(&c->by_name, hashtable_hash(key, strlen(key)));

	while (link && strcmp(container_of(link, struct buffer, by_name)->key, key) != 0)
		link = hashtable_next(link);
	return link ? container_of(link, struct buffer, by_name) : NULL;
}

bool catalog_visible(const struct buffer *b, const struct process *p)
{
	return buffer_owned_by(b, p) ||
	       (b->state != BUFFER_FILLING && b->key && private_names_may_say(p, b->key) &&
		buffer_allows(b, p, ACCESS_READ));
}

int catalog_lookup_for_open(struct catalog *c, const struct process *p, const char *key,
			    enum access access, struct buffer **ret, struct fault *f)
{
	struct buffer *b = catalog_by_key(c, key);

	if (!b)
		return catalog_missing(c, key, f);
	if (!buffer_allows(b, p, access))
		return fault(f, CODE_ACCESS,
			     "buffer \"%s\" belongs to uid %u with mode %04o: not open to uid %u "
			     "for %s",
			     key, b->uid, b->mode, p->uid,
			     access == ACCESS_WRITE ? "writing" : "reading");
	if (!catalog_may_attach(b->pool, p))
		return catalog_refuse_pool(b->pool, p, f);
	if (b->state == BUFFER_FILLING)
		return fault(f, CODE_NOT_PUBLISHED,
			     "buffer \"%s\" is still being filled: wait for it with a timeout",
			     key);
	if (b->state == BUFFER_SEALED && access == ACCESS_WRITE)
		return fault(f, CODE_READ_ONLY,
			     "buffer \"%s\" is sealed and never written again: open it for "
			     "reading, or publish it shared",
			     key);
	*ret = b;
	return 0;
}

int catalog_lookup_visible(struct catalog *c, const struct process *p, const char *key,
			   struct buffer **ret, struct fault *f)
{
	struct buffer *b = catalog_by_key(c, key);

	if (!b || (b->state == BUFFER_FILLING && !buffer_owned_by(b, p)))
		return catalog_missing(c, key, f);
	if (!catalog_visible(b, p))
		return fault(
			f, CODE_ACCESS,
			"buffer \"%s\" belongs to uid %u with mode %04o: not for uid %u to see",
			key, b->uid, b->mode, p->uid);
	*ret = b;
	return 0;
}

struct buffer *catalog_by_id(const struct catalog *c, uint64_t id)
{
	struct hashtable_link *link = hashtable_first(&c->by_id, hashtable_hash_u64(id));

	while (link && container_of(link, struct buffer, by_id)->id != id)
		link = hashtable_next(link);
	return link ? container_of(link, struct buffer, by_id) : NULL;
}

struct buffer *catalog_next(const struct catalog *c, uint64_t after)
{
	const struct buffer *last = catalog_by_id(c, after);
	const struct list *at = last ? &last->all_link : &c->buffers;

	/* The one that the caller had last may have gone meanwhile: then from the start. */
	for (at = at->next; at != &c->buffers; at = at->next)
		if (container_of(at, struct buffer, all_link)->id > after)
			return container_of(at, struct buffer, all_link);
	return NULL;
}

struct lease *catalog_lease_by_id(const struct catalog *c, uint64_t id)
{
	struct hashtable_link *link = hashtable_first(&c->leases, hashtable_hash_u64(id));

	while (link && container_of(link, struct lease, link)->id != id)
		link = hashtable_next(link);
	return link ? container_of(link, struct lease, link) : NULL;
}

int catalog_lookup_lease(struct catalog *c, const struct process *p, uint64_t id,
			 struct lease **ret, struct fault *f)
{
	struct lease *l = catalog_lease_by_id(c, id);

	if (!l || l->process != p)
		return fault(f, CODE_NO_LEASE, "no lease %" PRIu64 " on this connection", id);
	*ret = l;
	return 0;
}
