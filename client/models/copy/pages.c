/* SPDX-License-Identifier: MIT
 *
 * One thread clears 8 GB/s, four 24; eight are slower again (tests/bench/RESULTS.md).
 */
#include "client/models/copy/pages.h"

#include "client/models/crew.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define PART (4 * HUGE_PAGE) /* that a thread clears at a time */
#define THREADS 4u

static size_t page_align(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) & ~(page - 1);
}

/* ---- the threads ---- */

struct region {
	char *at;
	size_t bytes;
};

/* Before Linux 5.14 this does nothing, and the driver clears the pages. */
static int populate(struct crew *crew, unsigned thread, void *user)
{
	const struct region *all = user;
	uint64_t part;

	(void)thread;
	while (crew_next(crew, &part)) {
		size_t from = part * PART, left = all->bytes - from;

		madvise(all->at + from, left < PART ? left : PART, MADV_POPULATE_WRITE);
	}
	return 0;
}

/* ---- the memory ---- */

/* Aligned to HUGE_PAGE. */
static char *map(size_t bytes)
{
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *all = mmap(NULL, bytes + HUGE_PAGE, prot, flags, -1, 0);
	size_t before;

	if (all == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)all & (HUGE_PAGE - 1);
	if (before > 0)
		munmap(all, before);
	munmap(all + before + bytes, HUGE_PAGE - before);
	return all + before;
}

void *pages_new(size_t bytes, const cpu_set_t *cpus)
{
	struct region all = { .bytes = page_align(bytes) };
	const struct crew_work clearing = { .threads = THREADS,
					    .blocks = (all.bytes + PART - 1) / PART,
					    .run = populate,
					    .user = &all,
					    .cpus = cpus };
	uint64_t elapsed_ns;

	all.at = map(all.bytes);
	if (!all.at)
		return NULL;
	madvise(all.at, all.bytes, MADV_DONTFORK);
	madvise(all.at, all.bytes, MADV_HUGEPAGE);
	/* Without threads the driver clears them, which takes longer. */
	(void)crew_run(&clearing, &elapsed_ns);
	return all.at;
}

void pages_free(void *pages, size_t bytes)
{
	munmap(pages, page_align(bytes));
}
