/* SPDX-License-Identifier: MIT
 *
 * Runs a function in a forked child of the test.
 */
#pragma once

/* Returns what fn returned in the child, or minus the signal that ended the child. The result is
 * not the exit status: valgrind sets that, because it counts what the parent's threads own as lost
 * in the child. The child is killed after ten seconds. */
int forked(int (*fn)(void *arg), void *arg);
