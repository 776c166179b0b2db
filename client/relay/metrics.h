/* SPDX-License-Identifier: MIT
 *
 * GET /metrics: what the relay counts, for Prometheus. gpushm-relay(8) describes the names.
 */
#pragma once

#include "client/relay/serve/exchange.h"

enum MHD_Result metrics_get(const struct exchange *x);
