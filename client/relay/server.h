/* SPDX-License-Identifier: MIT
 *
 * The HTTP server: which resource a request means, and the connections.
 */
#pragma once

#include "client/relay/config.h"
#include "client/relay/fanout.h"
#include "client/relay/offers.h"

/* Listens at ADDRESS:PORT, as 127.0.0.1:19401, [::1]:19401, localhost:0 or :19401 (all addresses).
 * Returns the socket; or -1, with the reason on stderr. */
int server_listen(const char *address);

/* Serves the socket, each connection on a thread of its own, until the process ends. All is
 * borrowed. 0; or -1, with the reason on stderr. */
int server_start(int socket, const struct config *config, struct offers *offers,
		 struct fanout *fanout);
