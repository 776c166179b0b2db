/* SPDX-License-Identifier: MIT
 *
 * Names, ids and the lives of buffers. A buffer is in the catalog from the moment its name is taken
 * until it has neither name nor lease nor an allocation under way; then maybe_free() is the one
 * place where it goes. Names are taken before memory is asked for, so that two creators can't both
 * succeed; ids and lease ids only grow, and start at the clock, so that a client that kept one from
 * an earlier daemon means nothing by it.
 */
#include "daemon/catalog/catalog.h"

#include "daemon/util/log.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

int catalog_init(struct catalog *c, const struct config *config, struct list *pools)
{
	uint64_t start = clock_realtime_ns();

	*c = (struct catalog){ .next_buffer = start, .next_lease = start, .pools = pools };
	c->default_pool = config->default_pool;
	list_init(&c->buffers);
	list_init(&c->lost);
	if (accounts_init(&c->accounts, config) < 0 || hashtable_init(&c->by_name) < 0 ||
	    hashtable_init(&c->by_id) < 0 || hashtable_init(&c->leases) < 0 ||
	    hashtable_init(&c->lost_by_name) < 0)
		return -ENOMEM;
	return 0;
}

static bool is_archived(const struct catalog *c, const struct buffer *b)
{
	return c->archive && b->state != BUFFER_FILLING;
}

static void drop_name(struct catalog *c, struct buffer *b)
{
	const char *key;

	if (!b->key)
		return;
	if (is_archived(c, b))
		archive_unlink(c->archive, b);
	hashtable_drop(&c->by_name, &b->by_name);
	key = take_ptr(b->key);
	catalog_notice(c, b);
	c->on_changed(b, key, c->arg);
}

static void maybe_free(struct catalog *c, struct buffer *b)
{
	if (b->key || b->making || !list_empty(&b->leases))
		return;
	if (is_archived(c, b))
		archive_gone(c->archive, b);
	log_write(LOG_DEBUG, &(struct log_about){ .pool = b->pool->config.name, .buffer = b->id },
		  "buffer freed");
	hashtable_drop(&c->by_id, &b->by_id);
	list_drop(&b->all_link);
	c->n_buffers--;
	if (c->page)
		status_page_give(c->page, b->cell);
	c->on_changed(b, NULL, c->arg);
	buffer_free(b);
}

static int grant(struct catalog *c, struct process *p, struct buffer *b, enum access access,
		 uint64_t id, uint64_t slack, struct lease **ret, struct fault *f)
{
	struct lease *l = NULL;
	int r = lease_new(&c->accounts, p, access, id, slack, &l, f);

	if (r < 0)
		return r;
	c->n_leases++;
	hashtable_insert(&c->leases, &l->link, hashtable_hash_u64(l->id));
	buffer_lease(b, l);
	*ret = l;
	return 0;
}

static int archive_fault(int r, struct fault *f)
{
	return fault(f, CODE_NO_MEMORY, "the daemon's journal can't be written: %s", strerror(-r));
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
	/* From now on its memory is not the owner's alone, also after this lease and this daemon.
	 */
	if (is_archived(c, b) && b->foreign != foreign)
		archive_change(c->archive, b);
	r = is_archived(c, b) ? archive_lease(c->archive, l) : 0;
	if (r < 0) {
		catalog_end_lease(c, l);
		return archive_fault(r, f);
	}
	*ret = l;
	return 0;
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
	if (r->result < 0 && r->fault.code == CODE_POOL_FULL)
		catalog_tell_full(c, b->pool, &r->fault);
	/* An answer that can't be told ends the lease that it carries: the buffer must outlive
	 * that. */
	if (m->on_made)
		m->on_made(b, r->result, &r->fault, m->arg);
	free(take_ptr(b->making));
	/* Nobody took a lease: it failed, or its creator has gone. */
	if (list_empty(&b->leases))
		drop_name(c, b);
	maybe_free(c, b);
}

static void insert(struct catalog *c, struct buffer *b)
{
	if (b->key) {
		hashtable_insert(&c->by_name, &b->by_name, hashtable_hash(b->key, strlen(b->key)));
		catalog_forget_lost(c, b->key);
	}
	hashtable_insert(&c->by_id, &b->by_id, hashtable_hash_u64(b->id));
	list_insert(&c->buffers, &b->all_link);
	c->n_buffers++;
}

int catalog_create(struct catalog *c, struct process *p, const struct buffer_spec *spec,
		   struct buffer **ret_buffer, struct lease **ret_lease, struct fault *f)
{
	struct pool *pool = NULL;
	struct buffer *b = NULL;
	int r = catalog_lookup_pool(c, spec->pool, &pool, f);

	if (r < 0)
		return r;
	if (!catalog_pool_is_open_to(pool, p))
		return catalog_refuse_pool(pool, p, f);
	if (catalog_by_key(c, spec->key))
		return fault(f, CODE_EXISTS,
			     "name \"%s\" is taken: unlink it first, or choose "
			     "another",
			     spec->key);
	r = buffer_new(&c->accounts, p, pool, spec, &b, f);
	if (r < 0)
		return r;
	b->id = c->next_buffer++;
	insert(c, b);
	if (c->page)
		b->cell = status_page_take(c->page, b->id);
	b->making->buffer = b;
	b->making->catalog = c;
	b->making->request.on_done = on_allocated;
	b->making->request.wait_ms = spec->wait_ms;
	r = pool_alloc(pool, &b->making->request, spec->bytes, p->uid, f);
	if (r == -EINPROGRESS) {
		*ret_buffer = b;
		return r;
	}
	if (r == 0)
		buffer_take_block(b, &b->making->request.block);
	free(take_ptr(b->making));
	if (r == 0)
		r = catalog_grant(c, p, b, ACCESS_WRITE, ret_lease, f);
	if (r < 0 && f->code == CODE_POOL_FULL)
		catalog_tell_full(c, pool, f);
	if (r < 0) {
		drop_name(c, b);
		maybe_free(c, b);
	}
	return r;
}

void catalog_cancel_create(struct catalog *c, struct buffer *b)
{
	b->making->on_made = NULL;
	drop_name(c, b);
	pool_request_cancel(&b->making->request);
}

/* ---- ending ---- */

/* The leases first: the buffer's own record makes them count, all at once. A death before it leaves
 * a buffer that was never published; one behind it, one that its creator still holds. */
static int archive_published(struct catalog *c, struct buffer *b)
{
	const struct lease *l;
	int r = 0;

	if (!c->archive)
		return 0;
	list_foreach (l, &b->leases, buffer_link)
		if (r == 0)
			r = archive_lease(c->archive, l);
	return r < 0 ? r : archive_buffer(c->archive, b);
}

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
	r = archive_published(c, b);
	if (r < 0)
		log_error("buffer %" PRIu64 " would not survive a restart: %s", b->id,
			  strerror(-r));
	else if (c->archive && b->fd_index >= FD_INDEX_KEPT)
		log_warning("buffer %" PRIu64 " would survive a planned restart and no other end: "
			    "%u buffers are kept already",
			    b->id, FD_INDEX_KEPT);
	catalog_notice(c, b);
	c->on_changed(b, b->key, c->arg);
	c->on_published(b, c->arg);
	return 0;
}

void catalog_end_lease(struct catalog *c, struct lease *l)
{
	struct buffer *b = l->buffer;

	if (is_archived(c, b))
		archive_close(c->archive, l);
	hashtable_drop(&c->leases, &l->link);
	c->n_leases--;
	buffer_unlease(b, l);
	lease_free(l);
	/* Without a name it is for its holders alone to see. */
	if (!b->key)
		c->on_changed(b, NULL, c->arg);
	if (b->state == BUFFER_FILLING || (b->transient && list_empty(&b->leases)))
		drop_name(c, b);
	maybe_free(c, b);
}

void catalog_unlink_unpublished(struct catalog *c, struct process *p)
{
	struct lease *l;

	list_foreach (l, &p->leases, process_link)
		if (l->buffer->state == BUFFER_FILLING)
			drop_name(c, l->buffer);
}

int catalog_unlink(struct catalog *c, const struct process *p, const char *key, uint64_t id,
		   struct fault *f)
{
	struct buffer *b = catalog_by_key(c, key);

	if (!b || (id && b->id != id))
		return catalog_missing(c, key, f);
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

/* ---- across a restart ---- */

/* They come in the order of their publication; the list is in the order of their ids, in which LIST
 * goes on from page to page. The two are nearly the same, so the place is near the end. */
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
			uint64_t id, uint64_t since_ns, struct fault *f)
{
	struct lease *l = NULL;
	/* A limit that is lower by now takes nothing from who has it. */
	int r = grant(c, p, b, access, id, UINT64_MAX, &l, f);

	if (r == 0)
		l->since_ns = since_ns;
	return r;
}

int catalog_move_lease(struct catalog *c, struct lease *l, struct process *p)
{
	struct process *former = l->process;
	int r;

	l->process = p;
	r = is_archived(c, l->buffer) ? archive_move(c->archive, l) : 0;
	if (r < 0) {
		l->process = former;
		return r;
	}
	list_drop(&l->process_link);
	list_insert(&p->leases, &l->process_link);
	return 0;
}

void catalog_forget_process(struct catalog *c, struct process *p)
{
	if (c->archive)
		archive_forget_process(c->archive, p);
}

void catalog_free_unused(struct catalog *c)
{
	struct buffer *b;

	list_foreach (b, &c->buffers, all_link) {
		if (b->transient && list_empty(&b->leases))
			drop_name(c, b);
		maybe_free(c, b);
	}
}

/* Its last lease may take a nameless or transient one along. */
void catalog_memory_lost(struct catalog *c, struct buffer *b, const char *why)
{
	uint64_t id = b->id;

	if (b->key)
		catalog_remember_lost(c, b->key, why);
	for (uint32_t n = b->readers + b->writers; n > 0; n--)
		catalog_end_lease(c, list_first(&b->leases, struct lease, buffer_link));
	b = catalog_by_id(c, id);
	if (!b)
		return;
	drop_name(c, b);
	maybe_free(c, b);
}

void catalog_unlink_all(struct catalog *c)
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
	hashtable_done(&c->by_name);
	hashtable_done(&c->by_id);
	hashtable_done(&c->leases);
	catalog_forget_all_lost(c);
	hashtable_done(&c->lost_by_name);
	accounts_done(&c->accounts);
}
