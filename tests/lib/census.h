/* SPDX-License-Identifier: MIT
 *
 * Counts what a daemon holds before and after a test: from its STATUS reply, and from what the
 * kernel shows in /proc. Failures end the Check test.
 */
#pragma once

#include "client/gpushm.h"
#include "tests/lib/daemon.h"

/* One pool of host memory that keeps nothing that was freed, so that fds can be counted. */
#define CENSUS_CONFIG "[pool host]\nkind=host\nsize=1G\npending-max-age=0\n"

struct census {
	uint32_t peers, buffers, leases, suspects, waiting;
	uint32_t fds; /* in /proc/PID/fd */
};

void census_take(const struct daemon *d, struct gpushm *c, struct census *ret);

/* The number of the process's open files whose names in /proc/PID/fd start with prefix. */
uint32_t census_files(pid_t pid, const char *prefix);

/* Waits until the daemon holds exactly this again; if expected->fds is 0, any number of fds is
 * right. */
void census_await(const struct daemon *d, struct gpushm *c, const struct census *expected);

/* The number of connections that the daemon has closed for breaking the protocol; each has one line
 * in its log. */
unsigned census_violations(const struct daemon *d, struct gpushm *c);

/* Resident memory, in KiB; and the part of it that is in no file. */
long census_rss(const struct daemon *d);
long census_anonymous(const struct daemon *d);
