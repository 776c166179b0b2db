/* SPDX-License-Identifier: MIT
 *
 * How many machines read a file from here at a time. A machine that reads has several connections,
 * and makes one request after the other: all requests of one address for one file are one transfer,
 * which lasts until a moment after the last one. So a machine that was let in is not turned away in
 * the middle. Any thread may call.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct transfers;

/* NULL: out of memory. */
struct transfers *transfers_new(void);
/* NULL is allowed. Returns NULL. */
struct transfers *transfers_free(struct transfers *t);

/* A request for the file with this ETag. max: of all transfers; 0: no limit. Returns how many
 * requests the transfer has now. 0: there are as many transfers, and none of them is of this
 * address and file. Out of memory counts as such. */
unsigned transfers_begin(struct transfers *t, const char *address, const char *etag, size_t max);

/* For how long this address has been refused without a break; 0: not now. */
uint64_t transfers_refused_ns(struct transfers *t, const char *address, const char *etag);

/* The end of a request that was let in. */
void transfers_end(struct transfers *t, const char *address, const char *etag);
