/* SPDX-License-Identifier: MIT
 *
 * A client that is made to be killed while it writes to a shared buffer: a process in a role.
 *
 * With a real driver a kernel writes, and SIGKILL does the rest: its socket closes, its kernel goes
 * on for a while, and its pidfd speaks when the driver has torn all of that down. The fake driver
 * has no kernels and tears nothing down. There the process does what happens to it: it shuts its
 * socket, goes on writing, and ends when it is told.
 */
#ifndef GPUSHM_TESTS_GPU_SCRIBBLER_H
#define GPUSHM_TESTS_GPU_SCRIBBLER_H

#include "tests/lib/role.h"

#include <stdbool.h>
#include <stdint.h>

struct scribbler {
	struct role_process process;
	int pidfd;
	double killed; /* us, CLOCK_MONOTONIC */
};

/* For the program's table of roles: { "scribbler", scribbler_role }. args: socket. */
int scribbler_role(char **args);

/* Starts one, without waiting until it is ready. */
void scribbler_start(struct scribbler *s, const char *socket);

/* Has it create, publish as shared and write `value` over and over; returns when it has begun. */
void scribbler_write(struct scribbler *s, const char *name, const char *pool, uint64_t bytes,
		     unsigned value);

/* Kills it; over the fake driver, its socket alone. */
void scribbler_kill(struct scribbler *s, bool fake);

/* The kernel says that its process is gone. */
bool scribbler_has_gone(const struct scribbler *s);

/* Over the fake driver, ends what is left of it. */
void scribbler_bury(struct scribbler *s);

/* Waits until it is gone. */
void scribbler_end(struct scribbler *s);

#endif
