/* SPDX-License-Identifier: MIT
 *
 * Counts of the calls of each function of the driver, of all threads, since the daemon started.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define DRIVER_CALLS_MAX 64u

struct driver_call {
	char name[48]; /* "cuMemCreate" */
	uint64_t count, failed, ns;
};

/* Those that have been made; a call that has not returned is not counted yet. Returns their number.
 * In cuda.c or nocuda.c. */
size_t driver_calls(struct driver_call ret[DRIVER_CALLS_MAX]);
