/* SPDX-License-Identifier: MIT
 *
 * The generations of a name. A process that is away from a buffer means to come back to what the
 * name says then: to the buffer that replaced it, if that has the same arrays at the same offsets,
 * because its arrays, pointers and captured graphs fit no other.
 */
#include "daemon/catalog/catalog.h"

#include <inttypes.h>

static bool has_lease(const struct buffer *b, const struct lease *like)
{
	const struct lease *l;

	list_foreach (l, &b->leases, buffer_link)
		if (l->access >= like->access && process_is_same(l->process, like->process))
			return true;
	return false;
}

/* What is being filled has the name, but is not there yet. */
static int find_named(struct catalog *c, const struct lease *l, const char *key,
		      struct buffer **ret, struct fault *f)
{
	struct buffer *b = catalog_by_key(c, key);

	if (!b || b == l->buffer || b->state == BUFFER_FILLING)
		return 0;
	return catalog_lookup_for_open(c, l->process, key, NULL, l->access, ret, f);
}

static int find_mapped(struct catalog *c, const struct lease *l, uint64_t id, struct buffer **ret,
		       struct fault *f)
{
	struct buffer *b = catalog_by_id(c, id);

	if (!b || !has_lease(b, l))
		return fault(f, CODE_NOT_FOUND, "this process does not have buffer %" PRIu64, id);
	*ret = b;
	return 0;
}

static int check_layout(const struct buffer *to, const struct buffer *from, struct fault *f)
{
	if (to->pool == from->pool && to->bytes == from->bytes && to->arrays == from->arrays &&
	    to->digest == from->digest && !to->stream)
		return 0;
	return fault(f, CODE_STALE,
		     "buffer \"%s\" was replaced by one with other arrays, of another size, or in "
		     "another pool: close it, and open the name again",
		     buffer_name(to));
}

static int move(struct catalog *c, struct lease *l, struct buffer *to, struct fault *f)
{
	struct buffer *from = catalog_hold(l->buffer);
	bool foreign = to->foreign;
	int r;

	lease_change_buffer(l, to);
	if (to->foreign != foreign)
		catalog_notify(c, record_buffer, to, BUFFER_MAPPED);
	r = catalog_record(c, record_lease, l, LEASE_CHANGED);
	if (r < 0) {
		lease_change_buffer(l, from);
		catalog_release(c, from);
		return catalog_refuse_unwritten(r, f);
	}
	event_log_add(&c->events, .type = EVENT_CLOSED, .who = l->process, .buffer = from,
		      .access = l->access);
	event_log_add(&c->events, .type = EVENT_OPENED, .who = l->process, .buffer = to,
		      .access = l->access);
	if (!from->key)
		catalog_notify(c, on_buffer, from, NULL, BUFFER_LEASE_OVER);
	catalog_release(c, from);
	return 0;
}

int catalog_follow(struct catalog *c, struct lease *l, const char *key, uint64_t id,
		   struct fault *f)
{
	struct buffer *to = l->buffer;
	int r;

	if (!l->away)
		return 0;
	r = key ? find_named(c, l, key, &to, f) : find_mapped(c, l, id, &to, f);
	if (r < 0 || to == l->buffer)
		return r;
	r = check_layout(to, l->buffer, f);
	return r < 0 ? r : move(c, l, to, f);
}
