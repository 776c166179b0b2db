/* SPDX-License-Identifier: MIT
 *
 * Runs a program to its end. If that fails, the Check test ends.
 */
#pragma once

#include <stddef.h>

/* Runs path (args ends with NULL and has no argv[0]); what it wrote to stdout and stderr is in
 * text, cut at size. Returns its exit status, or 128 and the signal that ended it. */
int run_program(const char *path, const char *const *args, char *text, size_t size);
