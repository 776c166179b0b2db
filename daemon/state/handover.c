/* SPDX-License-Identifier: MIT
 *
 * A new journal is written whole before the old one is forgotten: at the start, and whenever most
 * of the old one is dead. So at any moment there is a good one. Without systemd's fd store no
 * journal is written, because no successor could use it; only a planned restart writes one, just
 * before the exec.
 */
#include "daemon/state/handover.h"

#include "daemon/state/deserialize.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"

#include <stdio.h>
#include <string.h>

#define PAGE_NAME "b0" /* of the status page's fd in the fd store */

int handover_open(struct handover *h, struct catalog *catalog, struct reaper *reaper,
		  struct pools *pools, struct refusals *refusals, unsigned char id[DAEMON_ID_BYTES])
{
	*h = (struct handover){
		.catalog = catalog, .reaper = reaper, .pools = pools, .refusals = refusals, .id = id
	};
	h->serializer.journal = JOURNAL_NONE;
	list_init(&h->serializer.observer.link);
	h->page = STATUS_PAGE_CLOSED;
	return fdstore_open(&h->store);
}

void handover_close(struct handover *h)
{
	serializer_done(&h->serializer);
	status_page_done(&h->page);
	fdstore_close(&h->store);
}

static bool is_writing(const struct handover *h)
{
	return h->serializer.journal.fd >= 0;
}

/* On a failure the journal that is in use stays in use. */
static int renew(struct handover *h, uint64_t generation)
{
	struct serialize_head head = { .next_buffer = h->catalog->next_buffer,
				       .next_lease = h->catalog->next_lease,
				       .next_pool = h->pools->last_id + 1 };
	struct serializer fresh;
	int r;

	memcpy(head.daemon, h->id, sizeof(head.daemon));
	r = serializer_init(&fresh, &h->store, generation, &head);
	if (r == 0)
		r = serialize_catalog(&fresh, h->catalog);
	if (r == 0)
		r = serialize_refusals(&fresh, h->refusals);
	if (r == 0)
		r = serialize_restarts(&fresh, &h->catalog->restarts);
	if (r == 0)
		r = serialize_complete(&fresh);
	if (r < 0) {
		log_error_id(LOG_ID_STATE_NOT_WRITTEN, "no new journal can be written: %s",
			     strerror(-r));
		serializer_done(&fresh);
		return r;
	}
	serializer_done(&h->serializer);
	h->serializer = fresh;
	h->lost_written = h->catalog->restarts.lost;
	list_insert(&h->catalog->observers, &h->serializer.observer.link);
	return 0;
}

/* ---- the start ---- */

/* A page that can't be used has another version: its readers learn nothing more from it, and get
 * the new one with their next connection. */
static int adopt_page(struct handover *h)
{
	_cleanup_(close_fd) int fd = fdstore_take(&h->store, PAGE_NAME);
	int r = fd < 0 ? -ENOENT : status_page_adopt(&fd, &h->page);

	if (r == 0)
		return 0;
	if (r != -ENOENT) {
		log_error_id(LOG_ID_STATE_NOT_READ,
			     "the kept status page can't be used: %s; clients see what happens to "
			     "their buffers when they connect again",
			     strerror(-r));
		fdstore_forget(&h->store, PAGE_NAME);
	}
	r = status_page_new(&h->page);
	return r < 0 ? r : fdstore_keep(&h->store, PAGE_NAME, h->page.fd);
}

static void mark_pages(struct fd_indices *indices, const struct stream *s)
{
	fd_indices_mark(indices, s->head->fd_index);
	fd_indices_mark(indices, s->group->fd_index);
	for (uint32_t i = 0; i < s->words.shape.readers; i++)
		if (s->readers[i].page)
			fd_indices_mark(indices, s->readers[i].page->fd_index);
}

static void mark_indices(struct handover *h)
{
	struct buffer *b;

	list_foreach (b, &h->catalog->buffers, all_link) {
		fd_indices_mark(&h->store.buffers, b->fd_index);
		if (h->store.systemd && b->fd_index < FD_INDEX_KEPT && !buffer_is_kept(b))
			buffer_take_place(b, UINT64_MAX);
		if (b->stream)
			mark_pages(&h->store.pages, b->stream);
	}
}

/* systemd's copy of a mempool's fd would keep the memory from the driver. */
static void on_swept(const struct pool *pool, void *arg)
{
	struct handover *h = arg;

	serialize_forget_pool(&h->store, pool);
}

int handover_adopt(struct handover *h)
{
	uint64_t generation = 0;
	size_t dropped;
	int r = adopt_page(h);

	if (h->store.systemd) {
		h->catalog->accounts.budgets[ACCOUNT_KEPT].total = FD_INDEX_KEPT;
		h->catalog->accounts.budgets[ACCOUNT_KEPT_PIDS].total = FD_PIDFDS_KEPT;
		h->catalog->accounts.budgets[ACCOUNT_KEPT_PAGES].total = FD_PAGES_KEPT;
	}

	/* If we die before there is another journal, this one names the fds that are of no use. */
	h->store.holds = true;
	if (r == 0)
		r = deserialize(&h->store, h->catalog, h->reaper, h->pools, h->refusals, h->id,
				&generation);
	if (r < 0)
		return r;
	catalog_adopt_page(h->catalog, &h->page);
	mark_indices(h);
	/* They belong to a buffer that was not in the journal yet, or the journal is of no use. */
	dropped = fdstore_drop_rest(&h->store);
	if (dropped)
		log_notice("%zu file descriptors that were kept are dropped: no journal names "
			   "them",
			   dropped);
	pools_sweep(h->pools, on_swept, h);
	r = h->store.systemd ? renew(h, generation + 1) : 0;
	h->store.holds = false;
	fdstore_tell(&h->store);
	/* Only now, so that systemd forgets the fds of what is freed. */
	if (r == 0)
		catalog_free_unused(h->catalog);
	return r;
}

/* ---- in between ---- */

void handover_add_pool(struct handover *h, const struct pool *pool)
{
	/* An adopted one has been in the journal since handover_adopt(), and systemd has its fd. */
	if (pool->state == POOL_RETIRED)
		return;
	if (is_writing(h) && serialize_pool(&h->serializer, pool) < 0)
		log_error_id(LOG_ID_STATE_NOT_WRITTEN, "pool \"%s\" would not survive a restart",
			     pool->config.name);
}

static void write_counts(struct handover *h)
{
	const struct restarts *restarts = &h->catalog->restarts;

	if (is_writing(h) && h->refusals->changed)
		serialize_refusals(&h->serializer, h->refusals);
	if (is_writing(h) && h->lost_written != restarts->lost &&
	    serialize_restarts(&h->serializer, restarts) == 0)
		h->lost_written = restarts->lost;
}

void handover_tidy(struct handover *h)
{
	fdstore_tell(&h->store);
	write_counts(h);
	if (is_writing(h) && serialize_is_stale(&h->serializer))
		renew(h, h->serializer.journal.generation + 1);
	pools_sweep(h->pools, on_swept, h);
}

/* ---- the end ---- */

/* Without a serializer nobody gave fd indices back: they are counted anew. */
static int begin_late(struct handover *h)
{
	int r = fdstore_reset_indices(&h->store);

	if (r < 0)
		return r;
	mark_indices(h);
	return renew(h, 1);
}

uint32_t handover_version(const struct handover *h, char *ret_why, size_t size)
{
	const struct catalog *c = h->catalog;
	const struct buffer *b;
	unsigned evicted = 0;

	list_foreach (b, &c->buffers, all_link)
		evicted += b->evicted;
	if (evicted == 0 && c->n_away == 0)
		return JOURNAL_VERSION;
	snprintf(ret_why, size,
		 "there are evicted buffers (%u: gpushmctl promote) or suspended opens (%u: "
		 "gpushmctl ls --holders), which no gpushmd before 0.3 can take over",
		 evicted, c->n_away);
	return JOURNAL_VERSION_AWAY;
}

int handover_list(struct handover *h, struct fd_list *l)
{
	int r = is_writing(h) ? fdstore_tell(&h->store) : begin_late(h);

	write_counts(h);
	if (r == 0)
		r = fd_list_add(l, PAGE_NAME, h->page.fd);
	return r < 0 ? r : serialize_list_fds(&h->serializer, h->catalog, l);
}

void handover_cancel(struct handover *h)
{
	if (!h->store.systemd)
		serializer_done(&h->serializer);
}

void handover_stop(struct handover *h)
{
	serializer_done(&h->serializer);
	if (!h->store.systemd)
		return;
	h->catalog->page = NULL;
	catalog_keep_memory(h->catalog);
}
