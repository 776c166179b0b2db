/* SPDX-License-Identifier: MIT
 *
 * A storm: dozens of clients, each a process that creates, publishes, opens, checks, closes and
 * unlinks by chance, and is killed now and then; what comes after it sees to what it left. What
 * happens to the daemon meanwhile is the test's affair. Failures end the Check test.
 *
 * STORM_SEED, printed by each run, makes the same choices again; STORM_SECONDS says how long.
 */
#ifndef GPUSHM_TESTS_LIB_STORM_H
#define GPUSHM_TESTS_LIB_STORM_H

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
	uint32_t fds; /* enough for a daemon that has nothing; 0: not known */
};

unsigned storm_seconds(unsigned otherwise);

/* Starts the clients, in the role "stormer" of the test's program; conn is only borrowed. */
void storm_begin(struct storm *s, const char *socket, struct gpushm *conn);

/* Counts the fds of a daemon that has nothing and has used each pool once. */
void storm_measure(struct storm *s, struct gpushm *conn);

unsigned storm_choose(struct storm *s, unsigned n);

/* SIGKILL, for one that is chosen, and another in its place. */
void storm_kill_client(struct storm *s);

/* A client that finds something wrong ends. */
void storm_expect_all_alive(struct storm *s);

/* Ends the clients, each having checked what it has; then checks and unlinks all that is there: the
 * contents by their checksums, that charges, leases and used memory are the sums of what is listed,
 * and that in the end nothing is left: no buffer, byte, lease, connection, process or fd. */
void storm_end(struct storm *s, struct gpushm *conn);

#endif
