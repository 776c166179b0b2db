/* SPDX-License-Identifier: MIT
 *
 * User namespaces for tests.
 */
#pragma once

#include <stdbool.h>

/* Moves this process into a new user namespace. map: one line of its uid_map and gid_map, such as
 * "0 1001 1", whose second number is the process's own uid and gid; "": nobody is mapped. Returns
 * whether that worked. */
bool userns_enter(const char *map);

/* Returns whether a process may do so here; if not, prints "skipped: why". */
bool userns_may_enter(void);
