/* SPDX-License-Identifier: MIT
 *
 * POST /v1/nixl/NAME: lets a puller read a buffer by NIXL, instead of GET /v1/buffers/NAME.
 *
 * A buffer in host memory is registered as it is mapped, once for all its pullers; one of a GPU if
 * the configuration says that network cards read GPUs (nixl-gpu). Others, and those that are still
 * being pulled or have strides, are read through a ring of host memory that the puller's requests
 * fill: one ring for a session.
 *
 * Sessions are bounded in number, and end when no request has named them for a minute: a puller
 * that vanishes holds neither memory nor the buffer for longer. Any connection that may read the
 * buffer, and knows the session's random name, may use it.
 */
#pragma once

#include "client/relay/serve/exchange.h"

/* Before other threads start: it sets what UCX reads from the environment, and says on stderr if
 * the configuration wants NIXL and this machine has none. Starts the thread that ends sessions
 * which nobody uses. */
void nixl_prepare(const struct config *c);

enum MHD_Result nixl_post(const struct exchange *x);

/* How many sessions there are, and how many pieces of memory NIXL knows for them. */
void nixl_count(unsigned *ret_sessions, unsigned *ret_regions);
