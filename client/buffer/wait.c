/* SPDX-License-Identifier: MIT
 *
 * gpushm_buffer_notice and gpushm_buffer_wait: looking at a buffer's word on the daemon's board,
 * and sleeping until it changes. The one who sleeps is woken by the daemon that lives, or by the
 * one that comes after it. That there is none any more is seen by the connection: it is looked at
 * between naps, and brought back, as any request would do.
 */
#include "client/base/error.h"
#include "client/buffer/buffer.h"
#include "client/link/reconnect.h"
#include "proto/base/clock.h"

#include <poll.h>
#include <sys/socket.h>

#define NAP_MS 1000u

_Static_assert(GPUSHM_NOTICE_SEALED == STATUS_PAGE_SEALED &&
		       GPUSHM_NOTICE_SHARED == STATUS_PAGE_SHARED &&
		       GPUSHM_NOTICE_DIRTY == STATUS_PAGE_DIRTY &&
		       GPUSHM_NOTICE_UNLINKED == STATUS_PAGE_UNLINKED &&
		       GPUSHM_NOTICE_GONE == STATUS_PAGE_GONE,
	       "the word is handed on as it is");

uint32_t gpushm_buffer_notice(const struct gpushm_buffer *b)
{
	return buffer_word(b);
}

static bool hung_up(const struct gpushm *c)
{
	struct pollfd p = { .fd = c->socket, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0;
}

/* Who has the lock is in a request, and finds out by itself. */
static int check_connection(struct gpushm *c)
{
	int r = 0;

	if (!hung_up(c) || pthread_mutex_trylock(&c->lock) != 0)
		return 0;
	if (hung_up(c))
		r = reconnect(c);
	pthread_mutex_unlock(&c->lock);
	return r;
}

static int sleep_until(struct gpushm_buffer *b, uint32_t seen, uint64_t deadline)
{
	const struct status_page_cell *slot = b->held.slot;
	uint64_t now = clock_monotonic_ms(), left = now < deadline ? deadline - now : 0;

	if (!slot)
		return error_set(ENOTSUP, "buffer \"%s\": the daemon tells no changes of it",
				 b->name);
	if (left == 0)
		return error_set(ETIMEDOUT, "nothing has happened to buffer \"%s\"", b->name);
	notice_sleep(slot, seen, left < NAP_MS ? left : NAP_MS);
	return buffer_word(b) == seen ? check_connection(b->connection) : 0;
}

int gpushm_buffer_wait(struct gpushm_buffer *b, uint32_t seen, uint64_t timeout_ms,
		       uint32_t *ret_notice)
{
	uint64_t deadline;
	uint32_t word;
	int r = buffer_check(b);

	if (r < 0)
		return r;
	if (__builtin_add_overflow(clock_monotonic_ms(), timeout_ms, &deadline))
		deadline = UINT64_MAX;
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
