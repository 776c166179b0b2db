/* SPDX-License-Identifier: MIT
 *
 * The memory of a buffer that was evicted: one process of its user makes it again. It creates a
 * buffer of the same pool, fills it with the twin's bytes, or loads the source, and publishes it in
 * the evicted one's place. That buffer has a name that follows from the other's id, so that of all
 * processes which want the memory one copies and the others wait; if it dies, another one copies.
 *
 * What reads files and compares digests is libgpushm-load's, which says so when it is loaded.
 */
#include "client/gpushm_memory.h"
#include "client/gpushm_private.h"
#include "client/lib/base/error.h"
#include "client/lib/buffer/buffer.h"
#include "client/lib/link/request.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Another thread's request may wait on the connection, for the memory that this gives back: then
 * another connection says it. */
int buffer_tell_away(struct gpushm_buffer *b)
{
	Gpushm__Proto__Suspend suspend = GPUSHM__PROTO__SUSPEND__INIT;
	struct gpushm *c = b->connection, *other = NULL;
	int r;

	SET(&suspend, lease, b->lease.id);
	r = request_ack_unless_busy(c, request_with(SUSPEND, suspend, &suspend));
	if (r != -EBUSY)
		return r;
	if (gpushm_connect(c->path, &other) == 0)
		r = request_ack(other, request_with(SUSPEND, suspend, &suspend));
	gpushm_disconnect(other);
	return r == 0 ? 0 : request_ack(c, request_with(SUSPEND, suspend, &suspend));
}

struct resumption {
	struct gpushm_buffer *buffer;
	uint64_t allocated_bytes, to;
	int *fd; /* stays -1 where the buffer is evicted */
};

static bool fits(const struct resumption *r, const Gpushm__Proto__Attach *a)
{
	const struct gpushm_buffer *b = r->buffer;

	return a->has_buffer && a->size_bytes == b->bytes && a->digest == b->digest &&
	       a->allocated_bytes == r->allocated_bytes && a->pool == b->pool->id && !a->pool_fd &&
	       !a->table_fd && (int)a->access == (int)b->access;
}

/* A thread may read the buffer's word: it never takes the cell of the one for the other's. */
static int read_resumed(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__Attach *a = reply->attach;
	const struct resumption *r = to;
	struct gpushm_buffer *b = r->buffer;
	enum gpushm_state state;

	if (!fits(r, a) || decode_state(a->has_state, (int)a->state, &state) < 0)
		return error_set(EPROTO, "the daemon's attach makes no sense: another buffer");
	b->lease.cell = NULL;
	b->id = a->buffer;
	b->lease.cell = status_map_cell(c->pages, a->has_slot ? a->slot : STATUS_PAGE_NONE);
	b->state = state;
	b->pages = a->memory;
	b->uid = a->uid;
	b->dirty = a->dirty;
	if (a->memory_fd)
		*r->fd = take_fd(&c->frame.fds[0]);
	return 0;
}

/* How long the reply may take. request_read_within() has another word for ever; and an open's
 * timeout is for what it waits for, as with its first request. */
static uint64_t left_of(const struct gpushm_buffer *b, uint64_t deadline)
{
	uint64_t ms = clock_left_ms(deadline);

	return deadline == UINT64_MAX || !b->suspended ? 0 : ms + (ms == 0);
}

static int ask_back(struct gpushm_buffer *b, uint64_t deadline, struct resumption *r)
{
	Gpushm__Proto__Resume resume = GPUSHM__PROTO__RESUME__INIT;

	SET(&resume, lease, b->lease.id);
	SET_SOME(&resume, buffer, r->to);
	if (r->to == 0)
		SET(&resume, name, connection_bytes(b->name));
	return request_read_within(b->connection, left_of(b, deadline),
				   request_with(RESUME, resume, &resume), read_resumed, r);
}

/* ---- the copy ---- */

static int open_twin(struct gpushm_buffer *b, uint32_t flags, struct gpushm_buffer **ret)
{
	const struct gpushm_open_options o = { .device = GPUSHM_CURRENT_DEVICE, .flags = flags };
	Gpushm__Proto__Open open = GPUSHM__PROTO__OPEN__INIT;

	SET(&open, twin_of, b->lease.id);
	SET(&open, access, GPUSHM__PROTO__ACCESS__ACCESS_READ);
	return buffer_open(b->connection, b->name, request_with(OPEN, open, &open), &o, ret);
}

static int read_nothing(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	return 0;
}

enum purpose { TO_RESTORE, TO_BE_TWIN };

/* `fresh` is filled with the buffer's bytes. */
static int hand_over(struct gpushm_buffer *fresh, const struct gpushm_buffer *b,
		     enum purpose purpose)
{
	Gpushm__Proto__Publish publish = GPUSHM__PROTO__PUBLISH__INIT;
	int r = map_synchronize(fresh->map);

	SET(&publish, lease, fresh->lease.id);
	SET(&publish, state, GPUSHM__PROTO__STATE__STATE_SEALED);
	if (purpose == TO_BE_TWIN)
		SET(&publish, twin_of, b->lease.id);
	else
		SET(&publish, restores, b->lease.id);
	return r < 0 ? r
		     : request_read(b->connection, request_with(PUBLISH, publish, &publish),
				    read_nothing, NULL);
}

static const struct gpushm_private_loader *_Atomic loader;
static void (*_Atomic find_loader)(void);

void gpushm_private_set_loader(const struct gpushm_private_loader *l)
{
	loader = l;
}

void gpushm_private_set_loader_finder(void (*find)(void))
{
	find_loader = find;
}

static const struct gpushm_private_loader *get_loader(void)
{
	void (*find)(void) = find_loader;

	if (!loader && find)
		find();
	return loader;
}

/* The table of another generation says nothing of this one's digest and source. */
static bool has_its_table(const struct gpushm_buffer *b)
{
	return b->id == b->table_id;
}

static bool has_attr(const struct gpushm_buffer *b, const char *key)
{
	const void *value;
	size_t size;

	return has_its_table(b) && gpushm_buffer_attr(b, key, &value, &size) == 0;
}

/* Nobody reads it again. Where that can't be said, the next process finds it out, too. */
static void drop_damaged(struct gpushm_buffer *b, const struct gpushm_buffer *twin)
{
	Gpushm__Proto__Suspend suspend = GPUSHM__PROTO__SUSPEND__INIT;

	SET(&suspend, lease, b->lease.id);
	SET(&suspend, damaged_twin, twin->id);
	request_ack(b->connection, request_with(SUSPEND, suspend, &suspend));
}

void buffer_drop_twin(struct gpushm_buffer *b)
{
	error_guard();
	if (b->twin)
		buffer_end(take_ptr(b->twin));
}

/* To map a pinned twin of GiB for a GPU takes long, beside copying it. So it stays mapped for the
 * next time, while b is open, which keeps the twin anyway. But a process with a living import can't
 * be parked. */
static void keep_twin(struct gpushm_buffer *b, struct gpushm_buffer *twin)
{
	buffer_drop_twin(b);
	b->twin = twin;
	if (!kind_of(twin->pool->map.kind)->by_driver || process()->park == 1)
		buffer_drop_twin(b);
}

static int copy_of_twin(struct gpushm_buffer *fresh, struct gpushm_buffer *b)
{
	const struct gpushm_private_loader *l = has_attr(b, "gpushm.content") ? get_loader() : NULL;
	/* Who compares the digest reads the twin by the CPU. */
	uint32_t flags = fresh->map->host_ptr || l ? 0 : BUFFER_TO_FILL_FROM;
	struct gpushm_buffer *twin = NULL;
	struct map_entered entered;
	int r = map_enter(fresh->map->device, &entered); /* the twin is mapped for that GPU */

	if (r == 0)
		r = open_twin(b, flags, &twin);
	if (r == 0 && l)
		r = l->copy(b, twin, fresh);
	else if (r == 0)
		r = twin->map->host_ptr ? gpushm_write(fresh, 0, twin->map->host_ptr, b->bytes)
					: map_fill(fresh->map, twin->map, b->bytes);
	error_guard();
	map_leave(&entered);
	if (r == -EBADMSG && twin)
		drop_damaged(b, twin);
	if (twin && r == 0)
		keep_twin(b, twin);
	else if (twin)
		buffer_end(twin);
	return r;
}

/* r: why the twin was not copied. */
static int load_source(struct gpushm_buffer *fresh, struct gpushm_buffer *b, int r)
{
	const struct gpushm_private_loader *l = NULL;
	struct error why;
	bool has_path;
	int loaded;

	error_keep(&why);
	has_path = has_attr(b, "gpushm.path");
	if (has_path)
		l = get_loader();
	loaded = l ? l->load(b->connection, b, fresh, b->load_until) : -ENOENT;
	if (loaded != -ENOENT)
		return loaded;
	error_put_back(&why);
	if (r != -ENOENT)
		return r;
	return has_path && !l ? buffer_error(b, ENODATA,
					     "it is evicted, and libgpushm-load, which this "
					     "program does not have, loads it again: gpushmctl "
					     "promote %s",
					     b->name)
			      : buffer_error(b, ENODATA,
					     "it is evicted, its twin is gone, and it has no "
					     "source: its bytes are lost, make it again");
}

static int fill(struct gpushm_buffer *fresh, struct gpushm_buffer *b)
{
	int r = copy_of_twin(fresh, b);

	return r == -ENOENT || r == -EBADMSG ? load_source(fresh, b, r) : r;
}

/* Copies into a new buffer, which ends here: its memory is the daemon's, or nobody's. wait_ms: for
 * room in the pool. *ret_again: the daemon died before it had it. */
static int copy_once(struct gpushm_buffer *b, const char *name, const char *pool, uint64_t wait_ms,
		     enum purpose purpose, bool *ret_again)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .pool = pool,
					   .wait_ms = wait_ms,
					   .flags = GPUSHM_TRANSIENT };
	struct gpushm_buffer *fresh = NULL;
	int r = gpushm_create(b->connection, name, b->bytes, &o, &fresh);

	*ret_again = false;
	if (r < 0)
		return r;
	if (purpose == TO_RESTORE)
		r = fill(fresh, b);
	else if (fresh->map->host_ptr)
		r = gpushm_read(b, 0, fresh->map->host_ptr, b->bytes);
	else
		r = buffer_error(b, ENOTSUP,
				 "pool \"%s\" is on a GPU: a twin is in a host or "
				 "pinned pool",
				 fresh->pool->name);
	if (r == 0)
		r = hand_over(fresh, b, purpose);
	*ret_again = r == -EBADF && fresh->lease.lost && !b->lease.lost;
	error_guard();
	buffer_discard(fresh);
	return r;
}

/* -EEXIST: another process does it, or it is a twin that exists. */
static int copy(struct gpushm_buffer *b, const char *name, const char *pool, uint64_t wait_ms,
		enum purpose purpose)
{
	bool again;
	int r;

	do
		r = copy_once(b, name, pool, wait_ms, purpose, &again);
	while (again);
	return r;
}

/* ---- one process of many ---- */

/* Waits are in turns, between which other threads have the connection: the one that suspends what
 * is waited for, or that makes the memory, may be of this process. */
#define TURN_MS 100u

static uint64_t turn_of(uint64_t deadline)
{
	uint64_t left = clock_left_ms(deadline);

	return left < TURN_MS ? left : TURN_MS;
}

/* Opens it for a moment. *ret_id: which buffer it was. */
static int wait_for(struct gpushm_buffer *b, const char *name, uint64_t deadline, uint64_t *ret_id)
{
	struct gpushm_buffer *there = NULL;
	int r = buffer_open_name(b->connection, name, GPUSHM_READ, turn_of(deadline),
				 BUFFER_OPEN_WHILE_FILLING, NULL, &there);

	*ret_id = r == 0 ? there->id : 0;
	if (r == 0)
		buffer_end(there);
	return r;
}

/* The daemon lets another user's process wait until one of the owner has brought the memory back.
 */
static int wait_for_owner(struct gpushm_buffer *b, uint64_t deadline)
{
	uint64_t id;
	int r = wait_for(b, b->name, deadline, &id);

	return r == 0 && id != b->id
		       ? buffer_error(b, ENODATA, "it is evicted, and its name another buffer's")
		       : r;
}

/* -ENOENT: it has no name any more. -EAGAIN: another process restores it, or fills what has its
 * name now. -ERESTART: its name is another buffer's, and it is this one that was asked for. */
static int restore_by_open(struct gpushm_buffer *b, bool this_one, uint64_t deadline,
			   struct gpushm_buffer **ret)
{
	int r = gpushm_open(b->connection, b->name, GPUSHM_READ, 0, NULL, ret);

	if (r == -ENOSPC)
		poll(NULL, 0, (int)turn_of(deadline)); /* for which other threads may suspend */
	return r == 0 && this_one && (*ret)->id != b->id ? -ERESTART : r;
}

/* *ret: keeps the memory until the lease has it; or NULL. */
static int restore(struct gpushm_buffer *b, bool this_one, uint64_t deadline,
		   struct gpushm_buffer **ret)
{
	char name[64];
	uint64_t id;
	int r;

	if (b->uid != b->own_uid)
		return wait_for_owner(b, deadline);
	snprintf(name, sizeof(name), "~/.restore-%" PRIu64, b->id);
	r = has_its_table(b) ? -ENOENT : restore_by_open(b, this_one, deadline, ret);
	if (r == -ENOENT)
		r = copy(b, name, b->pool->name, turn_of(deadline), TO_RESTORE);
	if (r != -EEXIST && r != -EAGAIN)
		return r;
	r = wait_for(b, name, deadline, &id);
	return r == -ENOENT || r == -EACCES ? 0 : r;
}

/* Another process has brought nothing back until then. */
static int is_late(const struct gpushm_buffer *b, uint64_t timeout_ms)
{
	char text[512];

	if (timeout_ms == 0)
		return buffer_error(b, EAGAIN,
				    "it is evicted, and another process brings it back: wait for "
				    "it with a timeout");
	snprintf(text, sizeof(text), "buffer \"%s\": another process did not bring it back in time",
		 b->name);
	return error_set_remote(CODE_TIMED_OUT, text, strlen(text));
}

int buffer_bring_back(struct gpushm_buffer *b, uint64_t allocated_bytes, uint64_t to,
		      uint64_t timeout_ms, int *ret_fd)
{
	struct resumption back = { b, allocated_bytes, to, ret_fd };
	uint64_t deadline = clock_deadline(timeout_ms);
	struct gpushm_buffer *there = NULL;
	bool restored = false;
	int r;

	/* Without a timeout nobody else is waited for, but the work is done. */
	b->load_until = timeout_ms ? deadline : UINT64_MAX;
	while ((r = ask_back(b, deadline, &back)) == 0 && *ret_fd < 0) {
		if (there)
			buffer_end(take_ptr(there));
		if (restored && clock_left_ms(deadline) == 0)
			r = -EAGAIN; /* it was evicted again each time */
		else
			r = restore(b, to != 0, deadline, &there);
		restored |= r == 0;
		if (r < 0 && !((r == -ENOSPC || r == -ETIMEDOUT) && clock_left_ms(deadline) > 0))
			break;
	}
	if (r == -EAGAIN)
		r = is_late(b, timeout_ms);
	error_guard();
	if (there)
		buffer_end(there);
	if (r < 0 && restored)
		buffer_tell_away(b); /* it is mapped, for the daemon, since it was restored */
	return r;
}

int gpushm_make_twin(struct gpushm *c, const char *name, const char *pool)
{
	struct gpushm_buffer *b = NULL;
	char twin[64];
	int r = gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b), closed;

	if (r < 0)
		return r;
	snprintf(twin, sizeof(twin), "~/.twin-%" PRIu64, b->id);
	r = copy(b, twin, pool, 0, TO_BE_TWIN);
	closed = gpushm_close(b);
	return r < 0 ? r : closed;
}

/* ---- what has a source ---- */

int buffer_check_source(struct gpushm *c, const char *name, uint64_t *ret_id)
{
	const struct gpushm_open_options as_table = { .struct_size = sizeof(as_table),
						      .flags = GPUSHM_TABLE };
	const struct gpushm_private_loader *l = get_loader();
	struct gpushm_buffer *b = NULL;
	int r = l ? gpushm_open(c, name, GPUSHM_READ, 0, &as_table, &b) : -ENOENT;

	if (r < 0)
		return r;
	*ret_id = b->id;
	r = l->load(c, b, NULL, UINT64_MAX);
	error_guard();
	buffer_end(b);
	return r;
}
