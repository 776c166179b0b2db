/* SPDX-License-Identifier: MIT
 *
 * As client.h's daemon and connection, c, for a test: but the daemon has a keeper, and may die.
 */
#ifndef GPUSHM_TESTS_LIB_KEPT_H
#define GPUSHM_TESTS_LIB_KEPT_H

#include "tests/lib/client.h"
#include "tests/lib/keeper.h"

extern struct keeper k;

/* For tcase_add_checked_fixture(). The end expects that every pool is empty again, that nothing of
 * a buffer is kept, and as many fds as at the beginning. */
void kept_setup(void);
void kept_teardown(void);

/* SIGKILL, and the next one is ready. */
void kept_crash(void);

#endif
