/* SPDX-License-Identifier: MIT
 *
 * The last line of each test program's main().
 */
#pragma once

#include <check.h>

/* Runs the cases (TCase *, NULL at the end). Returns the exit status: 0 if none has failed. */
int suite_run(const char *name, ...) __attribute__((sentinel));
