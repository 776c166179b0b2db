/* SPDX-License-Identifier: MIT */
#include "proto/base/huge_pages.h"

#include "proto/base/clock.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* asm-generic/mman-common.h */
#endif

#define AT_ONCE 8u /* pages: each call waits until all processors have done something for it */

/* 512 page faults take 0.2 to 2 ms. A kernel that puts pieces of memory together, a hypervisor that
 * has none of this size, or processors that are very busy, take longer for a huge page. */
#define SLOW_NS 4000000u
#define PAUSE_NS 10000000000u /* until this process tries again */

/* Nothing is tried any more at SCORE_OFF. */
#define SCORE_SLOW 4u /* this thread may have had no processor meanwhile */
#define SCORE_BUSY 1u /* another thread was in the same page */
#define SCORE_OFF 8u

static _Atomic uint64_t next_ns; /* CLOCK_MONOTONIC */

void huge_pages_init(struct huge_pages *h, char *start, uint64_t bytes, int fd)
{
	struct stat st;

	h->start = start;
	h->bytes = bytes - bytes % HUGE_PAGE;
	h->next = 1;
	h->score = 0;
	/* With larger pages MADV_COLLAPSE can do nothing and return 0. */
	h->off = h->bytes == 0 || (uintptr_t)start % HUGE_PAGE != 0 || getpagesize() != 4096 ||
		 clock_monotonic_ns() < next_ns || fstat(fd, &st) < 0 ||
		 (uint64_t)st.st_blocks * 512 >= bytes;
}

/* 0, or a negative errno. */
static int collapse(char *at, size_t pages)
{
	/* An empty range has nothing to collapse: a small page first. */
	for (size_t i = 0; i < pages; i++)
		if (madvise(at + i * HUGE_PAGE, 1, MADV_POPULATE_WRITE) < 0)
			return -errno;
	return madvise(at, pages * HUGE_PAGE, MADV_COLLAPSE) < 0 ? -errno : 0;
}

static bool make(struct huge_pages *h, char *at, unsigned pages)
{
	uint64_t begin = clock_monotonic_ns();
	int r = collapse(at, pages);
	bool slow = r == 0 && clock_monotonic_ns() - begin >= pages * SLOW_NS;

	if (r == 0 && !slow) {
		h->score = 0;
		h->next = pages * 2 < AT_ONCE ? pages * 2 : AT_ONCE;
		return true;
	}
	h->next = 1;
	h->score += slow ? SCORE_SLOW : r == -EAGAIN ? SCORE_BUSY : SCORE_OFF;
	if (h->score < SCORE_OFF)
		return r == 0;
	if (slow)
		next_ns = clock_monotonic_ns() + PAUSE_NS;
	h->off = true;
	return r == 0;
}

bool huge_pages_make(struct huge_pages *h, const void *at, uint64_t n)
{
	uint64_t offset = (uintptr_t)at - (uintptr_t)h->start, end = offset + n;
	bool all = n >= HUGE_PAGE && end <= h->bytes;

	for (offset -= offset % HUGE_PAGE; all && offset < end;) {
		uint64_t left = (end - offset + HUGE_PAGE - 1) / HUGE_PAGE;
		unsigned pages = h->next < left ? h->next : (unsigned)left;

		all = !h->off && make(h, h->start + offset, pages);
		offset += pages * HUGE_PAGE;
	}
	return all;
}
