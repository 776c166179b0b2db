/* SPDX-License-Identifier: MIT
 *
 * What tests of watches share: one watch, and what it is expected to tell. Failures end the Check
 * test.
 */
#ifndef GPUSHM_TESTS_LIB_WATCHER_H
#define GPUSHM_TESTS_LIB_WATCHER_H

#include "client/gpushm.h"
#include "tests/lib/role.h"

#include <stdint.h>

#define WATCHER_LONG_MS 60000u /* so long that only a hang takes it */

extern struct gpushm_watch *w;

/* Makes it, on the connection of tests/lib/client.h. Whoever does frees it. */
void watcher_begin(void);

/* The next event of any watch; and the one that w must have. */
struct gpushm_event watcher_next(struct gpushm_watch *watch);
void watcher_expect(enum gpushm_event_kind what, const char *name, uint64_t id);
void watcher_expect_nothing(void);

/* Returns when the daemon has the question, so that what happens next is told as its answer. */
void watcher_settle(void);

/* A shared buffer. */
struct gpushm_buffer *watcher_shared(const char *name);

/* For a program's table of roles: { "holder", watcher_holder_role }. how: "write" opens the name
 * for writing, "watch" watches it; it has done so when watcher_start() returns, and is killed. */
int watcher_holder_role(char **args);
void watcher_start(struct role_process *p, const char *socket, const char *name, const char *how);
void watcher_kill(struct role_process *p);

/* The next line that a role prints must be that. */
void watcher_hear(struct role_process *p, const char *expected);

#endif
