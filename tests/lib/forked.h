/* SPDX-License-Identifier: MIT
 *
 * A function in a forked child of the test.
 */
#ifndef GPUSHM_TESTS_LIB_FORKED_H
#define GPUSHM_TESTS_LIB_FORKED_H

/* What fn returned there, or minus the signal that ended it. Not by the exit status: that is
 * valgrind's, which counts what the parent's threads had as lost in the child. The child is given
 * ten seconds. */
int forked(int (*fn)(void *arg), void *arg);

#endif
