/* SPDX-License-Identifier: MIT
 *
 * Waiting for the end of standard input, so that a script can keep a buffer open.
 */
#ifndef GPUSHM_CLIENT_CTL_HOLD_H
#define GPUSHM_CLIENT_CTL_HOLD_H

#include "client/ctl/ctl.h"

/* Reads and drops standard input until it ends, or until the daemon is gone. An exit code. */
int hold_until_eof(struct ctl *ctl);

#endif
