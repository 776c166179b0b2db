/* SPDX-License-Identifier: MIT
 *
 * What a buffer is and what it can be asked: the numbers that it was opened with, its table and
 * attributes, and its status word, which gpushm_buffer_wait() sleeps on. None of this makes a
 * request.
 *
 * The table of an opened buffer is the daemon's and never changes. While a buffer is being filled,
 * its creator's table grows: a lookup makes the image anew if arrays were added since. Attributes
 * are set at create and must not move with the table, so they have an image of their own.
 *
 * A forked child has its parent's mappings of the host's memory, which it may use, read the table
 * and close; the lease stays the parent's. A GPU's mapping does not survive the fork: no address.
 */
#include "client/lib/buffer/buffer.h"

#include "client/gpushm_array.h"
#include "client/gpushm_private.h"
#include "client/lib/base/locks.h"
#include "client/lib/link/hello.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/userns.h"

#include <inttypes.h>

#define NAP_MS 1000u

_Static_assert(GPUSHM_NOTICE_SEALED == STATUS_PAGE_SEALED &&
		       GPUSHM_NOTICE_SHARED == STATUS_PAGE_SHARED &&
		       GPUSHM_NOTICE_DIRTY == STATUS_PAGE_DIRTY &&
		       GPUSHM_NOTICE_UNLINKED == STATUS_PAGE_UNLINKED &&
		       GPUSHM_NOTICE_GONE == STATUS_PAGE_GONE,
	       "the word's flags are the public ones");

void client_buffer_free(struct gpushm_buffer *b)
{
	if (!b)
		return;
	buffer_drop_twin(b);
	lock_take(&b->connection->lock, LOCK_CONNECTION);
	list_drop(&b->lease.link);
	lock_drop(&b->connection->lock);
	table_builder_free(b->builder);
	image_done(&b->table);
	image_done(&b->attrs);
	close_fd(&b->memory);
	pthread_mutex_destroy(&b->lock);
	pthread_mutex_destroy(&b->changing);
	connection_unref(b->connection);
	free(b);
}

struct gpushm_buffer *client_buffer_new(struct gpushm *c, const char *name)
{
	struct gpushm_buffer *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->connection = connection_ref(c);
	b->table = b->attrs = IMAGE_NONE;
	b->memory = -1;
	pthread_mutex_init(&b->lock, NULL);
	pthread_mutex_init(&b->changing, NULL);
	list_init(&b->lease.link);
	strncpy(b->created_name, name, sizeof(b->created_name) - 1);
	b->name = b->created_name;
	return b;
}

int gpushm_private_memory(const struct gpushm_buffer *b)
{
	return b->memory;
}

void buffer_get(struct gpushm_buffer *b)
{
	b->arrays++;
}

int buffer_put(struct gpushm_buffer *b)
{
	if (--b->arrays > 0 || !b->ends_unused || buffer_check(b) < 0)
		return 0;
	return buffer_end(b);
}

int buffer_put_and_close(struct gpushm_buffer *b)
{
	b->ends_unused = true;
	return buffer_put(b);
}

/* ---- status ---- */

int buffer_check_memory(const struct gpushm_buffer *b)
{
	int r = error_null(b, "buffer");

	if (r < 0 || !buffer_is_inherited(b) || !kind_of(b->pool->map.kind)->by_driver)
		return r;
	return buffer_error(b, ECHILD,
			    "it was opened before fork(), which memory of the driver does not "
			    "survive: start the child by exec (Python's spawn or forkserver), and "
			    "open() it there");
}

bool gpushm_private_is_inherited(const struct gpushm_buffer *b)
{
	return buffer_is_inherited(b);
}

uint32_t buffer_word(const struct gpushm_buffer *b)
{
	uint64_t id = b->id;
	const struct status_page_cell *cell = b->lease.cell;
	uint32_t word = cell ? status_page_read(cell, id) : 0;

	if (id != b->id)
		return buffer_word(b);
	if (cell)
		return word;
	return (b->state == GPUSHM_SEALED ? STATUS_PAGE_SEALED : 0) |
	       (b->state == GPUSHM_SHARED ? STATUS_PAGE_SHARED : 0) |
	       (b->dirty ? STATUS_PAGE_DIRTY : 0);
}

uint32_t gpushm_buffer_notice(const struct gpushm_buffer *b)
{
	return error_null(b, "buffer") < 0 ? 0 : buffer_word(b);
}

/* The next call goes on with what this one begins. Where no other daemon follows, one try ends the
 * connection. */
static int come_back(struct gpushm_buffer *b, uint64_t ms)
{
	struct gpushm *c = b->connection;
	uint64_t left = outage_left(c, &b->missed_since);
	int r = hello_resume(c, !c->wait_for_successor ? 0 : ms < left ? ms : left);

	r = outage_report(c, r, &b->missed_since);
	return r == -EAGAIN ? 0 : r;
}

/* A thread that has the lock is in a request, and finds a hang-up itself. */
static int check_connection(struct gpushm_buffer *b, uint64_t ms)
{
	struct gpushm *c = b->connection;
	int r = 0;

	if (!lock_try(&c->lock, LOCK_CONNECTION))
		return 0;
	if (outage_has_begun(c))
		r = come_back(b, ms);
	else
		b->missed_since = 0;
	lock_drop(&c->lock);
	return r;
}

/* The living daemon wakes the sleeper, and so does its successor. A daemon that has gone is noticed
 * on the socket: this looks there between naps, and reconnects as a request would. */
static int sleep_until(struct gpushm_buffer *b, uint32_t seen, uint64_t deadline)
{
	const struct status_page_cell *cell = b->lease.cell;
	uint64_t left = clock_left_ms(deadline);

	if (!cell)
		return buffer_error(b, ENOTSUP, "the daemon tells no changes of it");
	if (left == 0)
		return error_set(ETIMEDOUT, "nothing has happened to buffer \"%s\"", b->name);
	status_map_sleep(cell, seen, left < NAP_MS ? left : NAP_MS);
	return buffer_word(b) == seen ? check_connection(b, clock_left_ms(deadline)) : 0;
}

int gpushm_buffer_wait(struct gpushm_buffer *b, uint32_t seen, uint64_t timeout_ms,
		       uint32_t *ret_notice)
{
	uint64_t deadline = clock_deadline(timeout_ms);
	uint32_t word;
	int r = buffer_check(b);

	if (r < 0)
		return r;
	while ((word = buffer_word(b)) == seen) {
		if (seen & GPUSHM_NOTICE_GONE)
			return error_set(EIDRM, "buffer \"%s\" has gone", b->name);
		r = sleep_until(b, seen, deadline);
		if (r < 0)
			return r;
	}
	*ret_notice = word;
	return 0;
}

/* ---- numbers and addresses ---- */

uint64_t gpushm_buffer_id(const struct gpushm_buffer *b)
{
	return error_null(b, "buffer") < 0 ? 0 : b->id;
}

uint64_t gpushm_buffer_bytes(const struct gpushm_buffer *b)
{
	return error_null(b, "buffer") < 0 ? 0 : b->bytes;
}

uint64_t gpushm_buffer_digest(const struct gpushm_buffer *b)
{
	return error_null(b, "buffer") < 0 ? 0 : b->digest;
}

enum gpushm_state gpushm_buffer_state(const struct gpushm_buffer *b)
{
	uint32_t word;

	if (error_null(b, "buffer") < 0)
		return 0;
	word = buffer_word(b);
	/* The word of a buffer that has gone has no state. */
	return word & STATUS_PAGE_SEALED   ? GPUSHM_SEALED
	       : word & STATUS_PAGE_SHARED ? GPUSHM_SHARED
					   : b->state;
}

enum gpushm_access gpushm_buffer_access(const struct gpushm_buffer *b)
{
	return error_null(b, "buffer") < 0 ? 0 : b->access;
}

int gpushm_buffer_copy_on_write(const struct gpushm_buffer *b)
{
	return error_null(b, "buffer") < 0 ? -EINVAL : b->copy_on_write;
}

enum gpushm_kind gpushm_buffer_kind(const struct gpushm_buffer *b)
{
	return error_null(b, "buffer") < 0 ? 0 : b->pool->map.kind;
}

const char *gpushm_buffer_pool(const struct gpushm_buffer *b)
{
	return error_null(b, "buffer") < 0 ? NULL : b->pool->name;
}

int gpushm_buffer_lost(const struct gpushm_buffer *b)
{
	if (error_null(b, "buffer") < 0)
		return -EINVAL;
	return b->lease.lost || (buffer_word(b) & STATUS_PAGE_GONE);
}

int gpushm_buffer_dirty(const struct gpushm_buffer *b)
{
	uint32_t word;

	if (error_null(b, "buffer") < 0)
		return -EINVAL;
	word = buffer_word(b);
	return word & STATUS_PAGE_GONE ? b->dirty : !!(word & STATUS_PAGE_DIRTY);
}

int gpushm_buffer_kept(const struct gpushm_buffer *b)
{
	if (error_null(b, "buffer") < 0)
		return -EINVAL;
	if (b->state == GPUSHM_FILLING || !b->connection->wait_for_successor)
		return 0;
	if (!b->not_kept)
		return 1;
	return error_set(
		ENOSPC,
		"buffer \"%s\" does not survive the daemon's death: its user's places at "
		"systemd are taken (max-share in gpushmd.conf): put many arrays into one "
		"buffer; or systemd or the keeper does not read, as the log of gpushmd says",
		b->name);
}

const char *gpushm_buffer_name(const struct gpushm_buffer *b)
{
	return error_null(b, "buffer") < 0 ? NULL : b->name;
}

/* A daemon of the parent namespace has other numbers than this process. Where it is elsewhere, only
 * this process itself and, where both see it by the same number, others are known. */
uid_t gpushm_buffer_uid(const struct gpushm_buffer *b)
{
	uid_t self = geteuid();

	if (error_null(b, "buffer") < 0)
		return (uid_t)-1;
	if (b->uid == b->own_uid)
		return self;
	if (userns_uid_inside(b->own_uid) == self)
		return userns_uid_inside(b->uid);
	return b->own_uid == self ? b->uid : (uid_t)-1;
}

int gpushm_buffer_device(const struct gpushm_buffer *b)
{
	if (error_null(b, "buffer") < 0)
		return -EINVAL;
	return b->map ? b->map->device : -1;
}

void *gpushm_buffer_device_ptr(const struct gpushm_buffer *b)
{
	return buffer_check(b) < 0 || buffer_check_mapped(b) < 0 ? NULL : b->map->device_ptr;
}

void *gpushm_buffer_host_ptr(const struct gpushm_buffer *b)
{
	return buffer_check_mapped(b) < 0 ? NULL : b->map->host_ptr;
}

/* ---- table and attributes ---- */

/* A getter of a const buffer may need the lock; the buffer itself was never const. */
static struct gpushm_buffer *unconst(const struct gpushm_buffer *b)
{
	return (struct gpushm_buffer *)b;
}

/* In a forked child, where a thread of the parent may have held the buffer's own: the process's. */
static pthread_mutex_t *lock_of(const struct gpushm_buffer *b)
{
	return buffer_is_inherited(b) ? &process()->inherited_lock : &unconst(b)->lock;
}

static int refresh(struct gpushm_buffer *b)
{
	_cleanup_(image_done) struct image fresh = IMAGE_NONE;
	struct image old = b->table;
	uint64_t digest;
	int r;

	if (b->table.memory && b->table.view.arrays == table_builder_arrays(b->builder))
		return 0;
	r = image_finish(b->builder, b->bytes, &fresh, &digest);
	if (r < 0)
		return r;
	b->digest = digest;
	b->table = fresh;
	fresh = old;
	return 0;
}

int buffer_table(struct gpushm_buffer *b, bool whole, const struct table_view **ret)
{
	int r;

	lock_take(lock_of(b), LOCK_BUFFER);
	if (b->builder)
		r = refresh(b);
	else if (!image_is(&b->table))
		r = error_set(ENOENT, "buffer \"%s\" has no arrays", b->name);
	else
		r = whole ? image_load(&b->table) : image_lookup(&b->table);
	if (r < 0) {
		lock_drop(lock_of(b));
		return r;
	}
	*ret = &b->table.view;
	return 0;
}

void buffer_table_done(struct gpushm_buffer *b)
{
	lock_drop(lock_of(b));
}

size_t gpushm_buffer_arrays(const struct gpushm_buffer *b)
{
	size_t n = 0;

	if (buffer_check_memory(b) < 0)
		return 0;
	lock_guard(lock_of(b), LOCK_BUFFER);
	if (b->builder)
		n = table_builder_arrays(b->builder);
	else if (image_is(&b->table))
		n = b->table.view.arrays;
	return n;
}

static int find_attr(const struct table_view *v, const char *key, struct table_attr *ret)
{
	size_t len = strlen(key);

	for (uint32_t i = 0; i < v->attrs; i++) {
		int r = table_view_attr_at(v, i, ret);

		if (r < 0)
			return r;
		if (ret->key_len == len && memcmp(ret->key, key, len) == 0)
			return 0;
	}
	return -ENOENT;
}

int gpushm_buffer_attr(const struct gpushm_buffer *b, const char *key, const void **ret_value,
		       size_t *ret_size)
{
	struct image *i;
	struct table_attr attr = { 0 };
	int r = buffer_check_memory(b), found = -ENOENT;

	if (r == 0 && !key)
		r = buffer_error(b, EINVAL, "an attribute needs a key");
	if (r < 0)
		return r;
	/* While the buffer is being filled, its attributes are in b->attrs. */
	i = image_is(&b->attrs) ? &unconst(b)->attrs : &unconst(b)->table;
	lock_guard(lock_of(b), LOCK_BUFFER);
	/* The value points into memory that stays until the buffer is closed. */
	r = image_load(i);
	if (r < 0)
		return r;
	if (image_is(i))
		found = find_attr(&i->view, key, &attr);
	if (found == -EBADMSG)
		return buffer_error(b, EPROTO, "the daemon's table makes no sense");
	if (found < 0)
		return error_set(-found, "buffer \"%s\" has no attribute \"%s\"", b->name, key);
	*ret_value = attr.value;
	*ret_size = attr.value_len;
	return 0;
}
