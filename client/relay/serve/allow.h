/* SPDX-License-Identifier: MIT
 *
 * Which clients may read which buffers.
 */
#pragma once

#include "client/relay/config.h"

/* Who a connection's other side is. */
struct peer {
	char address[64];     /* without the port */
	struct strings names; /* of its certificate; none without one */
};

/* A client without a certificate may read what is offered, where the relay asks for none. name:
 * NULL: the metrics, for which any section of the client's will do. */
bool allow_read(const struct config *c, const struct peer *p, const char *name);
