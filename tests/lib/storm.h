/* SPDX-License-Identifier: MIT
 *
 * A storm: dozens of client processes create, publish, open, check, suspend, evict, close and
 * unlink buffers at random, and are killed now and then. The client that replaces a killed one
 * takes care of its buffers. The test decides what happens to the daemon meanwhile. Failures end
 * the Check test.
 *
 * STORM_SEED, which each run prints, repeats the same choices; STORM_SECONDS sets the duration.
 */
#pragma once

#include "client/gpushm.h"
#include "tests/lib/role.h"

#include <stdint.h>

#define STORM_CLIENTS 24
#define STORM_KILLED_MAX 65536

struct storm {
	const char *socket;
	char pools[512];
	uint64_t state; /* of the random choices */
	struct role_process clients[STORM_CLIENTS];
	unsigned ids[STORM_CLIENTS], next_id, n_killed;
	pid_t killed[STORM_KILLED_MAX];
	uint32_t fds; /* what an empty daemon needs at most; 0: unknown */
};

unsigned storm_seconds(unsigned otherwise);

/* Starts the clients in the role "stormer" of the test's program; conn is borrowed. */
void storm_begin(struct storm *s, const char *socket, struct gpushm *conn);

/* Counts the fds of an empty daemon that has used each pool once. */
void storm_measure(struct storm *s, struct gpushm *conn);

unsigned storm_choose(struct storm *s, unsigned n);

/* Kills a random client by SIGKILL and starts another in its place. */
void storm_kill_client(struct storm *s);

/* Fails if a client has ended: it does so when it finds something wrong. */
void storm_expect_all_alive(struct storm *s);

/* Ends the clients; each first checks the buffers that it has. Then checks and unlinks all other
 * buffers: their contents by their checksums; that charges, leases and used memory are the sums of
 * what is listed; and that in the end nothing is left: no buffer, byte, lease, connection, process
 * or fd. */
void storm_end(struct storm *s, struct gpushm *conn);
