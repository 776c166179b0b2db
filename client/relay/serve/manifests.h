/* SPDX-License-Identifier: MIT
 *
 * GET /v1/manifests/NAME: what client/models/web/manifest.h describes; and the wait for another
 * one.
 */
#pragma once

#include "client/relay/serve/exchange.h"

enum MHD_Result manifests_get(const struct exchange *x);
