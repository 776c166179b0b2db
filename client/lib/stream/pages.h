/* SPDX-License-Identifier: MIT
 *
 * The requests of streams, and the pages that they bring, mapped and checked.
 */
#pragma once

#include "client/gpushm_stream.h"
#include "client/lib/buffer/buffer.h"
#include "client/lib/map/order.h"
#include "proto/stream.h"

/* STREAM: makes a stream of a buffer that is being filled. 0 or -errno with gpushm_error() set. */
int pages_make_stream(struct gpushm_buffer *b, const struct gpushm_stream_spec *spec,
		      uint64_t slot_bytes);

/* JOIN. *ret: the seat, and its generation. */
struct joined {
	uint32_t reader;
	uint64_t generation;
};
int pages_join(struct gpushm_buffer *b, uint32_t follow, uint32_t max_held, struct joined *ret);

/* PAGE: maps a page of the stream. Checks the fd as that of host memory: its kind, owner, size and
 * seals; and what never changes in a head. bytes: the size of the group's page or a reader's; 0: of
 * the head. ms: as of request_read_within(). *ret_generation: of a reader's page. */
int pages_map(struct gpushm_buffer *b, uint32_t page, uint64_t bytes, uint64_t ms,
	      struct order_page *ret, uint64_t *ret_generation);
void pages_unmap(struct order_page *p);

/* The numbers of a head that never change. Use these, and do not read the head again: a process
 * that was its producer may still write it. */
struct page_shape {
	uint32_t slots, readers;
	uint64_t slot_bytes, limit_ms;
};
/* Reads and checks them. 0 or -EPROTO with gpushm_error() set. */
int pages_read_shape(const struct order_page *p, uint64_t buffer_bytes, struct page_shape *ret);

/* DROP. generation: 0: of the lease itself. ms: as above. */
int pages_drop(struct gpushm_buffer *b, uint32_t reader, uint64_t generation, uint64_t ms);
