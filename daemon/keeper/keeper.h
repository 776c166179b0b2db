/* SPDX-License-Identifier: MIT
 *
 * The keeper: gpushmd's own parent, where no other program keeps the daemon's fds. It starts the
 * daemon, starts it again when it dies, and keeps its fds meanwhile, as systemd does for a service
 * with an fd store.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>

#define KEEPER_KILLED SIGRTMIN /* what the kernel sends to the daemon then */

/* Whether nobody else keeps fds for this process. */
bool keeper_is_needed(void);

/* Runs the daemon as a child, again and again, from the file that this process was started from,
 * with the same arguments; argv is main()'s. Returns the exit status for this process: that of the
 * daemon that it was told to end, or of a first daemon that could not start. */
int keeper_run(char *const *argv);
