/* SPDX-License-Identifier: MIT
 *
 * GET and HEAD /v1/buffers/NAME: the buffer as a safetensors file, or one range of it; and
 * /v1/buffers, the list.
 */
#pragma once

#include "client/relay/serve/exchange.h"

enum MHD_Result files_get(const struct exchange *x);
enum MHD_Result files_list(const struct exchange *x);
