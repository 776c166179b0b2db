/* SPDX-License-Identifier: MIT
 *
 * What a test shares with a daemon whose allocations fail: a file that both map.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#define FAILMALLOC_ENV "GPUSHM_TEST_FAILMALLOC" /* the path of the file */

struct failmalloc {
	_Atomic long left; /* the left-th allocation from now fails; 0: none */
};
