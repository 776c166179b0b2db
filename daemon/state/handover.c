/* SPDX-License-Identifier: MIT
 *
 * From one daemon to the next. A new journal is written whole before the old one is forgotten, at
 * the start and whenever most of the old one says only what is over; so there is a good one at any
 * moment. Where nobody keeps fds there is none, for it would be written for nobody; but for a
 * planned restart one is written, whole, just before.
 */
#include "daemon/state/handover.h"

#include "daemon/state/restore.h"
#include "daemon/state/verify.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"

#include <string.h>

#define BOARD_NAME "b0" /* of its fd, with whoever keeps it */

int handover_open(struct handover *e, struct catalog *catalog, struct reaper *reaper,
		  struct pools *pools, unsigned char id[DAEMON_ID_BYTES])
{
	int r;

	*e = (struct handover){ .catalog = catalog, .reaper = reaper, .pools = pools, .id = id };
	e->archive.journal = JOURNAL_NONE;
	e->page = STATUS_PAGE_CLOSED;
	r = fdstore_open(&e->store);
	return r < 0 ? r : fd_index_init(&e->slots);
}

void handover_close(struct handover *e)
{
	archive_done(&e->archive);
	status_page_done(&e->page);
	fd_index_done(&e->slots);
	fdstore_close(&e->store);
}

static struct archive_head head_of(const struct handover *e)
{
	struct archive_head head = { .next_buffer = e->catalog->next_buffer,
				     .next_lease = e->catalog->next_lease,
				     .next_pool = e->pools->last_id + 1 };

	memcpy(head.daemon, e->id, sizeof(head.daemon));
	return head;
}

/* On a failure the journal that is in use goes on. */
static int renew(struct handover *e, uint64_t generation)
{
	struct archive_head head = head_of(e);
	struct archive fresh;
	int r = archive_init(&fresh, &e->store, &e->slots, generation, &head);

	if (r == 0)
		r = catalog_archive(e->catalog, &fresh);
	if (r == 0)
		r = archive_complete(&fresh);
	if (r < 0) {
		log_error("no new journal can be written: %s", strerror(-r));
		archive_done(&fresh);
		return r;
	}
	archive_done(&e->archive);
	e->archive = fresh;
	e->catalog->archive = &e->archive;
	return 0;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void go_on_from(struct handover *e, const struct archive_head *head)
{
	struct catalog *c = e->catalog;

	memcpy(e->id, head->daemon, DAEMON_ID_BYTES);
	/* Both start at the clock, so they are later unless the clock was set back. */
	c->next_buffer = later(c->next_buffer, head->next_buffer);
	c->next_lease = later(c->next_lease, head->next_lease);
	e->pools->last_id = (uint32_t)later(e->pools->last_id + 1, head->next_pool) - 1;
}

/* One that can't be used is another version's: who reads it is told nothing more, and finds the new
 * one with its next connection. */
static int take_board(struct handover *e)
{
	_cleanup_(close_fd) int fd = fdstore_take(&e->store, BOARD_NAME);
	int r = fd < 0 ? -ENOENT : status_page_adopt(&fd, &e->page);

	if (r == 0)
		return 0;
	if (r != -ENOENT) {
		log_error("the board that was kept can't be used: %s; clients see what happens to "
			  "their buffers when they connect again",
			  strerror(-r));
		fdstore_forget(&e->store, BOARD_NAME);
	}
	r = status_page_new(&e->page);
	return r < 0 ? r : fdstore_keep(&e->store, BOARD_NAME, e->page.fd);
}

/* A mempool's memory is the driver's again when the last copy of its fd is closed: its keeper's,
 * too. */
static void on_swept(const struct pool *pool, void *arg)
{
	struct handover *e = arg;

	archive_forget_pool(&e->store, pool);
}

/* Of a buffer that was not in the journal yet, or of a journal that is of no use. */
static void tell_dropped(size_t n)
{
	if (n)
		log_notice("%zu file descriptors that were kept are dropped: no journal speaks of "
			   "them",
			   n);
}

int handover_adopt(struct handover *e)
{
	struct restored was = { 0 };
	int r = take_board(e);

	if (r == 0)
		r = restore(&e->store, e->catalog, e->reaper, e->pools, &was);
	if (r < 0)
		return r;
	e->catalog->page = &e->page;
	catalog_adopt_page(e->catalog);
	if (was.any)
		go_on_from(e, &was.head);
	catalog_take_slots(e->catalog, &e->slots);
	tell_dropped(fdstore_drop_rest(&e->store));
	pools_sweep(e->pools, on_swept, e);
	r = e->store.systemd ? renew(e, was.any ? was.generation + 1 : 1) : 0;
	/* Not before: what goes now is to be forgotten by who keeps its fds. */
	if (r == 0)
		catalog_free_unused(e->catalog);
	return r;
}

void handover_add_pool(struct handover *e, const struct pool *pool)
{
	/* It stands in the journal since handover_adopt(), and its keeper has its fd. */
	if (pool->state == POOL_INHERITED)
		return;
	if (e->catalog->archive && archive_pool(&e->archive, pool) < 0)
		log_error("pool \"%s\" would not survive a restart", pool->config.name);
}

/* Without an archive nobody gave numbers back. */
static int begin_late(struct handover *e)
{
	int r;

	fd_index_done(&e->slots);
	r = fd_index_init(&e->slots);
	if (r < 0)
		return r;
	catalog_take_slots(e->catalog, &e->slots);
	return renew(e, 1);
}

int handover_list(struct handover *e, struct fd_list *m)
{
	int r = e->catalog->archive ? 0 : begin_late(e);

	if (r == 0)
		r = fd_list_add(m, BOARD_NAME, e->page.fd);
	if (r == 0)
		r = archive_list(&e->archive, m);
	return r < 0 ? r : catalog_list(e->catalog, m);
}

void handover_cancel(struct handover *e)
{
	if (e->store.systemd)
		return;
	e->catalog->archive = NULL;
	archive_done(&e->archive);
}

void handover_verify(struct handover *e)
{
	verify_start(e->pools, e->catalog);
}

void handover_tidy(struct handover *e)
{
	if (e->catalog->archive && archive_is_stale(&e->archive))
		renew(e, e->archive.journal.generation + 1);
	pools_sweep(e->pools, on_swept, e);
}
