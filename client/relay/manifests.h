/* SPDX-License-Identifier: MIT
 *
 * GET /v1/manifests/NAME: what client/remote/manifest.h describes; and the wait for another one.
 */
#pragma once

#include "client/relay/exchange.h"

enum MHD_Result manifests_get(const struct exchange *x);
