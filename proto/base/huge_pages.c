/* SPDX-License-Identifier: MIT */
#include "proto/base/huge_pages.h"

#include "proto/base/clock.h"

#include <sys/mman.h>
#include <sys/stat.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* asm-generic/mman-common.h */
#endif

/* Of the thread's own time. A kernel that puts pieces of memory together, or a hypervisor that has
 * none of this size, takes longer than page faults do, which is 0.2 to 2 ms. */
#define SLOW_NS 4000000u
#define PAUSE_NS 10000000000u /* until this process tries again */

static _Atomic uint64_t next_ns; /* CLOCK_MONOTONIC */

static bool make(char *at)
{
	uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	/* An empty range has nothing to collapse: one page first. */
	if (madvise(at, 1, MADV_POPULATE_WRITE) < 0 || madvise(at, HUGE_PAGE, MADV_COLLAPSE) < 0)
		return false;
	if (clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin < SLOW_NS)
		return true;
	next_ns = clock_monotonic_ns() + PAUSE_NS;
	return false;
}

void huge_pages_init(struct huge_pages *h, char *start, uint64_t bytes, int fd)
{
	struct stat st;

	h->start = start;
	h->bytes = bytes - bytes % HUGE_PAGE; /* the rest has small ones */
	h->off = h->bytes == 0 || (uintptr_t)start % HUGE_PAGE != 0 ||
		 clock_monotonic_ns() < next_ns || fstat(fd, &st) < 0 ||
		 (uint64_t)st.st_blocks * 512 >= bytes;
}

bool huge_pages_make(struct huge_pages *h, uint64_t offset, uint64_t n)
{
	uint64_t end = offset + n;

	if (end > h->bytes)
		return false;
	for (offset -= offset % HUGE_PAGE; offset < end && !h->off; offset += HUGE_PAGE)
		if (!make(h->start + offset))
			h->off = true;
	return !h->off;
}
