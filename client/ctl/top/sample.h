/* SPDX-License-Identifier: MIT
 *
 * What the daemon shows this user at one moment: its status, the pools, and the buffers with their
 * holders.
 */
#pragma once

#include "client/gpushm_query.h"

#include <stddef.h>
#include <stdint.h>

struct sample {
	uint64_t taken_ns; /* CLOCK_MONOTONIC */
	uint64_t time_ns;  /* CLOCK_REALTIME */
	uint64_t cost_ns;  /* how long the requests took */

	struct gpushm_status *status; /* owned */
	struct gpushm_pool **pools;   /* owned */
	size_t n_pools;
	struct gpushm_stat **buffers; /* owned; ids grow */
	size_t n_buffers;
	struct gpushm_stream_info **streams; /* owned; if a buffer is one */
	size_t n_streams;

	/* Requests that succeeded since the daemon started. */
	uint64_t creates, opens;
};

/* Asks the daemon for all of it; word is as for ls (NULL: all buffers), and the daemon leaves out
 * only what has another prefix. 0, or -errno of the library. */
int sample_take(struct gpushm *c, const char *word, struct sample **ret);

/* When the next one is due, after one that began and ended then: a period later, but after nine
 * times as long as it took. So one `top` never takes more than a tenth of the daemon's time. All in
 * ms. */
uint64_t sample_due(uint64_t began, uint64_t ended, uint64_t period);

/* NULL is allowed. Returns NULL. */
struct sample *sample_free(struct sample *s);
