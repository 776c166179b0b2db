/* SPDX-License-Identifier: MIT
 *
 * Text from outside, made safe for a terminal and for one line of a log.
 */
#ifndef GPUSHM_DAEMON_UTIL_ESCAPE_H
#define GPUSHM_DAEMON_UTIL_ESCAPE_H

#include <stddef.h>

/* Copies len bytes to ret, with control characters (C0, DEL, and C1 as UTF-8 has them), backslashes
 * and what is no UTF-8 as \xNN. Ends with a NUL; what does not fit is cut between characters. size
 * is at least 1. Returns the length of ret. */
size_t escape(const char *text, size_t len, char *ret, size_t size);

#endif
