/* SPDX-License-Identifier: MIT
 *
 * The process's own file descriptors: how many are open, and how many may be.
 */
#pragma once

#include <stdint.h>

/* 0 before Linux 6.2, where counting them would cost a look at each. */
uint32_t fds_open(void);

/* RLIMIT_NOFILE; UINT32_MAX: no limit. The kernel lets the user of a process have as many
 * descriptors in flight, too (unix(7), ETOOMANYREFS). */
uint32_t fds_limit(void);

/* Raises that limit as far as the kernel lets us. */
void fds_raise_limit(void);

/* Lowers it, for good. 0 or -errno. */
int fds_lower_limit(uint32_t max);
