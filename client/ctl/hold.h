/* SPDX-License-Identifier: MIT
 *
 * Waiting for the end of standard input, so that a script can keep a buffer open.
 */
#pragma once

#include "client/ctl/ctl.h"

/* Reads and drops standard input until it ends, or until the daemon is gone. An exit code. */
int hold_until_eof(struct ctl *ctl);
