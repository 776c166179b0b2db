/* SPDX-License-Identifier: MIT
 *
 * Leases that are away: their process has let go of the memory, and means to come back to what the
 * name says then: to the buffer that replaced it, if that has the same arrays at the same offsets,
 * because its arrays, pointers and captured graphs fit no other.
 */
#include "daemon/catalog/catalog.h"

#include <inttypes.h>

int catalog_check_suspendable(const struct buffer *b, struct fault *f)
{
	if (b->state == BUFFER_FILLING)
		return fault(f, CODE_STATE, "buffer \"%s\" is not published: publish it first",
			     buffer_name(b));
	if (b->stream)
		return fault(
			f, CODE_UNSUPPORTED,
			"buffer \"%s\" is a stream, whose memory changes all the time: close it",
			buffer_name(b));
	if (kind_opens_pool(b->pool->config.kind))
		return fault(f, CODE_UNSUPPORTED,
			     "pool \"%s\" is a %s, which a process has as a whole: use a vmm pool",
			     b->pool->config.name, kind_word(b->pool->config.kind));
	return 0;
}

int catalog_set_away(struct catalog *c, struct lease *l, bool away, struct fault *f)
{
	bool same = l->away == away && l->buffer->state != BUFFER_FILLING;
	int r = same ? 0 : catalog_check_suspendable(l->buffer, f);

	if (r < 0 || l->away == away)
		return r;
	lease_set_away(l, away);
	r = catalog_record(c, record_lease, l, LEASE_CHANGED);
	if (r < 0) {
		lease_set_away(l, !away);
		return catalog_refuse_unwritten(r, f);
	}
	c->n_away += (uint32_t)away - (uint32_t)!away;
	event_log_add(&c->events, .type = away ? EVENT_SUSPENDED : EVENT_RESUMED, .who = l->process,
		      .buffer = l->buffer, .access = l->access);
	catalog_touch(c, l->buffer);
	catalog_yield(c, l->buffer);
	return 0;
}

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
