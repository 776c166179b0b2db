/* SPDX-License-Identifier: MIT
 *
 * As client.h's daemon and connection for a test, which must hold at its end exactly what they held
 * at its beginning: what a hostile client was about comes to nothing.
 */
#ifndef GPUSHM_TESTS_LIB_COUNTED_H
#define GPUSHM_TESTS_LIB_COUNTED_H

#include "tests/lib/census.h"
#include "tests/lib/client.h"

extern struct census before;

/* For fixtures. What else a test connects it closes before the end. */
void counted_setup(const char *config);
void counted_teardown(void);

#endif
