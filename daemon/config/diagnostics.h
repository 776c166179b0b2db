/* SPDX-License-Identifier: MIT
 *
 * What is wrong with configuration files, told as it is found and counted, so that one run tells
 * all of it.
 */
#ifndef GPUSHM_DAEMON_CONFIG_DIAGNOSTICS_H
#define GPUSHM_DAEMON_CONFIG_DIAGNOSTICS_H

#include <stddef.h>
#include <stdio.h>

struct diagnostics {
	FILE *out;	  /* borrowed */
	const char *file; /* borrowed: the one that is being read */
	size_t n;	  /* so far, over all files */
};

/* Writes "FILE:LINE: text", or "FILE: text" where line is 0, with control characters escaped. */
void diagnostics_add(struct diagnostics *c, unsigned line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
