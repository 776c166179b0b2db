/* SPDX-License-Identifier: MIT
 *
 * Waits that end at a deadline, or when the user presses Ctrl-C.
 */
#pragma once

#include <poll.h>
#include <stdint.h>

/* From now on SIGINT, SIGTERM and SIGHUP end the waits below, and interrupt no other call. */
void wait_for_signals(void);

/* For a child, before exec: restores the signals' actions and mask. */
void wait_undo_in_child(void);

/* ms on CLOCK_MONOTONIC, `ms` from now. */
int64_t wait_deadline(int64_t ms);

/* Waits until one of the fds is ready. 0; -ETIMEDOUT at the deadline; -EINTR after a signal. */
int wait_fds(struct pollfd *fds, nfds_t n, int64_t deadline);

/* Waits until the fd can be read or is at its end. */
int wait_readable(int fd, int64_t deadline);

/* Waits for ms, for something that cannot be polled. 0, -ETIMEDOUT if the deadline has passed
 * already, -EINTR. */
int wait_pause(int64_t ms, int64_t deadline);
