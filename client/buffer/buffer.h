/* SPDX-License-Identifier: MIT
 *
 * A buffer as this process has it: the lease, the mapping, the table, and a count of its arrays.
 */
#ifndef GPUSHM_CLIENT_BUFFER_BUFFER_H
#define GPUSHM_CLIENT_BUFFER_BUFFER_H

#include "client/base/defer.h"
#include "client/buffer/image.h"
#include "client/gpushm.h"
#include "client/link/connection.h"
#include "client/map/map.h"
#include "proto/table.h"

struct gpushm_buffer {
	struct held held;	   /* the lease, as the connection reclaims it */
	struct gpushm *connection; /* a reference */
	pthread_mutex_t lock;	   /* builder, table, and what publish changes */
	uint64_t id, lease, bytes;
	_Atomic uint64_t digest; /* written under the lock, as the two below; read without it */
	_Atomic enum gpushm_state state;
	_Atomic enum gpushm_access access;
	bool dirty; /* when it was attached; for who has no board */
	char name[BUFFER_NAME_MAX + 1];
	const struct pool_info *pool; /* the connection's */
	struct map *map; /* a reference; shared with other opens of this buffer in this process */
	int device;	 /* the GPU that it is used from: an ordinal, -1 for none */
	_Atomic unsigned arrays;       /* arrays, views and DLPack tensors that are alive */
	struct table_builder *builder; /* while filling: the same table that the daemon builds */
	struct image table;	       /* the arrays, as of the last use while filling */
	struct image attrs;	       /* the creator's attributes: they must not move, as the
						 table does while it fills */
	struct deferred deferred;      /* once closed */
};

struct attach;

/* Maps what was attached. The lease becomes the buffer's, or is ended where this fails; a's fds
 * stay the caller's. device: an ordinal or GPUSHM_OWN_DEVICE. 0 or -errno with gpushm_error() set.
 */
int buffer_adopt(struct gpushm *c, const char *name, struct attach *a, int device,
		 struct gpushm_buffer **ret);

/* gpushm_close() that never waits for later. */
int buffer_close(struct gpushm_buffer *b);

/* What the board says of the buffer now, or where it has no place there, what was known of it last,
 * without a count. */
uint32_t buffer_word(const struct gpushm_buffer *b);

/* Counts an array of the buffer; buffer_put() uncounts it. Any thread. */
void buffer_get(struct gpushm_buffer *b);
void buffer_put(struct gpushm_buffer *b);

/* The table as it is now, those arrays included that were described a moment ago. Holds b->lock
 * from success until buffer_table_done(), and what is looked up in *ret is valid no longer: copy
 * the name and the descr. whole: it is in memory, and has all that there is to tell; else it may be
 * one that names are found in alone. 0; -ENOENT where nothing was described; -ENOMEM; -EPROTO where
 * the daemon's table does not hold together; with gpushm_error() set. Does not check for a fork. */
int buffer_table(struct gpushm_buffer *b, bool whole, const struct table_view **ret);
void buffer_table_done(struct gpushm_buffer *b);

/* -ECHILD, with gpushm_error() set, where the buffer was made before fork(). No system call. */
static inline int buffer_check(const struct gpushm_buffer *b)
{
	return connection_check_fork(b->connection->generation);
}

#endif
