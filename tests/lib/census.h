/* SPDX-License-Identifier: MIT
 *
 * What a daemon holds, counted before and after a test: by its own words (STATUS) and by what the
 * kernel says of it (/proc). Failures end the Check test.
 */
#ifndef GPUSHM_TESTS_LIB_CENSUS_H
#define GPUSHM_TESTS_LIB_CENSUS_H

#include "client/gpushm.h"
#include "tests/lib/daemon.h"

/* One pool of host memory that keeps nothing that was freed, so that fds can be counted. */
#define CENSUS_CONFIG "[pool host]\nkind=host\nsize=1G\npending-max-count=0\n"

struct census {
	uint32_t peers, buffers, leases, suspects, waiting;
	uint32_t fds; /* in /proc/PID/fd */
};

void census_take(const struct daemon *d, struct gpushm *c, struct census *ret);

/* How many files the process has open whose names in /proc/PID/fd start so. */
uint32_t census_files(pid_t pid, const char *prefix);

/* Waits until the daemon holds exactly that again; expected fds 0: any number of them. */
void census_await(const struct daemon *d, struct gpushm *c, const struct census *expected);

/* Peers that the daemon has closed for breaking the protocol; each has one line in its log. */
unsigned census_violations(const struct daemon *d, struct gpushm *c);

/* Resident memory, in KiB. */
long census_rss(const struct daemon *d);

#endif
