/* SPDX-License-Identifier: MIT
 *
 * What a buffer is: the plain numbers that it was opened with, what the daemon's board says of it,
 * and where it lies in this process. They ask nobody and take no lock. In a forked child they still
 * tell the numbers, which are the child's own copy, but no address: no GPU's, for its mapping did
 * not survive the fork, and none of the host's, for the lease behind it is the parent's.
 */
#include "client/buffer/buffer.h"

uint64_t gpushm_buffer_id(const struct gpushm_buffer *b)
{
	return b->id;
}

uint64_t gpushm_buffer_bytes(const struct gpushm_buffer *b)
{
	return b->bytes;
}

uint64_t gpushm_buffer_digest(const struct gpushm_buffer *b)
{
	return b->digest;
}

enum gpushm_state gpushm_buffer_state(const struct gpushm_buffer *b)
{
	uint32_t word = buffer_word(b);

	/* A buffer that has gone is what it was last. */
	return word & STATUS_PAGE_SEALED   ? GPUSHM_SEALED
	       : word & STATUS_PAGE_SHARED ? GPUSHM_SHARED
					   : b->state;
}

enum gpushm_access gpushm_buffer_access(const struct gpushm_buffer *b)
{
	return b->access;
}

enum gpushm_kind gpushm_buffer_kind(const struct gpushm_buffer *b)
{
	return b->pool->map.kind;
}

const char *gpushm_buffer_pool(const struct gpushm_buffer *b)
{
	return b->pool->name;
}

int gpushm_buffer_lost(const struct gpushm_buffer *b)
{
	return b->held.lost || (buffer_word(b) & STATUS_PAGE_GONE);
}

int gpushm_buffer_dirty(const struct gpushm_buffer *b)
{
	uint32_t word = buffer_word(b);

	return word & STATUS_PAGE_GONE ? b->dirty : !!(word & STATUS_PAGE_DIRTY);
}

const char *gpushm_buffer_name(const struct gpushm_buffer *b)
{
	return b->name;
}

int gpushm_buffer_device(const struct gpushm_buffer *b)
{
	return b->map->device;
}

void *gpushm_buffer_device_ptr(const struct gpushm_buffer *b)
{
	return buffer_check(b) < 0 ? NULL : b->map->device_ptr;
}

void *gpushm_buffer_host_ptr(const struct gpushm_buffer *b)
{
	return buffer_check(b) < 0 ? NULL : b->map->host_ptr;
}
