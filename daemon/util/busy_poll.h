/* SPDX-License-Identifier: MIT
 *
 * A loop that looks for events a moment longer before it sleeps. To be woken costs some
 * microseconds, more on a virtual machine: as much as a request, or a small allocation, takes.
 */
#ifndef GPUSHM_DAEMON_UTIL_BUSY_POLL_H
#define GPUSHM_DAEMON_UTIL_BUSY_POLL_H

#include "daemon/util/spin.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct busy_poll {
	uv_idle_t idle;	      /* active while the loop polls and does not wait */
	uint64_t until, last; /* of uv_hrtime() */
	struct spin spin;
	bool allowed; /* there is more than one processor */
};

#define BUSY_POLL_BURST_NS 1000000u

/* The caller closes a->idle. */
void busy_poll_init(struct busy_poll *a, uv_loop_t *loop);

/* For so many ns from now, or until what is waited for has come; 0: nothing changes. From the
 * loop's thread alone, as all of these. */
void busy_poll_for(struct busy_poll *a, uint64_t ns);
void busy_poll_end(struct busy_poll *a);

/* Something has come; if the one before it did less than BUSY_POLL_BURST_NS ago, more is waited
 * for. */
void busy_poll_in_burst(struct busy_poll *a, uint64_t ns);

#endif
