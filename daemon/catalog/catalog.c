/* SPDX-License-Identifier: MIT
 *
 * Names, ids, and the lives of buffers and leases. A buffer is in the catalog from the moment when
 * its name is taken; end_if_unused() is the only place where it leaves. A name is taken before
 * memory is asked for, so that two creators can't both succeed. Ids of buffers and leases only
 * grow, and start at the clock, so that an id from an earlier daemon never means a new buffer.
 *
 * A process that is gone without a CLOSE may have been in the middle of writing: a shared buffer
 * that it held for writing is dirty from then on, and OPEN and STAT say who died and when. The
 * first death counts until the owner or an admin cleans the buffer. Nothing else is ever dirty:
 * nobody can write to a sealed buffer, a reader writes nothing, and a buffer that is being filled
 * is removed when its creator ends.
 */
#include "daemon/catalog/catalog.h"

#include "daemon/catalog/private_names.h"
#include "daemon/util/log.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RETAINED_LOOKS 16u /* before each CREATE; each takes 1 us */

int catalog_init(struct catalog *c, const struct config *config, struct list *pools)
{
	uint64_t start = clock_realtime_ns();

	*c = (struct catalog){ .next_buffer = start, .next_lease = start, .pools = pools };
	c->default_pool = config->default_pool;
	list_init(&c->cached);
	list_init(&c->buffers);
	list_init(&c->retained);
	list_init(&c->streams);
	list_init(&c->retired_pages.all);
	list_init(&c->observers);
	if (accounts_init(&c->accounts, config) < 0 || hashtable_init(&c->by_name) < 0 ||
	    hashtable_init(&c->by_id) < 0 || hashtable_init(&c->leases) < 0 ||
	    lost_init(&c->lost) < 0 || event_log_init(&c->events, &c->accounts.config) < 0)
		return -ENOMEM;
	return 0;
}

void catalog_done(struct catalog *c)
{
	assert(c->n_buffers == 0 && c->n_leases == 0);
	hashtable_done(&c->by_name);
	hashtable_done(&c->by_id);
	hashtable_done(&c->leases);
	lost_done(&c->lost);
	event_log_done(&c->events);
	accounts_done(&c->accounts);
}

/* ---- pools ---- */

/* An adopted pool will be ready in a moment; a CREATE in it waits for that. */
static bool is_usable(const struct pool *pool)
{
	return pool->opened || (pool->state == POOL_STARTING && pool->is_adopted);
}

static struct pool *default_pool(const struct catalog *c)
{
	struct pool *it, *host = NULL, *gpu = NULL;

	list_foreach (it, c->pools, link) {
		const struct kind *kind = kind_of(it->config.kind);

		if (it->state == POOL_RETIRED)
			continue;
		if (strcmp(it->config.name, c->default_pool) == 0)
			return it;
		if (!host && !kind->by_driver)
			host = it;
		/* A pool whose GPU was lost stays the default: a CREATE is refused rather than
		 * given another kind of memory. */
		if (!gpu && kind->on_gpu && kind->read_only && is_usable(it))
			gpu = it;
	}
	return gpu ? gpu : host;
}

int catalog_lookup_pool(const struct catalog *c, const char *name, struct pool **ret,
			struct fault *f)
{
	struct pool *it, *found = *name ? NULL : default_pool(c);
	char names[160] = "";

	list_foreach (it, c->pools, link) {
		if (strcmp(it->config.name, name) == 0)
			found = it;
		text_append(names, sizeof(names), "%s%s", *names ? ", " : "", it->config.name);
	}
	if (!found)
		return fault(f, CODE_NOT_FOUND, "no pool \"%s\"; there are: %s", name, names);
	*ret = found;
	return 0;
}

bool catalog_pool_is_open_to(const struct pool *pool, const struct process *p)
{
	const struct groups *g = p->groups;

	return p->admin || pool_allows(pool, p->uid, g ? g->ids : NULL, g ? g->n : 0);
}

int catalog_refuse_pool(const struct pool *pool, const struct process *p, struct fault *f)
{
	return fault(f, CODE_ACCESS,
		     "pool \"%s\" is not open to uid %u (allow-users and allow-groups in "
		     "gpushmd.conf%s)",
		     pool->config.name, p->uid,
		     kind_opens_pool(pool->config.kind)
			     ? "; without them, a service's mempool is for its own group"
			     : "");
}

/* ---- looking up ---- */

struct buffer *catalog_by_key(const struct catalog *c, const char *key)
{
	struct buffer *b;

	hashtable_foreach (b, &c->by_name, hashtable_hash(key, strlen(key)), by_name)
		if (strcmp(b->key, key) == 0)
			return b;
	return NULL;
}

struct buffer *catalog_by_id(const struct catalog *c, uint64_t id)
{
	struct buffer *b;

	hashtable_foreach (b, &c->by_id, hashtable_hash_u64(id), by_id)
		if (b->id == id)
			return b;
	return NULL;
}

struct lease *catalog_lease_by_id(const struct catalog *c, uint64_t id)
{
	struct lease *l;

	hashtable_foreach (l, &c->leases, hashtable_hash_u64(id), link)
		if (l->id == id)
			return l;
	return NULL;
}

struct buffer *catalog_next(const struct catalog *c, uint64_t after)
{
	const struct buffer *last = catalog_by_id(c, after);
	const struct list *at = last ? &last->all_link : &c->buffers;

	/* If the caller's last buffer is gone by now, the search begins at the start. */
	for (at = at->next; at != &c->buffers; at = at->next)
		if (container_of(at, struct buffer, all_link)->id > after)
			return container_of(at, struct buffer, all_link);
	return NULL;
}

/* advice: what else the request could do. */
static int refuse_missing(const struct catalog *c, const struct process *p, const char *key,
			  const char *advice, struct fault *f)
{
	char why[256];

	if (lost_explain(&c->lost, p, key, why, sizeof(why)))
		return fault(f, CODE_NOT_FOUND, "no buffer \"%s\": %s", key, why);
	return fault(f, CODE_NOT_FOUND, "no buffer \"%s\" (gpushmctl ls shows what there is%s)",
		     key, advice);
}

int catalog_lookup_for_open(struct catalog *c, const struct process *p, const char *key,
			    struct buffer *held, enum access access, struct buffer **ret,
			    struct fault *f)
{
	struct buffer *b = held && !held->lost ? held : catalog_by_key(c, key);

	if (!b)
		return refuse_missing(c, p, key, "; open can wait for it", f);
	if (!buffer_allows(b, p, access))
		return fault(f, CODE_ACCESS,
			     "buffer \"%s\" belongs to uid %u with mode %04o: not open to uid %u "
			     "for %s",
			     key, b->uid, b->mode, p->uid,
			     access == ACCESS_WRITE ? "writing" : "reading");
	/* A mempool's fd opens all of the pool: only the pool's users may have it. */
	if (kind_opens_pool(b->pool->config.kind) && !catalog_pool_is_open_to(b->pool, p))
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

bool catalog_visible(const struct buffer *b, const struct process *p)
{
	return buffer_owned_by(b, p) ||
	       (b->state != BUFFER_FILLING && b->key && private_names_may_say(p, b->key) &&
		buffer_allows(b, p, ACCESS_READ));
}

int catalog_lookup_visible(struct catalog *c, const struct process *p, const char *key,
			   struct buffer **ret, struct fault *f)
{
	struct buffer *b = catalog_by_key(c, key);

	if (!b || (b->state == BUFFER_FILLING && !buffer_owned_by(b, p)))
		return refuse_missing(c, p, key, "", f);
	if (!catalog_visible(b, p))
		return fault(
			f, CODE_ACCESS,
			"buffer \"%s\" belongs to uid %u with mode %04o: not for uid %u to see",
			key, b->uid, b->mode, p->uid);
	*ret = b;
	return 0;
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

/* ---- reporting: first the journal, then the status page, then requests that wait ---- */

int catalog_refuse_unwritten(int error, struct fault *f)
{
	return fault(f, CODE_NO_MEMORY, "the daemon's journal can't be written: %s",
		     strerror(-error));
}

static uint32_t flags_of(const struct buffer *b)
{
	return (b->state == BUFFER_SEALED ? STATUS_PAGE_SEALED : 0) |
	       (b->state == BUFFER_SHARED ? STATUS_PAGE_SHARED : 0) |
	       (b->dirty ? STATUS_PAGE_DIRTY : 0) | (b->key ? 0 : STATUS_PAGE_UNLINKED) |
	       (b->cached && cached_is_wanted(b->cached) ? STATUS_PAGE_WANTED : 0);
}

uint32_t catalog_status_word(const struct catalog *c, const struct buffer *b)
{
	return c->page && b->cell != STATUS_PAGE_NONE
		       ? status_page_read(&c->page->map->cells[b->cell], b->id)
		       : flags_of(b);
}

void catalog_tell(struct catalog *c, struct buffer *b, const char *key, enum buffer_event event)
{
	if (c->page)
		status_page_write(c->page, b->cell, flags_of(b));
	catalog_notify(c, on_buffer, b, key, event);
}

static void report(struct catalog *c, struct buffer *b, const char *key, enum buffer_event event)
{
	catalog_notify(c, record_buffer, b, event);
	catalog_tell(c, b, key, event);
}

/* ---- a buffer's end ---- */

/* Whether its end is an event: not where no memory was found for it, and not at the daemon's own
 * end.
 */
static bool was_made(const struct catalog *c, const struct buffer *b)
{
	return (b->block.bytes > 0 || b->evicted) && !c->ending;
}

/* who: NULL, or the process for whose request or end this is done; why: NULL if it asked for it.
 */
void catalog_end_name(struct catalog *c, struct buffer *b, const struct process *who,
		      const char *why)
{
	if (!b->key)
		return;
	hashtable_drop(&c->by_name, &b->by_name);
	b->last_key = take_ptr(b->key);
	report(c, b, b->last_key, BUFFER_UNLINKED);
	if (was_made(c, b))
		event_log_add(&c->events, .type = EVENT_UNLINKED, .who = who, .buffer = b,
			      .text = why);
}

/* It is in no index any more: frees it, as soon as no process has its memory. */
void catalog_end_memory(struct catalog *c, struct buffer *b)
{
	if (c->ending || b->keep_memory || !buffer_withdraw(b)) {
		buffer_free(b);
		return;
	}
	list_insert(&c->retained, &b->all_link);
	c->n_retained++;
	c->retained_bytes += buffer_held_bytes(b);
}

/* A buffer stays while it is being allocated, while it is held and while a lease is left. After
 * that nobody can publish it if it was being filled, and nobody wants it if it is transient: it
 * loses its name. A buffer without a name is freed. */
static void end_if_unused(struct catalog *c, struct buffer *b)
{
	struct buffer *twin;

	if (b->making || b->holds || !list_empty(&b->leases))
		return;
	if (b->state == BUFFER_FILLING)
		catalog_end_name(c, b, NULL, "it was closed before it was published");
	else if (b->transient)
		catalog_end_name(c, b, NULL, "it is transient, and no process has it open");
	if (b->key)
		return;
	catalog_end_ask(c, b);
	catalog_notify(c, record_buffer, b, BUFFER_FREED);
	if (was_made(c, b))
		event_log_add(&c->events, .type = EVENT_FREED, .buffer = b);
	log_write(LOG_DEBUG, &(struct log_about){ .pool = b->pool->config.name, .buffer = b->id },
		  "buffer freed");
	hashtable_drop(&c->by_id, &b->by_id);
	list_drop(&b->all_link);
	c->n_buffers--;
	c->n_states[b->pool->index][b->state]--;
	if (c->page)
		status_page_give(c->page, b->cell);
	catalog_notify(c, on_buffer, b, NULL, BUFFER_FREED);
	catalog_free_stream(c, b);
	twin = take_ptr(b->twin);
	catalog_end_memory(c, b);
	if (twin)
		catalog_end_twin(c, twin);
}

void catalog_look_at_retained(struct catalog *c, unsigned n)
{
	for (n = n < c->n_retained ? n : c->n_retained; n > 0; n--) {
		struct buffer *b = list_first(&c->retained, struct buffer, all_link);

		list_drop(&b->all_link);
		c->retained_bytes -= buffer_held_bytes(b);
		if (buffer_is_held(b)) {
			list_insert(&c->retained, &b->all_link);
			c->retained_bytes += buffer_held_bytes(b);
			continue;
		}
		c->n_retained--;
		buffer_free(b);
	}
}

struct buffer *catalog_hold(struct buffer *b)
{
	b->holds++;
	return b;
}

void catalog_release(struct catalog *c, struct buffer *b)
{
	b->holds--;
	end_if_unused(c, b);
}

static void unlink_buffer(struct catalog *c, struct buffer *b, const struct process *who)
{
	catalog_end_name(c, b, who, NULL);
	end_if_unused(c, b);
}

int catalog_unlink(struct catalog *c, const struct process *p, const char *key, uint64_t id,
		   struct fault *f)
{
	struct buffer *b = catalog_by_key(c, key);
	int r;

	if (!b || (id && b->id != id))
		return refuse_missing(c, p, key, "", f);
	r = buffer_check_owner(b, p, "unlink it", f);
	/* The creator still gets the memory if it is being allocated, and keeps it until CLOSE. */
	if (r == 0)
		unlink_buffer(c, b, p);
	return r;
}

bool catalog_unlink_unpublished(struct catalog *c, struct process *p, unsigned max)
{
	for (; p->filling > 0 && max > 0; max--) {
		struct lease *l = list_first(&p->leases, struct lease, process_link);

		lease_fill_no_more(l);
		if (!l->buffer->key)
			continue;
		lost_add_dropped(&c->lost, l->buffer, p, true);
		catalog_end_name(c, l->buffer, p, "its creator ended before it was published");
	}
	return p->filling > 0;
}

void catalog_unlink_all(struct catalog *c)
{
	struct buffer *b;

	c->ending = true;
	list_foreach_reverse(b, &c->buffers, all_link)
	{
		assert(list_empty(&b->leases));
		unlink_buffer(c, b, NULL);
	}
	list_drain (b, &c->retained, all_link)
		buffer_free(b);
	c->n_retained = 0;
	c->retained_bytes = 0;
	retired_pages_done(&c->retired_pages);
}

void catalog_free_unused(struct catalog *c)
{
	struct buffer *b;

	/* A twin, which ends with its buffer, comes after that. */
	list_foreach_reverse(b, &c->buffers, all_link) end_if_unused(c, b);
}

void catalog_keep_memory(struct catalog *c)
{
	struct buffer *b;

	list_foreach (b, &c->buffers, all_link)
		b->keep_memory = b->state != BUFFER_FILLING;
}

void catalog_memory_lost(struct catalog *c, struct buffer *b, const char *why)
{
	uint32_t n = b->readers + b->writers;

	b->lost = true;
	c->restarts.lost++;
	if (b->key)
		lost_add(&c->lost, b->key, why);
	event_log_add(&c->events, .type = EVENT_LOST, .buffer = b, .text = why);
	catalog_end_name(c, b, NULL, "its memory is lost");
	if (b->stream)
		catalog_producer_left(c, b, NULL, true);
	if (n == 0)
		end_if_unused(c, b);
	/* The end of the last lease frees the buffer. */
	for (; n > 0; n--)
		catalog_end_lease(c, list_first(&b->leases, struct lease, buffer_link));
}

/* ---- a lease ---- */

static int grant(struct catalog *c, struct process *p, struct buffer *b, enum access access,
		 uint64_t id, uint64_t slack, struct lease **ret, struct fault *f)
{
	struct lease *l = NULL;
	int r = lease_new(&c->accounts, p, b, access, id, slack, &l, f);

	if (r < 0)
		return r;
	c->n_leases++;
	c->n_write_leases += access == ACCESS_WRITE;
	hashtable_insert(&c->leases, &l->link, hashtable_hash_u64(l->id));
	*ret = l;
	return 0;
}

int catalog_grant(struct catalog *c, struct process *p, struct buffer *b, enum access access,
		  struct lease **ret, struct fault *f)
{
	struct lease *l = NULL;
	bool foreign = b->foreign;
	int r = grant(c, p, b, access, c->next_lease, 0, &l, f);

	if (r < 0)
		return r;
	c->next_lease++;
	if (b->foreign != foreign)
		catalog_notify(c, record_buffer, b, BUFFER_MAPPED);
	r = catalog_record(c, record_lease, l, LEASE_GRANTED);
	if (r < 0) {
		catalog_end_lease(c, l);
		return catalog_refuse_unwritten(r, f);
	}
	event_log_add(&c->events, .type = b->state == BUFFER_FILLING ? EVENT_CREATED : EVENT_OPENED,
		      .who = p, .buffer = b, .access = b->state == BUFFER_FILLING ? 0 : access);
	catalog_touch(c, b);
	*ret = l;
	return 0;
}

int catalog_move_lease(struct catalog *c, struct lease *l, struct process *p)
{
	struct process *former = l->process;
	int r;

	l->process = p;
	r = catalog_record(c, record_lease, l, LEASE_CHANGED);
	l->process = former;
	if (r < 0)
		return r;
	lease_move(l, p);
	if (l->reader >= 0)
		stream_return(l->buffer->stream, (uint32_t)l->reader);
	return 0;
}

void catalog_end_lease(struct catalog *c, struct lease *l)
{
	struct buffer *b = l->buffer;

	catalog_leave_stream(c, l, false);
	catalog_record(c, record_lease, l, LEASE_ENDED);
	hashtable_drop(&c->leases, &l->link);
	c->n_leases--;
	c->n_write_leases -= l->access == ACCESS_WRITE;
	c->n_away -= l->away;
	lease_free(l);
	catalog_touch(c, b);
	catalog_yield(c, b);
	if (!b->key)
		catalog_notify(c, on_buffer, b, NULL, BUFFER_LEASE_OVER);
	end_if_unused(c, b);
}

void catalog_close_lease(struct catalog *c, struct lease *l, bool discard)
{
	const struct buffer *b = l->buffer;

	if (b->state == BUFFER_FILLING && b->key && !discard)
		lost_add_dropped(&c->lost, b, l->process, false);
	event_log_add(&c->events, .type = EVENT_CLOSED, .who = l->process, .buffer = b,
		      .access = l->access);
	catalog_leave_stream(c, l, b->state == BUFFER_FILLING || !discard);
	catalog_end_lease(c, l);
}

void catalog_holder_died(struct catalog *c, struct lease *l)
{
	event_log_add(&c->events, .type = EVENT_DIED, .who = l->process, .buffer = l->buffer,
		      .access = l->access);
	if (l->access == ACCESS_WRITE && !l->buffer->stream && !l->away)
		catalog_mark_dirty(c, l->buffer, l->process);
	catalog_end_lease(c, l);
}

/* ---- dirty buffers ---- */

void catalog_mark_dirty(struct catalog *c, struct buffer *b, const struct process *p)
{
	static const struct ratelimit_cause cause = { LOG_ID_DIRTY, "buffers that became dirty" };

	if (b->dirty || b->state != BUFFER_SHARED)
		return;
	b->dirty = true;
	b->death = (struct death){ .ns = clock_realtime_ns(), .pid = p->pid, .uid = p->uid };
	memcpy(b->death.command, p->command, sizeof(b->death.command));
	if (ratelimit_pass(&c->death_lines, &cause, p->uid, clock_monotonic_ns()))
		log_write(LOG_WARNING,
			  &(struct log_about){ LOG_ID_DIRTY, LOG_PROCESS(p), LOG_BUFFER(b) },
			  "buffer \"%s\" is dirty: process %d (%s) has gone while it held it for "
			  "writing",
			  buffer_name(b), p->pid, p->command);
	report(c, b, b->key, BUFFER_DIRTIED);
	event_log_add(&c->events, .type = EVENT_DIRTY, .who = p, .buffer = b);
}

int catalog_refuse_dirty(const struct buffer *b, struct fault *f)
{
	if (!b->dirty)
		return 0;
	return fault(f, CODE_DIRTY,
		     "buffer \"%s\" is dirty: process %d (%s) of uid %u died at %s while it held "
		     "it for writing; its owner should check it and run gpushmctl clean",
		     buffer_name(b), b->death.pid, b->death.command, b->death.uid,
		     clock_format(b->death.ns).text);
}

int catalog_clean(struct catalog *c, const struct process *p, const char *key, uint64_t id,
		  struct fault *f)
{
	struct buffer *b = NULL;
	int r = catalog_lookup_visible(c, p, key, &b, f);

	if (r < 0)
		return r;
	if (id && b->id != id)
		return fault(f, CODE_NOT_FOUND, "buffer \"%s\" is another one by now", key);
	r = buffer_check_owner(b, p, "say that it is clean", f);
	if (r < 0 || !b->dirty)
		return r;
	b->dirty = false;
	b->death = (struct death){ 0 };
	report(c, b, b->key, BUFFER_CLEANED);
	event_log_add(&c->events, .type = EVENT_CLEANED, .who = p, .buffer = b);
	return 0;
}

/* ---- creating ---- */

static void insert(struct catalog *c, struct buffer *b)
{
	if (b->key) {
		hashtable_insert(&c->by_name, &b->by_name, hashtable_hash(b->key, strlen(b->key)));
		lost_forget(&c->lost, b->key);
	}
	hashtable_insert(&c->by_id, &b->by_id, hashtable_hash_u64(b->id));
	list_insert(&c->buffers, &b->all_link);
	c->n_buffers++;
	c->n_states[b->pool->index][b->state]++;
}

static void end_request(struct catalog *c, const struct buffer *b, int result, struct fault *f)
{
	if (result < 0 && f->code == CODE_POOL_FULL)
		catalog_refuse_full(c, b, f);
	if (b->making->asks)
		catalog_want_nothing(c, b->pool);
}

static void on_allocated(struct pool_request *r)
{
	struct making *m = container_of(r, struct making, request);
	struct buffer *b = m->buffer;
	struct catalog *c = m->catalog;

	if (r->result == 0) {
		buffer_take_block(b, &r->block);
		r->block = BLOCK_NONE;
	}
	end_request(c, b, r->result, &r->fault);
	/* If the reply can't be sent the callback ends the lease again. `making` keeps the buffer
	 * until then. */
	if (m->on_made)
		m->on_made(b, r->result, &r->fault, m->arg);
	free(take_ptr(b->making));
	end_if_unused(c, b);
}

int catalog_create(struct catalog *c, struct process *p, const struct buffer_spec *spec,
		   struct buffer **ret_buffer, struct lease **ret_lease, struct fault *f)
{
	struct pool *pool = NULL;
	struct buffer *b = NULL;
	uint64_t wait_ms = spec->wait_ms;
	bool asks;
	int r = catalog_lookup_pool(c, spec->pool, &pool, f);

	if (r < 0)
		return r;
	if (!catalog_pool_is_open_to(pool, p))
		return catalog_refuse_pool(pool, p, f);
	if (catalog_by_key(c, spec->key))
		return fault(f, CODE_EXISTS,
			     "name \"%s\" is taken: unlink it first, or choose another", spec->key);
	catalog_look_at_retained(c, RETAINED_LOOKS);
	asks = catalog_make_room(c, p, pool, spec->bytes, &wait_ms);
	r = buffer_new(&c->accounts, p, pool, spec, &b, f);
	if (r < 0 && asks)
		catalog_want_nothing(c, pool);
	if (r < 0)
		return r;
	b->id = b->memory = c->next_buffer++;
	insert(c, b);
	if (c->page)
		b->cell = status_page_take(c->page, b->id);
	b->making->buffer = b;
	b->making->catalog = c;
	b->making->request.on_done = on_allocated;
	b->making->request.wait_ms = wait_ms;
	b->making->asks = asks;
	r = pool_alloc(pool, &b->making->request, spec->bytes, p->uid, f);
	if (r == -EINPROGRESS) {
		*ret_buffer = b;
		return r;
	}
	if (r == 0)
		buffer_take_block(b, &b->making->request.block);
	end_request(c, b, r, f);
	free(take_ptr(b->making));
	if (r == 0)
		r = catalog_grant(c, p, b, ACCESS_WRITE, ret_lease, f);
	end_if_unused(c, b);
	return r;
}

void catalog_cancel_create(struct catalog *c, struct buffer *b)
{
	b->making->on_made = NULL;
	catalog_end_name(c, b, NULL, NULL);
	pool_request_cancel(&b->making->request);
}

/* ---- from one daemon to the next ---- */

/* Buffers come in the order of their publication, and the list is in the order of their ids, which
 * LIST needs to continue from page to page. The two orders are nearly the same, so the search
 * begins at the end. */
void catalog_adopt_buffer(struct catalog *c, struct buffer *b)
{
	struct list *behind = c->buffers.prev;

	insert(c, b);
	while (behind != &c->buffers && container_of(behind, struct buffer, all_link)->id > b->id)
		behind = behind->prev;
	list_drop(&b->all_link);
	list_insert(behind->next, &b->all_link);
}

int catalog_adopt_lease(struct catalog *c, struct process *p, struct buffer *b, enum access access,
			uint64_t id, uint64_t since_ns, bool away, struct fault *f)
{
	struct lease *l = NULL;
	/* A limit that has become lower ends no lease: any slack is allowed. */
	int r = grant(c, p, b, access, id, UINT64_MAX, &l, f);

	if (r < 0)
		return r;
	l->since_ns = since_ns;
	lease_set_away(l, away);
	c->n_away += away;
	return 0;
}

/* The buffer of a cell may not have come back: it was being filled, or it is lost. Then the cell
 * says so. */
void catalog_adopt_page(struct catalog *c, struct status_page *page)
{
	struct buffer *b;
	uint32_t used = status_page_used(page);

	c->page = page;
	for (uint32_t cell = 0; cell < used; cell++) {
		b = catalog_by_id(c, status_page_id(page, cell));
		if (b && b->cell == STATUS_PAGE_NONE)
			b->cell = cell;
		else
			status_page_give(page, cell);
	}
	list_foreach (b, &c->buffers, all_link) {
		if (b->cell == STATUS_PAGE_NONE)
			b->cell = status_page_take(page, b->id);
		status_page_write(page, b->cell, flags_of(b));
	}
	status_page_begin(page);
}
