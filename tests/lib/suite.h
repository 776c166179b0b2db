/* SPDX-License-Identifier: MIT
 *
 * The last line of each test program's main().
 */
#pragma once

#include <check.h>
#include <stdbool.h>

/* A sanitizer keeps freed memory for a while, and takes more of it. */
bool suite_is_sanitized(void);
/* ThreadSanitizer, where everything takes ten times as long. */
bool suite_has_tsan(void);

/* Waits for other programs that call it to end. For those that leave descriptors in flight or need
 * to: the kernel counts them for each user, not for each daemon. */
void suite_alone(void);

/* Runs the cases (TCase *, NULL at the end). Returns the exit status: 0 if none has failed. */
int suite_run(const char *name, ...) __attribute__((sentinel));
