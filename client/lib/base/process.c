/* SPDX-License-Identifier: MIT
 *
 * One page of state that a forked child finds wiped. In the child a locked mutex would stay locked
 * for ever, the list of maps would name memory that only the parent has mapped on its GPU, and a
 * connection would write into the parent's requests. The kernel wipes the page itself
 * (MADV_WIPEONFORK, Linux 4.14), so that any fork, a raw clone() included, is noticed without a
 * system call. Where a sandbox's kernel lacks it, an atfork handler wipes the page after fork()
 * alone.
 *
 * What the parent's page pointed to stays allocated in the child and is never used there.
 */
#include "client/lib/base/process.h"

#include <string.h>
#include <sys/mman.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
struct process *_Atomic process_page;
static _Atomic uint64_t last_generation; /* not wiped: a child continues its parent's count */

static void wipe(void)
{
	memset(process_page, 0, sizeof(*process_page));
}

static void map_page(void)
{
	struct process *memory = mmap(NULL, sizeof(*memory), PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return;
	if (madvise(memory, sizeof(*memory), MADV_WIPEONFORK) < 0 &&
	    pthread_atfork(NULL, NULL, wipe) != 0)
		munmap(memory, sizeof(*memory));
	else
		process_page = memory;
}

struct process *process_make(void)
{
	pthread_once(&once, map_page);
	return process_page;
}

uint64_t process_number(void)
{
	struct process *p = process();
	uint64_t seen = 0, fresh;

	if (!p)
		return 0;
	/* Two threads may get here at once: the first one's number is taken. */
	fresh = atomic_fetch_add(&last_generation, 1) + 1;
	return atomic_compare_exchange_strong(&p->generation, &seen, fresh) ? fresh : seen;
}
