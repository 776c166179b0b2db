/* SPDX-License-Identifier: MIT
 *
 * What the catalog leaves to the next daemon: everything that is published, as records of an
 * archive, or as fds of a manifest.
 */
#include "daemon/catalog/catalog.h"

void catalog_take_slots(const struct catalog *c, struct fd_index *slots)
{
	const struct buffer *b;

	list_foreach (b, &c->buffers, all_link)
		fd_index_mark(slots, b->fd_index);
	fd_index_settle(slots);
}

int catalog_archive(const struct catalog *c, struct archive *a)
{
	struct buffer *b;
	const struct pool *pool;
	const struct lease *l;
	int r = 0;

	list_foreach (pool, c->pools, link)
		if (r == 0)
			r = archive_pool(a, pool);
	list_foreach (b, &c->buffers, all_link) {
		if (r < 0 || b->state == BUFFER_FILLING)
			continue;
		r = archive_buffer(a, b);
		list_foreach (l, &b->leases, buffer_link)
			if (r == 0)
				r = archive_lease(a, l);
	}
	return r;
}

/* Each once, whatever it holds. */
static int list_processes(const struct catalog *c, struct fd_list *m)
{
	const struct buffer *b;
	const struct lease *l;
	int r = 0;

	list_foreach (b, &c->buffers, all_link)
		list_foreach (l, &b->leases, buffer_link)
			l->process->listed = !process_needs_pidfd(l->process);
	list_foreach (b, &c->buffers, all_link) {
		list_foreach (l, &b->leases, buffer_link) {
			if (r == 0 && !l->process->listed)
				r = archive_list_process(l->process, m);
			l->process->listed = true;
		}
	}
	return r;
}

int catalog_list(const struct catalog *c, struct fd_list *m)
{
	const struct buffer *b;
	const struct pool *pool;
	int r = 0;

	list_foreach (pool, c->pools, link)
		if (r == 0)
			r = archive_list_pool(pool, m);
	list_foreach (b, &c->buffers, all_link)
		if (r == 0 && b->state != BUFFER_FILLING)
			r = archive_list_buffer(b, m);
	return r < 0 ? r : list_processes(c, m);
}

void catalog_keep_memory(struct catalog *c)
{
	struct buffer *b;

	list_foreach (b, &c->buffers, all_link)
		b->keep_memory = b->state != BUFFER_FILLING;
}
