/* SPDX-License-Identifier: MIT
 *
 * Waiting that ends: at a deadline, or when someone presses Ctrl-C.
 */
#ifndef GPUSHM_EXAMPLES_DEMO_WAIT_H
#define GPUSHM_EXAMPLES_DEMO_WAIT_H

#include <poll.h>
#include <stdint.h>

/* From now on SIGINT, SIGTERM and SIGHUP are noticed in the functions below, and nowhere else. */
void wait_for_signals(void);

/* In a child, before exec: signals do again what they did before. */
void wait_undo_in_child(void);

/* ms on CLOCK_MONOTONIC, `ms` from now. */
int64_t wait_deadline(int64_t ms);

/* Waits until one of fds has something. 0; -ETIMEDOUT at the deadline; -EINTR after a signal. */
int wait_fds(struct pollfd *fds, nfds_t n, int64_t deadline);

/* One fd, to read from or at its end. */
int wait_readable(int fd, int64_t deadline);

/* Lets ms pass, between two looks at something that can't be polled. 0, -ETIMEDOUT if the deadline
 * has passed already, -EINTR. */
int wait_pause(int64_t ms, int64_t deadline);

#endif
