/* SPDX-License-Identifier: MIT
 *
 * A daemon that restarts by exec, of a copy of the program that a test may change, and a connection
 * to it.
 */
#ifndef GPUSHM_TESTS_LIB_REEXEC_H
#define GPUSHM_TESTS_LIB_REEXEC_H

#include "tests/lib/client.h"

/* For tcase_add_checked_fixture(), with client_teardown(). */
void reexec_setup(void);

/* Has it restart, and waits until it is ready. */
void reexec_restart(void);

/* Stops it by SIGTERM, starts another one, and connects to that. */
void reexec_replace(void);

/* Owned by the caller. */
struct gpushm_status *reexec_status(void);

/* A published buffer, with contents that follow from its name and one attribute. pool: NULL for the
 * default one. */
struct gpushm_buffer *reexec_make(const char *pool, const char *name, enum gpushm_state state);
void reexec_check(struct gpushm_buffer *b, const char *name);

#endif
