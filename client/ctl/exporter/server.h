/* SPDX-License-Identifier: MIT
 *
 * The HTTP server: GET /metrics, and a page at / that links to it.
 */
#pragma once

#include "client/ctl/exporter/collector.h"

/* Serves at ADDRESS:PORT, as 127.0.0.1:9400, [::1]:9400, localhost:0 or :9400 (all addresses), on a
 * thread of its own, until the process ends. 0; or -1, with the reason on stderr. */
int metrics_server_start(const char *address, struct collector *c);
