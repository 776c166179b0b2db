/* SPDX-License-Identifier: MIT
 *
 * The clock of deadlines.
 */
#ifndef GPUSHM_CLIENT_CLOCK_H
#define GPUSHM_CLIENT_CLOCK_H

#include <stdint.h>
#include <time.h>

/* ms, CLOCK_MONOTONIC. */
static inline uint64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

#endif
