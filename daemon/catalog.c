/* SPDX-License-Identifier: MIT
 *
 * Names, ids and the lives of buffers. A buffer is in the catalog from the moment its name is taken
 * until it has neither name nor lease nor an allocation under way; then maybe_free() is the one
 * place where it goes. Names are taken before memory is asked for, so that two creators can't both
 * succeed; ids and lease ids only grow, and start at the clock, so that a client that kept one from
 * an earlier daemon means nothing by it.
 */
#include "daemon/catalog.h"

#include "daemon/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

int catalog_init(struct catalog *c, const struct config *config, struct list *pools)
{
	uint64_t start = clock_realtime_ns();

	*c = (struct catalog){ .next_buffer = start, .next_lease = start, .pools = pools };
	c->default_pool = config->default_pool;
	list_init(&c->buffers);
	if (accounts_init(&c->accounts, config) < 0 || index_init(&c->by_name) < 0 ||
	    index_init(&c->by_id) < 0 || index_init(&c->leases) < 0)
		return -ENOMEM;
	return 0;
}

static void drop_name(struct catalog *c, struct buffer *b)
{
	if (!b->key)
		return;
	index_drop(&c->by_name, &b->by_name);
	free(take_ptr(b->key));
}

static void maybe_free(struct catalog *c, struct buffer *b)
{
	if (b->key || b->allocating || !list_empty(&b->leases))
		return;
	index_drop(&c->by_id, &b->by_id);
	list_drop(&b->all_link);
	c->n_buffers--;
	buffer_free(b);
}

static struct buffer *find_key(const struct catalog *c, const char *key)
{
	struct index_link *link = index_first(&c->by_name, index_hash(key, strlen(key)));

	while (link && strcmp(container_of(link, struct buffer, by_name)->key, key) != 0)
		link = index_next(link);
	return link ? container_of(link, struct buffer, by_name) : NULL;
}

/* ---- creating ---- */

static struct pool *default_pool(const struct catalog *c)
{
	struct pool *it, *host = NULL, *gpu = NULL;

	list_foreach (it, c->pools, link) {
		if (strcmp(it->config.name, c->default_pool) == 0)
			return it;
		if (!host && it->config.kind == POOL_HOST)
			host = it;
		/* One whose GPU was lost stays the default: a CREATE is refused rather than given
		 * another kind of memory. */
		if (!gpu && it->config.kind == POOL_VMM && it->opened)
			gpu = it;
	}
	return gpu ? gpu : host;
}

int catalog_pool(const struct catalog *c, const char *name, struct pool **ret, struct fault *f)
{
	struct pool *it, *found = *name ? NULL : default_pool(c);
	char names[160] = "";
	size_t len = 0;

	list_foreach (it, c->pools, link) {
		if (strcmp(it->config.name, name) == 0)
			found = it;
		if (len < sizeof(names))
			len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s",
						len ? ", " : "", it->config.name);
	}
	if (!found)
		return fault(f, CODE_NOT_FOUND, "no pool \"%s\"; there are: %s", name, names);
	*ret = found;
	return 0;
}

bool catalog_pool_is_open_to(const struct pool *pool, const struct process *p)
{
	return p->admin || pool_allows(pool, p->uid, p->gids, p->n_gids);
}

/* A mempool's fd opens all of the pool, so whoever attaches to a buffer must be one of its users.
 */
static bool may_use(const struct pool *pool, const struct process *p)
{
	return pool->config.kind != POOL_MEMPOOL || catalog_pool_is_open_to(pool, p);
}

int catalog_refuse_pool(const struct pool *pool, const struct process *p, struct fault *f)
{
	return fault(f, CODE_ACCESS,
		     "pool \"%s\" is not open to uid %u (allow-users and allow-groups in "
		     "gpushmd.conf)",
		     pool->config.name, p->uid);
}

int catalog_grant(struct catalog *c, struct process *p, struct buffer *b, enum access access,
		  struct lease **ret, struct fault *f)
{
	struct lease *l = NULL;
	int r = lease_new(&c->accounts, p, access, c->next_lease, &l, f);

	if (r < 0)
		return r;
	c->next_lease++;
	c->n_leases++;
	index_insert(&c->leases, &l->link, index_hash_u64(l->id));
	buffer_lease(b, l);
	*ret = l;
	return 0;
}

static void on_allocated(struct pool_request *r)
{
	struct buffer *b = container_of(r, struct buffer, request);
	struct catalog *c = b->catalog;

	if (r->result == 0) {
		b->block = r->block;
		r->block = BLOCK_NONE;
	}
	if (r->result < 0 && r->fault.code == CODE_POOL_FULL)
		catalog_tell_full(c, b->pool, &r->fault);
	/* An answer that can't be told ends the lease that it carries: the buffer must outlive
	 * that. */
	if (b->on_made)
		b->on_made(b, r->result, &r->fault, b->arg);
	b->allocating = false;
	/* Nobody took a lease: it failed, or its creator has gone. */
	if (list_empty(&b->leases))
		drop_name(c, b);
	maybe_free(c, b);
}

static void insert(struct catalog *c, struct buffer *b)
{
	b->catalog = c;
	b->id = c->next_buffer++;
	b->request.on_done = on_allocated;
	index_insert(&c->by_name, &b->by_name, index_hash(b->key, strlen(b->key)));
	index_insert(&c->by_id, &b->by_id, index_hash_u64(b->id));
	list_insert(&c->buffers, &b->all_link);
	c->n_buffers++;
}

int catalog_create(struct catalog *c, struct process *p, const struct buffer_spec *spec,
		   struct buffer **ret_buffer, struct lease **ret_lease, struct fault *f)
{
	struct pool *pool = NULL;
	struct buffer *b = NULL;
	int r = catalog_pool(c, spec->pool, &pool, f);

	if (r < 0)
		return r;
	if (!catalog_pool_is_open_to(pool, p))
		return catalog_refuse_pool(pool, p, f);
	if (find_key(c, spec->key))
		return fault(f, CODE_EXISTS,
			     "name \"%s\" is taken: unlink it first, or choose "
			     "another",
			     spec->key);
	r = buffer_new(&c->accounts, p, pool, spec, &b, f);
	if (r < 0)
		return r;
	insert(c, b);
	b->request.wait_ms = spec->wait_ms;
	r = pool_alloc(pool, &b->request, spec->bytes, p->uid, f);
	if (r == -EINPROGRESS) {
		b->allocating = true;
		*ret_buffer = b;
		return r;
	}
	if (r == 0) {
		b->block = b->request.block;
		r = catalog_grant(c, p, b, ACCESS_WRITE, ret_lease, f);
	}
	if (r < 0 && f->code == CODE_POOL_FULL)
		catalog_tell_full(c, pool, f);
	if (r < 0) {
		drop_name(c, b);
		maybe_free(c, b);
	}
	return r;
}

void catalog_abandon(struct catalog *c, struct buffer *b)
{
	b->on_made = NULL;
	drop_name(c, b);
	pool_request_cancel(&b->request);
}

/* ---- finding ---- */

bool catalog_visible(const struct buffer *b, const struct process *p)
{
	return buffer_owned_by(b, p) ||
	       (b->state != BUFFER_FILLING && b->key && buffer_allows(b, p, ACCESS_READ));
}

static int missing(const char *key, struct fault *f)
{
	return fault(f, CODE_NOT_FOUND,
		     "no buffer \"%s\" (gpushmctl ls shows what there is; open can wait for it)",
		     key);
}

int catalog_find(struct catalog *c, const struct process *p, const char *key, enum access access,
		 struct buffer **ret, struct fault *f)
{
	struct buffer *b = find_key(c, key);

	if (!b)
		return missing(key, f);
	if (!buffer_allows(b, p, access))
		return fault(f, CODE_ACCESS,
			     "buffer \"%s\" belongs to uid %u with mode %04o: not open to uid %u "
			     "for %s",
			     key, b->uid, b->mode, p->uid,
			     access == ACCESS_WRITE ? "writing" : "reading");
	if (!may_use(b->pool, p))
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

int catalog_look(struct catalog *c, const struct process *p, const char *key, struct buffer **ret,
		 struct fault *f)
{
	struct buffer *b = find_key(c, key);

	if (!b || (b->state == BUFFER_FILLING && !buffer_owned_by(b, p)))
		return missing(key, f);
	if (!catalog_visible(b, p))
		return fault(
			f, CODE_ACCESS,
			"buffer \"%s\" belongs to uid %u with mode %04o: not for uid %u to see",
			key, b->uid, b->mode, p->uid);
	*ret = b;
	return 0;
}

struct buffer *catalog_next(const struct catalog *c, uint64_t after)
{
	struct index_link *link = after ? index_first(&c->by_id, index_hash_u64(after)) : NULL;
	const struct list *at = &c->buffers;

	while (link && container_of(link, struct buffer, by_id)->id != after)
		link = index_next(link);
	if (link)
		at = &container_of(link, struct buffer, by_id)->all_link;
	/* The one that the caller had last may have gone meanwhile: then from the start. */
	for (at = at->next; at != &c->buffers; at = at->next)
		if (container_of(at, struct buffer, all_link)->id > after)
			return container_of(at, struct buffer, all_link);
	return NULL;
}

int catalog_lease(struct catalog *c, const struct process *p, uint64_t id, struct lease **ret,
		  struct fault *f)
{
	struct index_link *link = index_first(&c->leases, index_hash_u64(id));

	while (link && container_of(link, struct lease, link)->id != id)
		link = index_next(link);
	if (!link || container_of(link, struct lease, link)->process != p)
		return fault(f, CODE_NO_LEASE, "no lease %" PRIu64 " on this connection", id);
	*ret = container_of(link, struct lease, link);
	return 0;
}

/* ---- ending ---- */

int catalog_publish(struct catalog *c, struct lease *l, enum buffer_state state, struct fault *f)
{
	struct buffer *b = l->buffer;
	int r;

	if (b->state != BUFFER_FILLING)
		return fault(f, CODE_STATE, "buffer \"%s\" is published already",
			     b->key ? b->key : "");
	r = buffer_publish(b, state, f);
	if (r < 0)
		return r;
	if (state == BUFFER_SEALED) {
		l->access = ACCESS_READ;
		b->writers--;
		b->readers++;
	}
	c->on_published(b, c->arg);
	return 0;
}

void catalog_close(struct catalog *c, struct lease *l)
{
	struct buffer *b = l->buffer;

	index_drop(&c->leases, &l->link);
	c->n_leases--;
	buffer_unlease(b, l);
	lease_free(l);
	if (b->state == BUFFER_FILLING || (b->transient && list_empty(&b->leases)))
		drop_name(c, b);
	maybe_free(c, b);
}

void catalog_disconnect(struct catalog *c, struct process *p)
{
	struct lease *l;

	list_foreach (l, &p->leases, process_link)
		if (l->buffer->state == BUFFER_FILLING)
			drop_name(c, l->buffer);
}

int catalog_unlink(struct catalog *c, const struct process *p, const char *key, uint64_t id,
		   struct fault *f)
{
	struct buffer *b = find_key(c, key);

	if (!b || (id && b->id != id))
		return missing(key, f);
	if (!buffer_owned_by(b, p))
		return fault(
			f, CODE_ACCESS,
			"buffer \"%s\" belongs to uid %u: only its owner and admins may unlink it",
			key, b->uid);
	/* Its creator keeps the memory until it closes, and gets it if it is being allocated. */
	drop_name(c, b);
	maybe_free(c, b);
	return 0;
}

void catalog_clear(struct catalog *c)
{
	struct buffer *b;

	list_foreach (b, &c->buffers, all_link) {
		assert(list_empty(&b->leases));
		drop_name(c, b);
		maybe_free(c, b);
	}
}

void catalog_done(struct catalog *c)
{
	assert(c->n_buffers == 0 && c->n_leases == 0);
	index_done(&c->by_name);
	index_done(&c->by_id);
	index_done(&c->leases);
	accounts_done(&c->accounts);
}
