/* SPDX-License-Identifier: MIT
 *
 * The register of what this process has mapped: one entry for each buffer, and for each access and
 * device where the kind of pool distinguishes them. An entry is counted, however often and through
 * whichever connection the buffer is opened. For mempools the driver requires that (a second import
 * has the same address and is not counted); for the others it saves address space.
 *
 * Mapping and unmapping run without the register's lock. An entry is busy meanwhile, and a thread
 * that wants the same entry waits. Such waits can't deadlock: a thread that has made an entry busy
 * waits for no other.
 */
#include "client/lib/map/map.h"

#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/base/process.h"
#include "proto/base/own.h"

#include <string.h>

#define MAP_OF(name, NAME, number, ...) [number] = &map_##name,
static const struct map_kind *const map_kinds[] = { ALL_KINDS(MAP_OF) };

static struct map_private *entry_new(const struct map_kind *kind, const struct map_request *r,
				     int owner, int device)
{
	struct map_private *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->map.priv = p;
	p->map.device = owner;
	p->kind = kind;
	p->refs = p->used = 1;
	p->busy = true;
	memcpy(p->daemon, r->pool->daemon, sizeof(p->daemon));
	p->buffer = r->buffer;
	p->copy_on_write = r->copy_on_write;
	p->to_fill_from = r->to_fill_from;
	p->write = r->write || r->copy_on_write || !kind->knows_access;
	p->map.writable = p->write;
	p->device = device;
	p->used_from = device < 0 ? 0 : 1ull << device;
	p->bytes = r->allocated_bytes;
	p->numa_node = r->pool->numa_node;
	return p;
}

static bool same(const struct map_private *a, const struct map_private *b)
{
	return a->buffer == b->buffer && a->kind == b->kind && a->write == b->write &&
	       !a->copy_on_write && !b->copy_on_write && a->to_fill_from == b->to_fill_from &&
	       (a->device == b->device || !a->kind->knows_device) &&
	       memcmp(a->daemon, b->daemon, sizeof(a->daemon)) == 0;
}

/* Under the lock. The caller has a reference. */
static void await_idle(struct process *self, const struct map_private *p)
{
	while (p->busy)
		pthread_cond_wait(&self->map_changed, &self->map_lock);
}

/* Returns the entry of that key, or NULL; waits while the entry is busy. Under the lock. */
static struct map_private *find(struct process *self, const struct map_private *key)
{
	struct map_private *p = self->maps;

	while (p) {
		if (!same(p, key)) {
			p = p->next;
			continue;
		}
		if (!p->busy)
			return p;
		pthread_cond_wait(&self->map_changed, &self->map_lock);
		p = self->maps; /* p may have been freed */
	}
	return NULL;
}

static void remove_entry(struct process *self, struct map_private *p)
{
	struct map_private **at = &self->maps;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free(p);
}

/* Takes a reference on an existing entry, else inserts `fresh`. Returns the entry. *ret_busy: the
 * caller is to map it. */
static struct map_private *find_or_insert(struct process *self, struct map_private *fresh,
					  bool *ret_busy)
{
	struct map_private *found;

	lock_guard(&self->map_lock, LOCK_MAPS);
	found = find(self, fresh);
	if (found) {
		found->refs++;
		found->used++;
		found->used_from |= fresh->used_from;
		found->busy = !found->mapped;
	} else {
		fresh->next = self->maps;
		self->maps = found = fresh;
	}
	*ret_busy = found->busy;
	return found;
}

/* Ends an entry's busy time. Without a reference it is removed. */
static void settle(struct process *self, struct map_private *p, bool mapped)
{
	lock_guard(&self->map_lock, LOCK_MAPS);
	p->mapped = mapped;
	p->busy = false;
	if (p->refs == 0)
		remove_entry(self, p);
	pthread_cond_broadcast(&self->map_changed);
}

/* Maps a busy entry, of which the caller has `refs` new references; after an error it has none. */
static int map_busy(struct process *self, struct map_private *p, const struct map_request *r,
		    unsigned refs)
{
	int result;

	lock_assert_none_from(LOCK_MAPS);
	p->shared = 0;
	result = p->kind->map(r, p);
	if (result < 0) {
		p->refs -= refs;
		p->used--;
	}
	settle(self, p, result == 0);
	return result;
}

/* Gives up `refs` references and `used` uses. The last use unmaps the memory; the last reference
 * gives up the addresses, too. */
static int let_go(struct process *self, struct map_private *p, unsigned refs, unsigned used)
{
	bool ends, unmaps;
	int r;

	lock_take(&self->map_lock, LOCK_MAPS);
	await_idle(self, p);
	p->refs -= refs;
	p->used -= used;
	ends = p->refs == 0;
	unmaps = p->used == 0 && p->mapped;
	p->busy = ends || unmaps;
	lock_drop(&self->map_lock);
	if (!ends && !unmaps)
		return 0;
	r = p->kind->unmap(p, !ends);
	if (r < 0 && !ends)
		p->used += used;
	settle(self, p, r < 0 && unmaps);
	return r;
}

int map_acquire(const struct map_request *r, struct map **ret, int *ret_device)
{
	const struct map_kind *kind = map_kinds[r->pool->kind];
	struct map_private *fresh, *p;
	struct process *self = process();
	int owner = -1, device, result;
	bool busy;

	if (!self)
		return error_set(ENOMEM, "out of memory for a map");
	if (r->copy_on_write && !kind->knows_copy_on_write)
		return error_set(ENOTSUP, "only host memory can be opened copy-on-write, and its "
					  "pool is of GPU or pinned memory: open it for reading, "
					  "and copy what is to be changed");
	result = kind->prepare(r, &owner, &device);
	if (result < 0)
		return result;
	fresh = entry_new(kind, r, owner, device);
	if (!fresh)
		return error_set(ENOMEM, "out of memory for a map");
	p = find_or_insert(self, fresh, &busy);
	if (p != fresh)
		free(fresh);
	if (busy)
		result = map_busy(self, p, r, 1);
	if (result < 0)
		return result;
	*ret = &p->map;
	*ret_device = device;
	return 0;
}

int map_release(struct map *m)
{
	if (!m)
		return 0;
	/* After a GPU fault waiting fails; only the result of unmap is returned. */
	map_synchronize(m);
	return let_go(process(), m->priv, 1, 1);
}

int map_release_suspended(struct map *m)
{
	return let_go(process(), m->priv, 1, 0);
}

int map_suspend(struct map *m)
{
	return let_go(process(), m->priv, 0, 1);
}

uint64_t map_buffer(const struct map *m)
{
	struct process *self = process();

	lock_guard(&self->map_lock, LOCK_MAPS);
	return m->priv->used ? m->priv->buffer : 0;
}

int map_resume(struct map *m, const struct map_request *r)
{
	struct process *self = process();
	struct map_private *p = m->priv;
	bool busy, differs;

	lock_take(&self->map_lock, LOCK_MAPS);
	await_idle(self, p);
	differs = p->used > 0 && p->buffer != r->buffer;
	p->buffer = differs ? p->buffer : r->buffer;
	p->used += !differs;
	busy = p->busy = !p->mapped;
	lock_drop(&self->map_lock);
	return differs ? -EAGAIN : busy ? map_busy(self, p, r, 0) : 0;
}

/* The driver keeps its mappings from a child, or does not unmap them there. */
void map_release_inherited(struct map *m)
{
	struct map_private *p = m->priv;

	if (--p->refs == 0 && p->kind->is_inherited)
		p->kind->unmap(p, false);
}

uint64_t map_bytes(const struct map *m)
{
	return m->priv->bytes;
}

/* Nobody else changes the entry, which the caller uses, until settle(). */
static void make_busy(struct process *self, struct map_private *p)
{
	lock_guard(&self->map_lock, LOCK_MAPS);
	await_idle(self, p);
	p->busy = true;
}

int map_protect(struct map *m)
{
	struct process *self = process();
	struct map_private *p = m->priv;
	int r;

	if (!p->kind->knows_access || !m->writable)
		return 0;
	make_busy(self, p);
	r = p->kind->protect(p);
	if (r == 0) {
		lock_guard(&self->map_lock, LOCK_MAPS);
		m->writable = false;
		p->write = false; /* From now on this map serves opens for reading. */
	}
	settle(self, p, p->mapped);
	return r;
}

int map_share(struct map *m, int device)
{
	struct process *self = process();
	struct map_private *p = m->priv;
	int r = 0;

	if (!p->kind->share)
		return error_set(ENODEV, "GPU %d can't use memory of the host's alone", device);
	if (m->device >= 0 && m->device != device)
		r = context_check_peer(m->device, device);
	if (r < 0)
		return r;
	make_busy(self, p);
	if (!(p->shared & 1ull << device))
		r = p->kind->share(p, device);
	if (r == 0)
		p->shared |= 1ull << device;
	settle(self, p, p->mapped);
	return r;
}

int map_synchronize(struct map *m)
{
	int result = 0;

	lock_assert_none_from(LOCK_CONNECTION);
	for (uint64_t left = m->priv->used_from; left; left &= left - 1) {
		int r = context_synchronize(__builtin_ctzll(left));

		result = result < 0 ? result : r;
	}
	return result;
}

int map_fill(struct map *to, const struct map *from, uint64_t bytes)
{
	const struct map_copy copy = { .device = to->device_ptr,
				       .host = from->device_ptr,
				       .width = bytes,
				       .height = 1,
				       .on_device = true };
	_cleanup_(map_leave) struct map_entered entered;
	int r = map_enter(to->device, &entered);

	if (r == 0)
		r = map_copy(&copy, NULL);
	return r < 0 ? r : map_wait(NULL);
}

/* ---- connections ---- */

void map_begin(void)
{
	struct process *p = process();

	lock_guard(&p->context_lock, LOCK_CONTEXTS);
	p->connections++;
}

/* Every user of a context has a buffer, and every buffer holds its connection. */
void map_end(void)
{
	struct process *p = process();

	lock_guard(&p->context_lock, LOCK_CONTEXTS);
	if (--p->connections == 0 && p->has_contexts) {
		context_release_all();
		p->has_contexts = false;
	}
}
