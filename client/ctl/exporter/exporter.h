/* SPDX-License-Identifier: MIT
 *
 * The parts of gpushm-exporter: collector.c asks the daemon on a thread of its own, so that a
 * daemon that does not reply delays a scrape by COLLECTOR_MS at most, and never the next one;
 * server.c serves GET /metrics, and a page at / that links to it.
 */
#pragma once

#include "client/common/exposition.h"

#include <stddef.h>

#define COLLECTOR_MS 3000u

struct collector;

/* by: enum snapshot_by. socket: the daemon's; NULL: the library's rule. Both are borrowed as long
 * as the process lives: the thread can't be ended while it waits for a daemon. 0 or -errno. */
int collector_start(const char *socket, unsigned by, struct collector **ret);

/* What the daemon says now, or that it is down; malloc'd. NULL without memory. Any thread. */
char *collector_text(struct collector *c, enum exposition_format format, size_t *ret_len);

/* Serves at ADDRESS:PORT, as 127.0.0.1:9400, [::1]:9400, localhost:0 or :9400 (all addresses), on a
 * thread of its own, until the process ends. 0; or -1, with the reason on stderr. */
int metrics_server_start(const char *address, struct collector *c);
