/* SPDX-License-Identifier: MIT
 *
 * Waits for the other end of a pipe, which a load reads from or a save writes to. It owns nothing.
 */
#pragma once

#include "client/models/web/stop.h"

#include <stdbool.h>

#define PIPE_LOOK_AGAIN_MS 100 /* whether to stop is asked so often */

/* Blocks until there are data (POLLIN) or space (POLLOUT), or the other end was closed. A signal
 * does not end the wait, but whether to stop is asked at once then. False: it was stopped. */
bool pipe_wait(int fd, short events, struct load_stop stop);
