/* SPDX-License-Identifier: MIT
 *
 * Memory of a memfd that is written for the first time: one huge page takes a fifth of the time of
 * its 512 page faults, or less, and whoever maps it later has one fault.
 *
 * MADV_COLLAPSE (Linux 6.1, madvise(2)) makes one, whatever /sys/kernel/mm/transparent_hugepage
 * says for shared memory. It loses nothing that is there or is being written. Where it fails, since
 * the kernel, the processor or a cgroup has no such pages, the memory is as before.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* A mapping, shared and writable. */
struct huge_pages {
	char *start;
	uint64_t bytes;
	_Atomic bool off; /* there are none, or it took longer than page faults to make one */
};

/* Of that memfd, from its start. There are none where it has all its pages, or is not mapped at a
 * multiple of HUGE_PAGE. */
void huge_pages_init(struct huge_pages *h, char *start, uint64_t bytes, int fd);

/* Makes those that hold these bytes, which the caller is about to write. True: they are there, so
 * that no store raises SIGBUS. Any number of threads may call it. */
bool huge_pages_make(struct huge_pages *h, uint64_t offset, uint64_t n);
