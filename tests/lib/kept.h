/* SPDX-License-Identifier: MIT
 *
 * The daemon and the connection c of client.h, but the daemon has a supervisor and may die.
 */
#pragma once

#include "tests/lib/client.h"
#include "tests/lib/supervisor.h"

extern struct supervisor k;

/* For tcase_add_checked_fixture(). The teardown expects that every pool is empty again, that no fd
 * of a buffer is stored, and that the daemon has as many fds as at the beginning. */
void kept_setup(void);
void kept_teardown(void);

/* Sends SIGKILL, starts the next daemon and waits until it is ready. */
void kept_crash(void);
