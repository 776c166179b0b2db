/* SPDX-License-Identifier: MIT
 *
 * A client that is killed while it writes to a shared buffer: a process in a role.
 *
 * With a real driver a kernel writes, and SIGKILL does the rest: the socket closes, the kernel runs
 * on for a while, and the pidfd becomes readable when the driver has torn everything down. The fake
 * driver has no kernels and tears nothing down. There the process plays this itself: it shuts its
 * socket down, continues to write, and ends on request.
 */
#pragma once

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

/* Lets it create and publish a shared buffer and write `value` over and over; returns when it has
 * begun. */
void scribbler_write(struct scribbler *s, const char *name, const char *pool, uint64_t bytes,
		     unsigned value);

/* Kills it; over the fake driver, shuts only its socket down. */
void scribbler_kill(struct scribbler *s, bool fake);

/* Returns true when the kernel reports the end of the process. */
bool scribbler_has_gone(const struct scribbler *s);

/* Over the fake driver, ends the rest of the process. */
void scribbler_bury(struct scribbler *s);

/* Waits for its end. */
void scribbler_end(struct scribbler *s);
