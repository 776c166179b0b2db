/* SPDX-License-Identifier: MIT
 *
 * Eight workers that do a part each.
 */
#ifndef GPUSHM_EXAMPLES_DEMO_CREW_H
#define GPUSHM_EXAMPLES_DEMO_CREW_H

#include "client/examples/demo/worker.h"

#define CREW_SIZE 8

struct crew {
	struct worker *workers[CREW_SIZE];
};

/* Starts them for the samples first to first + count - 1, in parts that differ by one at most. 0,
 * or -errno with the reason on stderr; so for those below. */
int crew_start(struct crew *c, const char *program, const char *socket, long first, long count);

/* Lets them attach, and waits until all have. */
int crew_attach(struct crew *c);

/* Lets all of them compute, and waits until all have ended. */
int crew_work(struct crew *c);

/* Writes what they said as a table; returns how many samples they had right. */
long crew_print(const struct crew *c);

/* Kills those that still run. */
void crew_clear(struct crew *c);

#endif
