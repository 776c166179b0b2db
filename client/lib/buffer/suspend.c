/* SPDX-License-Identifier: MIT
 *
 * SUSPEND and RESUME: a process lets go of a buffer's memory and comes back. Its lease, the table,
 * the arrays and the addresses stay; the memory is not mapped meanwhile.
 *
 * The order is that of a close: unmap first, then tell the daemon. A resume asks the daemon first,
 * and what it sends is mapped where the memory was. Both may be repeated, so what a request left
 * open after an error is settled by the next one.
 *
 * A thread that copies and one that suspends must not meet: the one counts its copy before it looks
 * whether the buffer is suspended, the other says that it is before it looks for copies.
 */
#include "client/gpushm_memory.h"
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/base/process.h"
#include "client/lib/buffer/buffer.h"
#include "client/lib/link/request.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#define USE_MS 1000u /* a process tells the daemon of one use in this time */

int buffer_check_mapped(const struct gpushm_buffer *b)
{
	int r = buffer_check_memory(b);

	if (r == 0 && b->suspended)
		r = buffer_error(b, EBUSY, "%s",
				 b->map ? "it is suspended: gpushm_resume() brings its memory back"
					: "it was opened for its table alone");
	return r;
}

/* The buffer itself was never const. */
int buffer_pin(const struct gpushm_buffer *b)
{
	int r;

	((struct gpushm_buffer *)b)->copies++;
	r = buffer_check_mapped(b);
	if (r < 0)
		buffer_unpin(b);
	return r;
}

void buffer_unpin(const struct gpushm_buffer *b)
{
	((struct gpushm_buffer *)b)->copies--;
}

int gpushm_buffer_suspended(const struct gpushm_buffer *b)
{
	return error_null(b, "buffer") < 0 ? -EINVAL : b->suspended;
}

int gpushm_wanted(const struct gpushm_buffer *b)
{
	int r = error_null(b, "buffer");

	return r < 0 ? r : (buffer_word(b) & STATUS_PAGE_WANTED) || process()->park_asked;
}

int gpushm_use(struct gpushm_buffer *b)
{
	Gpushm__Proto__Use use = GPUSHM__PROTO__USE__INIT;
	uint64_t now = clock_monotonic_ms();
	int r = buffer_check(b);

	if (r < 0 || now - b->used_at < USE_MS || !b->connection->suspends ||
	    !lock_try(&b->connection->lock, LOCK_CONNECTION))
		return r;
	SET(&use, lease, b->lease.id);
	b->used_at = now;
	connection_send_quiet(b->connection, request_with(USE, use, &use));
	lock_drop(&b->connection->lock);
	return 0;
}

static int check(const struct gpushm_buffer *b)
{
	int r = buffer_check(b);

	if (r == 0 && !b->map)
		r = buffer_check_mapped(b);
	if (r < 0)
		return r;
	if (b->state == GPUSHM_FILLING)
		return buffer_error(b, EBUSY, "it is not published: publish it first");
	if (b->of_stream)
		return buffer_error(b, ENOTSUP,
				    "it is a stream, whose memory changes all the time: close it");
	if (b->copy_on_write)
		return buffer_error(b, ENOTSUP,
				    "it is open copy-on-write, and what this process wrote would "
				    "be lost: close it");
	if (kind_opens_pool(b->pool->map.kind))
		return buffer_error(b, ENOTSUP,
				    "pool \"%s\" is a mempool, which a process has as a whole: use "
				    "a vmm pool",
				    b->pool->name);
	if (!b->connection->suspends)
		return buffer_error(b, ENOSYS, "gpushmd is older than this library: upgrade it");
	return 0;
}

/* ---- suspend ---- */

static int unmap(struct gpushm_buffer *b, uint32_t flags)
{
	int r = flags & GPUSHM_IDLE ? 0 : map_synchronize(b->map);

	b->suspended = true;
	if (r == 0 && b->copies > 0)
		r = buffer_error(b, EBUSY, "%u copies of it are under way in other threads",
				 b->copies);
	if (r == 0)
		r = map_suspend(b->map);
	if (r < 0)
		b->suspended = false;
	return r;
}

/* ---- and back ---- */

static int map_again(struct gpushm_buffer *b, int fd)
{
	const struct map_request m = { .pool = &((struct pool_info *)b->pool)->map,
				       .buffer = b->id,
				       .bytes = b->bytes,
				       .allocated_bytes = map_bytes(b->map),
				       .fd = fd,
				       .server_uid = b->connection->server_uid };
	int r = map_resume(b->map, &m);

	return r == -ENOMEM && defer_flush_for_space() ? map_resume(b->map, &m) : r;
}

/* to: as for buffer_bring_back(). The lease is away again after an error. -ERESTART: the open that
 * had `to` has ended, or another one has come. */
static int map_back(struct gpushm_buffer *b, uint64_t to, uint64_t timeout_ms)
{
	_cleanup_(close_fd) int fd = -1;
	struct error why;
	int r = buffer_bring_back(b, map_bytes(b->map), to, timeout_ms, &fd);

	if (r < 0)
		return r == -ENOENT && to ? -ERESTART : r;
	r = map_again(b, fd);
	if (r == 0) {
		b->suspended = false;
		return 0;
	}
	error_keep(&why);
	buffer_tell_away(b);
	error_put_back(&why);
	return r == -EAGAIN ? -ERESTART : error_set_about(-r, "buffer", b->name);
}

/* What another open of this process has at the addresses decides which generation it is. */
static int come_back(struct gpushm_buffer *b, uint64_t timeout_ms)
{
	uint64_t deadline = clock_deadline(timeout_ms);
	int r;

	do
		r = map_back(b, map_buffer(b->map), clock_left_ms(deadline));
	while (r == -ERESTART);
	if (r == -ENOSYS)
		return buffer_error(b, ENOSYS,
				    "it was suspended, and gpushmd is one before 0.3 now: upgrade "
				    "gpushmd, or close the buffer and open it again");
	if (r < 0)
		return r;
	r = b->id != b->had_id	       ? GPUSHM_OTHER_GENERATION
	    : b->pages != b->had_pages ? GPUSHM_OTHER_PAGES
				       : 0;
	if (b->id != b->had_id)
		buffer_drop_twin(b);
	b->had_id = b->id;
	b->had_pages = b->pages;
	return r;
}

/* ---- the calls ---- */

static int tell_away_or_return(struct gpushm_buffer *b)
{
	struct error why;
	int r = buffer_tell_away(b);

	if (r == 0)
		return 0;
	error_keep(&why);
	map_back(b, b->id, GPUSHM_WAIT_FOREVER);
	error_put_back(&why);
	return error_set_about(-r, "buffer", b->name);
}

int gpushm_suspend(struct gpushm_buffer *b, uint32_t flags)
{
	int r = error_flags(flags, GPUSHM_IDLE);

	if (r == 0)
		r = check(b);
	if (r < 0)
		return r;
	lock_guard(&b->changing, LOCK_CHANGING);
	if (!b->suspended)
		r = unmap(b, flags);
	if (r == 0)
		r = tell_away_or_return(b);
	if (r == 0 && process()->park == 1)
		buffer_drop_twin(b);
	return r;
}

int gpushm_resume(struct gpushm_buffer *b, uint64_t timeout_ms)
{
	int r = buffer_check(b);

	if (r == 0 && !b->map)
		r = buffer_check_mapped(b);
	if (r < 0)
		return r;
	lock_guard(&b->changing, LOCK_CHANGING);
	if (b->suspended)
		r = come_back(b, timeout_ms);
	return r;
}
