/* SPDX-License-Identifier: MIT
 *
 * One error of the daemon: a code for programs and a text for people.
 */
#pragma once

#include "proto/code.h"

struct fault {
	enum code code;
	char text[384]; /* what happened, to which name, and what to do */
};

/* Fills *f and returns -code_to_errno(code), so that a check is one line: return fault(f, ...). */
int fault(struct fault *f, enum code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
