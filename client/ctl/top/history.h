/* SPDX-License-Identifier: MIT
 *
 * The last events of the daemon's log.
 */
#pragma once

#include "client/gpushm_events.h"

#include <stddef.h>

#define HISTORY_EVENTS 500u /* no batch begins further back */

struct history {
	struct gpushm_events **batches; /* owned, as what they point to; the oldest first */
	size_t n_batches, n;		/* n: events */
};

/* Takes the batch over; drops the oldest ones that are not needed. 0 or -ENOMEM. */
int history_add(struct history *h, struct gpushm_events *batch);

/* Moves all of `from`, which is later, to the end. 0 or -ENOMEM: some are lost. */
int history_move(struct history *h, struct history *from);

/* Moves all of `from`, which is earlier, before the others. Without memory some are lost. */
void history_prepend(struct history *h, struct history *from);

void history_done(struct history *h);
