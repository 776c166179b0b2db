/* SPDX-License-Identifier: MIT
 *
 * What every answer of the daemon must be; one that is not aborts.
 */
#ifndef GPUSHM_TESTS_FUZZ_REPLIES_H
#define GPUSHM_TESTS_FUZZ_REPLIES_H

#include "daemon/ipc/reply.h"

#define require(x) ((x) ? (void)0 : abort())

void replies_init(void);

/* verb: the case of Request that it answers; 0 for none. Counts it. */
void replies_check(const struct reply *a, int request);

/* The verb of a frame; 0 for none. */
int replies_request_of(const uint8_t *frame, size_t len);

/* A line for each verb and code that were counted, to stdout. */
void replies_print(void);

#endif
