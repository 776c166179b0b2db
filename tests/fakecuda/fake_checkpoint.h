/* SPDX-License-Identifier: MIT
 *
 * Processes whose use of the driver another process stops: cuCheckpointProcess*.
 */
#pragma once

#include "tests/fakecuda/fake_call.h"

/* Returns when no other process has this one locked or checkpointed. */
void checkpoint_wait(void);
/* This process has got an import, or let go of one. */
void checkpoint_count_imports(int more);
