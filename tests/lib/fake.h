/* SPDX-License-Identifier: MIT
 *
 * The fake driver of tests/fakecuda, as tests of whole daemons see it.
 */
#ifndef GPUSHM_TESTS_LIB_FAKE_H
#define GPUSHM_TESTS_LIB_FAKE_H

#include <stdbool.h>

/* Whether libcuda.so.1 is it; else prints "skipped: why". */
bool fake_is_here(void);

/* The n-th of those calls hangs in each process that starts from now on, until fake_let_go(). */
void fake_hang(unsigned n, const char *call);
void fake_let_go(void);
/* Takes that back, for what starts from now on; at a test's end, too: it leaves no file. */
void fake_forget(void);

#endif
