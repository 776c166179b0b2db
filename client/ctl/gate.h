/* SPDX-License-Identifier: MIT
 *
 * How `gpushmctl publish NAME` reaches the `gpushmctl put --hold` or `create --hold` that holds the
 * buffer: only the process that created a buffer can publish it.
 */
#ifndef GPUSHM_CLIENT_CTL_GATE_H
#define GPUSHM_CLIENT_CTL_GATE_H

#include "client/ctl/ctl.h"

/* Listens at the buffer's gate, says so on stdout, and publishes the buffer when it is asked to;
 * state: as what, unless the one who asks says. Returns when it is published, or when the daemon
 * has gone. An exit code. */
int gate_keep(struct ctl *ctl, struct gpushm_buffer *b, enum gpushm_state state);

/* Asks who holds the buffer to publish it. state: 0 leaves that to the holder. An exit code;
 * CTL_NOT_FOUND, silently, where nobody listens. */
int gate_ask(struct ctl *ctl, const char *name, unsigned state);

#endif
