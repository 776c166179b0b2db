/* SPDX-License-Identifier: MIT
 *
 * The driver as the bench calls it.
 */
#pragma once

#include "tests/gpu/driver.h"

extern struct driver gpu;

/* Ends the process if the call fails. */
#define GPU_MUST(call) gpu_must(#call, call)
void gpu_must(const char *call, CUresult result);
