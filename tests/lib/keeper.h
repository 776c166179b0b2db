/* SPDX-License-Identifier: MIT
 *
 * The real keeper as a test's supervisor: what supervisor.c does over it.
 */
#pragma once

#include "tests/lib/supervisor.h"

/* In the notification that the keeper passes on when its daemon has died. */
#define KEEPER_RESTARTS "STATUS=the daemon died"

/* Lets the keeper start the next daemon, at once. */
void keeper_start_now(struct supervisor *k);

/* Waits until it has, and sets k->pid. */
void keeper_await_start(struct supervisor *k);

/* As supervisor_has_died(). */
bool keeper_has_lost(struct supervisor *k);

/* Sends the daemon this signal and waits for its end. Unless k->never_held, the keeper is stopped
 * first, so that the next daemon starts with keeper_start_now(). Returns the status of waitpid(),
 * which nobody knows with k->never_held: 0 or the signal. */
int keeper_end_daemon(struct supervisor *k, int signal);

/* Ends the keeper, whether or not it has a daemon. */
void keeper_end(struct supervisor *k);

/* As supervisor_count(). */
size_t keeper_count(struct supervisor *k, char letter);

/* The only child of that process, which may have ended; 0: there is none. */
pid_t keeper_child(pid_t keeper);
