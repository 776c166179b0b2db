/* SPDX-License-Identifier: MIT
 *
 * Counts the open fds around a test. Made to be a checked fixture of every test case:
 *
 *	tcase_add_checked_fixture(tc, fds_mark, fds_check);
 */
#pragma once

/* Remembers the fds that this process has open now, and the file of each. */
void fds_mark(void);

/* Prints which fds are new, gone, or another file than at fds_mark(), and returns how many. */
int fds_leaked(void);

/* Fails the test if fds_leaked(). */
void fds_check(void);
