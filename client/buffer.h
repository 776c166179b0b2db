/* SPDX-License-Identifier: MIT
 *
 * A buffer as this process has it: the lease, the mapping, the table, and a count of its arrays.
 */
#ifndef GPUSHM_CLIENT_BUFFER_H
#define GPUSHM_CLIENT_BUFFER_H

#include "client/connection.h"
#include "client/gpushm.h"
#include "client/map/map.h"
#include "proto/table.h"

struct gpushm_buffer {
	struct gpushm *connection; /* a reference */
	uint64_t id, lease, bytes, digest;
	enum gpushm_state state;
	enum gpushm_access access;
	bool dirty;
	char name[BUFFER_NAME_MAX + 1];
	const struct pool_info *pool; /* the connection's */
	struct map *map; /* a reference; shared with other opens of this buffer in this process */
	_Atomic unsigned arrays;       /* arrays, views and DLPack tensors that are alive */
	struct table_builder *builder; /* while filling: the same table that the daemon builds */
	void *table;		       /* mapping of the table's memfd, or NULL; table_bytes long */
	size_t table_bytes;
	struct table_view view; /* of table */
};

/* Counts an array of the buffer; buffer_put() uncounts it. Any thread. */
void buffer_get(struct gpushm_buffer *b);
void buffer_put(struct gpushm_buffer *b);

#endif
