/* SPDX-License-Identifier: MIT
 *
 * The fake driver of tests/fakecuda, for tests with real daemons.
 */
#pragma once

#include <stdbool.h>

/* Returns whether libcuda.so.1 is the fake driver; if not, prints "skipped: why". */
bool fake_is_here(void);

/* In each process that starts from now on the n-th such call hangs until fake_let_go(). */
void fake_hang(unsigned n, const char *call);
void fake_let_go(void);
/* Ends this for processes that start from now on, and removes the file; call it at the end of a
 * test, too. */
void fake_forget(void);
