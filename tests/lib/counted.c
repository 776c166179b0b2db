/* SPDX-License-Identifier: MIT
 *
 * Counts before and after a test.
 */
#include "tests/lib/counted.h"

struct census before;

void counted_setup(const char *config)
{
	client_setup_with(config);
	census_take(&d, c, &before);
}

void counted_teardown(void)
{
	census_await(&d, c, &before);
	client_teardown();
}
