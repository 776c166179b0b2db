/* SPDX-License-Identifier: MIT
 *
 * The requests of streams for a client that does not use the library. Functions that return an int
 * return the reply's code; the others must succeed.
 */
#pragma once

#include "proto/stream.h"
#include "tests/lib/actor.h"
#include "tests/lib/raw.h"

#define RAW_SLOTS 4u
#define RAW_SLOT_BYTES 4096u
#define RAW_READERS 3u

/* Connects a socket of the process and sends HELLO. Returns the session. */
uint64_t raw_greet_as(struct raw *r, struct actor *a);
/* Sends HELLO on r->socket. Returns the session. */
uint64_t raw_hello(struct raw *r);

int raw_make_stream(struct raw *r, uint64_t lease, uint32_t slots, uint64_t slot_bytes,
		    uint32_t readers);
/* A published stream that everybody may read and write, with the sizes above. Returns the
 * producer's lease. */
uint64_t raw_produce(struct raw *r, const char *name);
/* OPEN with `produce`: attach has the lease. */
int raw_continue(struct raw *r, const char *name, uint64_t wait_ms);

int raw_join_as(struct raw *r, uint64_t lease, uint32_t follow, uint32_t max_held);
/* Returns the index. */
uint32_t raw_join(struct raw *r, uint64_t lease, enum stream_follow follow);
int raw_drop(struct raw *r, uint64_t lease, uint32_t reader, uint64_t generation);
int raw_leave(struct raw *r, uint64_t lease);
int raw_close_lease(struct raw *r, uint64_t lease);

int raw_page(struct raw *r, uint64_t lease, uint32_t page);
/* Maps the page as it was lent. */
void *raw_map_page(struct raw *r, uint64_t lease, uint32_t page);

/* What STREAMS says of that name; NULL: there is no such stream. Valid until the next reply. */
const Gpushm__Proto__StreamInfo *raw_stream_info(struct raw *r, const char *name);

/* Publishes a frame into the slot, as its producer does; not finished: its ready word is not
 * written. */
void raw_publish_frame(struct stream_head *h, uint32_t slot, uint64_t seq, bool finished);
