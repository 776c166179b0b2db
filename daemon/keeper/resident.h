/* SPDX-License-Identifier: MIT
 *
 * The keeper's resident memory: most of what a program has in memory it needed for its start only.
 */
#pragma once

/* Gives pages back to the kernel that can be read again from the program's files, and what malloc
 * keeps of freed memory. It takes some 100 us, and the pages that are needed afterwards are
 * mapped again from the page cache. */
void resident_give_back(void);
