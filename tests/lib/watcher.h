/* SPDX-License-Identifier: MIT
 *
 * The fixture that tests of watches share: one watch, and the events that it must deliver. Failures
 * end the Check test.
 */
#pragma once

#include "client/gpushm_query.h"
#include "tests/lib/role.h"

#include <stdint.h>

#define WATCHER_LONG_MS 60000u /* only a hang takes so long */

extern struct gpushm_watch *w;

/* Makes the watch on the connection of tests/lib/client.h. The caller frees it. */
void watcher_begin(void);

/* The next event of a watch; and the event that w must deliver next, of which the id of the name's
 * buffer before is returned. */
struct gpushm_event watcher_next(struct gpushm_watch *watch);
uint64_t watcher_expect(enum gpushm_event_kind what, const char *name, uint64_t id);
void watcher_expect_nothing(void);

/* Returns when the daemon has the WATCH request, so that the next change is reported in its reply.
 */
void watcher_settle(void);

/* A shared buffer. */
struct gpushm_buffer *watcher_shared(const char *name);

/* For a program's table of roles: { "holder", watcher_holder_role }. how: "write" opens the name
 * for writing, "watch" watches it. This is done when watcher_start() returns; the process then
 * waits until it is killed. */
int watcher_holder_role(char **args);
void watcher_start(struct role_process *p, const char *socket, const char *name, const char *how);
void watcher_kill(struct role_process *p);

/* Fails if the next line that the role prints is another one. */
void watcher_hear(struct role_process *p, const char *expected);
