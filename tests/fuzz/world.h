/* SPDX-License-Identifier: MIT
 *
 * A daemon without its sockets and two clients, for fuzzing: what clients can do to a daemon, and
 * nothing else, is a function here. Any answer that breaks a rule, and anything that is left over
 * at the end, aborts.
 */
#ifndef GPUSHM_TESTS_FUZZ_WORLD_H
#define GPUSHM_TESTS_FUZZ_WORLD_H

#include <stddef.h>
#include <stdint.h>

#define CLIENTS 2u

/* What lasts from one input to the next. With FUZZ_REQUEST_COUNTS in the environment, the exit
 * tells how often each verb was answered with which code. */
void world_init(void);

/* A daemon with the pools "host" (1 MiB, the default one), "small" (64 KiB, for uid 1000 alone)
 * and "gpu0" (failed), low limits, and client 0 of uid 1000 and client 1 of uid 2000 connected. */
void world_make(void);

/* The daemon ends in its own order; then everything must be gone: accounts, pools, fds. */
void world_end(void);

/* Runs the loop until the worker has nothing left to do. */
void world_settle(void);

/* A frame arrives. Nothing, where the client is not connected or waits for an answer. */
void world_request(unsigned who, const uint8_t *frame, size_t len);

/* The connection closes; in world_die() the process goes as well. */
void world_disconnect(unsigned who);
void world_die(unsigned who);

/* A new process and connection, where the last one has closed. The two lowest bits of `as` say
 * which user it is, the next one that HELLO is said already. */
void world_connect(unsigned who, unsigned as);

void world_deafen(unsigned who); /* the next answer to it can't be told */
void world_be_late(void);	 /* every deadline comes */
void world_flush(void);		 /* the pools give back what is pending */

#endif
