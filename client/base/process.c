/* SPDX-License-Identifier: MIT
 *
 * One page of state that a forked child finds wiped. The child's copy of a locked mutex would stay
 * locked for ever, its copy of the list of maps would speak of memory that only the parent has
 * mapped on its GPU, and its copy of a connection would talk into the parent's requests. The kernel
 * wipes the page itself (MADV_WIPEONFORK, Linux 4.14), so that a fork by any road, a raw clone()
 * included, is noticed without a system call. Where a sandbox's kernel lacks it, an atfork handler
 * does the same for fork() alone.
 *
 * What the parent's pages pointed to stays allocated in the child, and is never used there.
 */
#include "client/base/process.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct state *page;
static _Atomic uint64_t last_generation; /* not wiped: a child counts on from its parent's */

static void wipe(void)
{
	memset(page, 0, sizeof(*page));
}

static void map_page(void)
{
	void *memory = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return;
	page = memory;
	if (madvise(memory, sizeof(*page), MADV_WIPEONFORK) < 0 &&
	    pthread_atfork(NULL, NULL, wipe) != 0) {
		munmap(memory, sizeof(*page));
		page = NULL;
	}
}

struct state *state(void)
{
	pthread_once(&once, map_page);
	return page;
}

uint64_t state_generation(void)
{
	struct state *p = state();
	uint64_t seen = 0, fresh;

	if (!p)
		return 0;
	seen = atomic_load(&p->generation);
	if (seen)
		return seen;
	/* Two threads may get here at once: the first one's number counts. */
	fresh = atomic_fetch_add(&last_generation, 1) + 1;
	return atomic_compare_exchange_strong(&p->generation, &seen, fresh) ? fresh : seen;
}
