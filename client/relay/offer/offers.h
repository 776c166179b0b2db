/* SPDX-License-Identifier: MIT
 *
 * All that this machine offers, by name. A thread follows the daemon, also over its restarts.
 */
#pragma once

#include "client/relay/config.h"
#include "client/relay/offer/offer.h"

struct offers;

/* Waits a moment for the daemon's list. Without a daemon there is nothing to offer until it is
 * there. config: for the daemon's socket; borrowed. What is offered is for config_current() to say.
 * 0, or -errno. */
int offers_start(const struct config *config, struct offers **ret);

/* Whether the daemon is there and has said what it has: else a name that is not found may exist. */
bool offers_known(struct offers *o);

/* All of them in the order of names; the caller releases each, and frees *ret. 0 or -ENOMEM. */
int offers_list(struct offers *o, struct offer ***ret, size_t *ret_n);

/* A reference to what has the name now; NULL: nothing. With an ETag: to what had the name, if it
 * has that ETag and is still being read, so that a reader can come to the end of a file that was
 * replaced meanwhile. */
struct offer *offers_find(struct offers *o, const char *name, const char *etag);

/* Waits until `wanted` says so of what has the name (NULL: nothing has), and returns that; at most
 * until `until_ns` (CLOCK_MONOTONIC), then what it is by then. `wanted` is also asked each second.
 */
struct offer *offers_wait(struct offers *o, const char *name, uint64_t until_ns,
			  bool (*wanted)(void *user, struct offer *is), void *user);

/* Has the daemon asked for its list now, for a configuration that offers others; then calls `done`,
 * if it is not NULL, on another thread. Returns at once. */
void offers_refresh(struct offers *o, void (*done)(void));

/* Call it each second: has closed what was unused for a while. Does not wait for the daemon. */
void offers_tick(struct offers *o);

/* ---- buffers that the relay pulls ---- */

/* Offers a buffer that is being filled, instead of what has the name now: see offer_new_pulled().
 * offers_pull_end() gives the reference back; it ends the offer, or leaves it as one of the
 * daemon's. */
struct offer *offers_pull_begin(struct offers *o, const char *name, const struct manifest *m,
				const char *header, struct gpushm_buffer *b);
void offers_pull_end(struct offers *o, struct offer *offer, int result);
