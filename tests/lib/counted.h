/* SPDX-License-Identifier: MIT
 *
 * The daemon and the connection of client.h, for a test after which they must hold exactly what
 * they held before: whatever a hostile client does has no lasting effect.
 */
#pragma once

#include "tests/lib/census.h"
#include "tests/lib/client.h"

extern struct census before;

/* For fixtures. A test closes its other connections before its end. */
void counted_setup(const char *config);
void counted_teardown(void);
