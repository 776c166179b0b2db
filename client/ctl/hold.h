/* SPDX-License-Identifier: MIT
 *
 * Keeping a lease for a script: until its input ends.
 */
#ifndef GPUSHM_CLIENT_CTL_HOLD_H
#define GPUSHM_CLIENT_CTL_HOLD_H

#include "client/ctl/ctl.h"

/* Reads standard input and throws it away until it ends, or the daemon goes. An exit code. */
int hold_until_eof(struct ctl *ctl);

#endif
