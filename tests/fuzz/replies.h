/* SPDX-License-Identifier: MIT
 *
 * What every reply of the daemon must be; a wrong one aborts.
 */
#pragma once

#include "daemon/catalog/catalog.h"
#include "daemon/ipc/reply.h"

#define require(x) ((x) ? (void)0 : abort())

void replies_init(void);

/* request: the case of Request that it replies to; 0 for none. Counts the reply. */
void replies_check(const struct catalog *c, const struct reply *a, int request);

/* The case of Request in a frame; 0 for none. */
int replies_request_of(const uint8_t *frame, size_t len);

/* Prints a line for each request and code that were counted. */
void replies_print(void);
