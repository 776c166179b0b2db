/* SPDX-License-Identifier: MIT
 *
 * A daemon that restarts by exec, from a copy of the program that a test may change, and a
 * connection to the daemon.
 */
#pragma once

#include "tests/lib/client.h"

/* For tcase_add_checked_fixture(), with client_teardown(). */
void reexec_setup(void);

/* Restarts the daemon and waits until it is ready. */
void reexec_restart(void);

/* Stops the daemon by SIGTERM, starts another one, and connects to that one. */
void reexec_replace(void);

/* The caller owns the result. */
struct gpushm_status *reexec_status(void);

/* Makes a published buffer with contents that follow from its name, and one attribute. pool NULL is
 * the default pool. */
struct gpushm_buffer *reexec_make(const char *pool, const char *name, enum gpushm_state state);
void reexec_check(struct gpushm_buffer *b, const char *name);
