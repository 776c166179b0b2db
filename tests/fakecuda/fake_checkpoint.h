/* SPDX-License-Identifier: MIT
 *
 * Processes whose use of the driver another process stops: cuCheckpointProcess*.
 */
#pragma once

#include "tests/fakecuda/fake_call.h"

/* Returns when no other process has this one locked or checkpointed. False: it is checkpointed, and
 * the call imports memory, which fails with CUDA_ERROR_OPERATING_SYSTEM then (driver 580.159). */
bool checkpoint_wait(const char *call);
/* This process has got an import, or let go of one. */
void checkpoint_count_imports(int more);
