/* SPDX-License-Identifier: MIT
 *
 * How `gpushmctl publish NAME` reaches the `gpushmctl put --hold` or `create --hold` that holds the
 * buffer.
 */
#pragma once

#include "client/ctl/ctl.h"

/* Prints that the buffer is held, and publishes it when `gpushmctl publish` asks for it, in the
 * given state unless the request has another one. Returns when it is published, or when the daemon
 * is gone. An exit code. */
int publish_when_asked(struct ctl *ctl, struct gpushm_buffer *b, enum gpushm_state state);
