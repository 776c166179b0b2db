/* SPDX-License-Identifier: MIT
 *
 * The HTTP server: which resource a request means, and the connections.
 */
#pragma once

#include "client/relay/config.h"
#include "client/relay/offer/offers.h"

/* Serves the socket, each connection on a thread of its own, until the process ends. loopback: only
 * this machine reaches it. config: for the start; requests are served by config_current(). All is
 * borrowed. 0; or -1, with the reason on stderr. */
int server_start(int socket, bool loopback, const struct config *config, struct offers *offers);

/* Where other machines can connect, mutual TLS is the rule. If not, the reason is on stderr. */
bool server_is_safe(const struct config *c, bool loopback);

/* Sets the limits of all connections. */
void server_limit(const struct config *c);
