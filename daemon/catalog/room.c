/* SPDX-License-Identifier: MIT
 *
 * Who goes when memory is needed. Only buffers with a twin or a source can go, because their bytes
 * are not lost, and only those of the user who needs the memory. First those that no process has
 * open, then those that all their processes have suspended, each time the longest unused one first,
 * and none before its `keep` is over. If that is not enough, processes are asked to suspend what
 * they use: of the lowest priority first. Nobody is forced. Nothing goes while there is room.
 */
#include "daemon/catalog/catalog.h"

#include "proto/base/clock.h"

#include <stdlib.h>

int catalog_cache(struct catalog *c, struct buffer *b)
{
	if (!b->cached) {
		b->cached = calloc(1, sizeof(*b->cached));
		if (!b->cached)
			return -ENOMEM;
		b->cached->buffer = b;
		list_init(&b->cached->link);
	}
	catalog_touch(c, b);
	return 0;
}

void catalog_touch(struct catalog *c, struct buffer *b)
{
	if (!b->cached)
		return;
	b->cached->used_ns = clock_monotonic_ns();
	list_drop(&b->cached->link);
	list_insert(&c->cached, &b->cached->link);
}

int catalog_keep(struct catalog *c, const struct process *p, const char *key, uint64_t keep_ms,
		 int32_t priority, uint64_t source, struct fault *f)
{
	struct buffer *b = NULL;
	struct cached former;
	int r = catalog_lookup_visible(c, p, key, &b, f);

	if (r == 0)
		r = buffer_check_owner(b, p, "say how long it stays", f);
	if (r == 0)
		r = catalog_add_source(c, b, p, source, f);
	if (r < 0)
		return r;
	if (!catalog_is_clean(b))
		return fault(f, CODE_NO_COPY,
			     "buffer \"%s\" has no twin and no source, so its memory stays: "
			     "gpushmctl demote makes a twin",
			     key);
	former = *b->cached;
	b->cached->keep_ms = keep_ms;
	b->cached->keeps = true;
	b->cached->priority = priority;
	r = catalog_record(c, record_residence, b, false);
	if (r < 0)
		*b->cached = former;
	return r < 0 ? catalog_refuse_unwritten(r, f) : 0;
}

/* ---- what is short ---- */

static uint64_t over(uint64_t wanted, uint64_t most)
{
	return wanted > most ? wanted - most : 0;
}

/* The bytes that are missing in the pool, or in the user's share of it. Nothing goes for what the
 * pool can never hold. */
static uint64_t lacking(const struct catalog *c, const struct process *p, const struct pool *pool,
			uint64_t bytes)
{
	const struct account *a = account_find(&c->accounts, p->uid);
	uint64_t rounded = pool_round(pool, bytes), held = 0;
	uint64_t in_pool = over(pool->used + pool->lost + rounded, pool->size), in_share;

	if (rounded > pool->size)
		return 0;
	if (a)
		held = a->blocks[pool->index] + a->making[pool->index];
	in_share = over(held + rounded, buffer_share(&c->accounts, p, pool));
	return in_pool > in_share ? in_pool : in_share;
}

/* ---- who may go ---- */

enum use { UNUSED, AWAY, IN_USE };

static enum use use_of(const struct buffer *b)
{
	uint32_t leases = b->readers + b->writers;

	return leases == 0 ? UNUSED : leases == b->away ? AWAY : IN_USE;
}

static uint64_t keep_of(const struct catalog *c, const struct cached *it)
{
	return it->keeps ? it->keep_ms : c->accounts.config->keep * 1000ull;
}

static bool is_clean(const struct buffer *b)
{
	return !b->evicted && catalog_is_clean(b);
}

static bool is_kept(const struct catalog *c, const struct cached *it, uint64_t now)
{
	uint64_t keep = keep_of(c, it);

	return keep == UINT64_MAX || (now - it->used_ns) / 1000000 < keep;
}

static bool may_go(const struct catalog *c, const struct cached *it, const struct process *p,
		   const struct pool *pool, uint64_t now)
{
	const struct buffer *b = it->buffer;

	return b->pool == pool && b->uid == p->uid && is_clean(b) && !is_kept(c, it, now);
}

/* Evicts up to `bytes`. Returns how many. */
static uint64_t evict_some(struct catalog *c, const struct process *p, const struct pool *pool,
			   uint64_t bytes, enum use use)
{
	uint64_t now = clock_monotonic_ns(), done = 0;
	struct cached *it;
	struct fault ignored;

	list_foreach (it, &c->cached, link) {
		uint64_t has = it->buffer->block.bytes;

		if (done >= bytes)
			break;
		if (use_of(it->buffer) == use && may_go(c, it, p, pool, now) &&
		    catalog_evict_buffer(c, it->buffer, NULL, &ignored) == 0)
			done += has;
	}
	return done;
}

/* ---- who is asked ---- */

static void mark(struct catalog *c, struct cached *it, bool wanted, bool asked)
{
	bool before = cached_is_wanted(it), now = wanted || asked;

	it->wanted = wanted;
	it->asked = asked;
	if (before == now)
		return;
	it->asked_ns = clock_monotonic_ns();
	c->n_wanted += (uint32_t)now - (uint32_t)before;
	catalog_tell(c, it->buffer, it->buffer->key, BUFFER_WANTED);
}

int catalog_ask(struct catalog *c, const struct process *p, const char *key, bool asked,
		struct fault *f)
{
	struct buffer *b = NULL;
	int r = catalog_lookup_visible(c, p, key, &b, f);

	if (r == 0)
		r = buffer_check_owner(b, p, "ask for it", f);
	if (r == 0)
		r = catalog_check_suspendable(b, f);
	if (r < 0 || (!b->cached && !asked))
		return r;
	if (!b->cached && catalog_cache(c, b) < 0)
		return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
	mark(c, b->cached, b->cached->wanted, asked);
	return 0;
}

void catalog_end_ask(struct catalog *c, struct buffer *b)
{
	if (b->cached)
		mark(c, b->cached, false, false);
}

/* Of those that are in use: the one of the lowest priority, and of these the longest unused. */
static struct cached *next_to_ask(const struct catalog *c, const struct process *p,
				  const struct pool *pool)
{
	uint64_t now = clock_monotonic_ns();
	struct cached *it, *found = NULL;

	list_foreach (it, &c->cached, link)
		if (!it->wanted && use_of(it->buffer) == IN_USE && may_go(c, it, p, pool, now) &&
		    (!found || it->priority < found->priority))
			found = it;
	return found;
}

static uint64_t wanted_bytes(const struct catalog *c, const struct pool *pool)
{
	const struct cached *it;
	uint64_t bytes = 0;

	if (c->n_wanted > 0)
		list_foreach (it, &c->cached, link)
			bytes += it->wanted && it->buffer->pool == pool ? it->buffer->block.bytes
									: 0;
	return bytes;
}

/* Nobody is asked for what would not be enough. */
static bool ask(struct catalog *c, const struct process *p, const struct pool *pool, uint64_t bytes)
{
	uint64_t asked = wanted_bytes(c, pool), now = clock_monotonic_ns(), all = asked;
	struct cached *it;

	list_foreach (it, &c->cached, link)
		if (!it->wanted && use_of(it->buffer) == IN_USE && may_go(c, it, p, pool, now))
			all += it->buffer->block.bytes;
	while (all >= bytes && asked < bytes && (it = next_to_ask(c, p, pool))) {
		asked += it->buffer->block.bytes;
		mark(c, it, true, it->asked);
	}
	return asked >= bytes;
}

bool catalog_make_room(struct catalog *c, const struct process *p, struct pool *pool,
		       uint64_t bytes, uint64_t *wait_ms)
{
	uint64_t yield_ms = c->accounts.config->yield_timeout * 1000ull;
	uint64_t lack =
		list_empty(&c->cached) || pool_trouble(pool) ? 0 : lacking(c, p, pool, bytes);

	for (enum use use = UNUSED; lack > 0 && use <= AWAY; use++)
		lack = over(lack, evict_some(c, p, pool, lack, use));
	if (lack == 0 || (*wait_ms == 0 && yield_ms == 0) || !ask(c, p, pool, lack))
		return false;
	c->n_asking[pool->index]++;
	if (*wait_ms < yield_ms)
		*wait_ms = yield_ms;
	return true;
}

void catalog_yield(struct catalog *c, struct buffer *b)
{
	struct fault ignored;

	if (!b->cached || use_of(b) == IN_USE)
		return;
	if (!b->cached->wanted &&
	    (is_kept(c, b->cached, clock_monotonic_ns()) || pool_short_of(b->pool, b->uid) == 0))
		return;
	mark(c, b->cached, false, b->cached->asked);
	catalog_evict_buffer(c, b, NULL, &ignored);
}

void catalog_want_nothing(struct catalog *c, const struct pool *pool)
{
	struct cached *it;

	if (--c->n_asking[pool->index] == 0 && c->n_wanted > 0)
		list_foreach (it, &c->cached, link)
			if (it->buffer->pool == pool)
				mark(c, it, false, it->asked);
}

/* ---- what is counted ---- */

void catalog_refuse_full(struct catalog *c, const struct buffer *b, struct fault *f)
{
	const struct cached *it;

	catalog_name_holders(c, b->uid, b->pool, f);
	if (c->n_wanted > 0)
		list_foreach (it, &c->cached, link)
			c->cache_counts[b->pool->index].not_yielded +=
				it->wanted && it->buffer->pool == b->pool &&
				it->buffer->uid == b->uid;
}

void catalog_count_use(struct catalog *c, const struct buffer *b)
{
	c->cache_counts[b->pool->index].uses += b->cached != NULL;
}

struct cache_bytes catalog_cache_bytes(const struct catalog *c, const struct pool *pool)
{
	struct cache_bytes bytes = { 0 };
	uint64_t now = clock_monotonic_ns();
	const struct cached *it;

	list_foreach (it, &c->cached, link) {
		if (it->buffer->pool != pool || !is_clean(it->buffer))
			continue;
		if (is_kept(c, it, now))
			bytes.kept += it->buffer->block.bytes;
		else
			bytes.evictable += it->buffer->block.bytes;
	}
	return bytes;
}
