/* SPDX-License-Identifier: MIT
 *
 * The file that this process was started from.
 */
#pragma once

/* Its absolute path, as the kernel was given it (AT_EXECFN); the caller frees it. Not
 * /proc/self/exe: that is the old file, also after an update has put another one in its place.
 * NULL: not known. */
char *program_path(void);
