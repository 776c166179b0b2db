/* SPDX-License-Identifier: MIT
 *
 * A daemon without its sockets and two clients, for fuzzing: each thing that clients can do to a
 * daemon is a function here, and nothing else is. A reply that breaks a rule aborts, and so does
 * anything that is left at the end.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CLIENTS 2u

/* Makes what lasts from one input to the next. With FUZZ_REQUEST_COUNTS in the environment, the
 * exit prints how often each request got which code. */
void world_init(void);

/* Makes a daemon with the pools "host" (1 MiB, the default one), "small" (64 KiB, for uid 1000
 * alone) and "gpu0" (failed), low limits, and client 0 of uid 1000 and client 1 of uid 2000
 * connected. */
void world_make(void);

/* Ends the daemon in its own order; then everything must be gone: accounts, pools, fds. */
void world_end(void);

/* Runs the loop until the worker has nothing left to do. */
void world_settle(void);

/* A frame arrives. Does nothing if the client is not connected or waits for a reply. */
void world_request(unsigned who, const uint8_t *frame, size_t len);

/* The connection closes; in world_die() the process ends as well. */
void world_disconnect(unsigned who);
void world_die(unsigned who);

/* A new process and connection, if the last one has closed. The two lowest bits of `as` choose the
 * user; if the next bit is set, HELLO has been sent already. */
void world_connect(unsigned who, unsigned as);

void world_deafen(unsigned who); /* its next reply can't be sent */
void world_be_late(void);	 /* all deadlines expire */
void world_flush(void);		 /* the pools give back what is pending */
