/* SPDX-License-Identifier: MIT
 *
 * Huge pages for memory of a memfd that is written for the first time. The kernel makes one in as
 * little as a fifth of the time that 512 page faults take. A process that maps the memory later has
 * one page fault for each.
 *
 * MADV_COLLAPSE (Linux 6.1, madvise(2)) makes one, whatever /sys/kernel/mm/transparent_hugepage
 * says for shared memory. It loses nothing that is there or is being written. Where it fails, since
 * the kernel, the processor or a cgroup has no such pages, the memory is as before. A machine can
 * be slow at it, so it is tried with one page first, then with more at a time.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* A mapping, shared and writable. All zero: it has no huge pages. */
struct huge_pages {
	char *start;
	uint64_t bytes;	       /* a multiple of HUGE_PAGE: the rest of the memory has small pages */
	_Atomic bool off;      /* no more are made */
	_Atomic unsigned next; /* pages of the next call */
	_Atomic unsigned score; /* of what went wrong since the last call that did not */
};

/* That memfd is mapped there from its start. Makes none if it has all its pages already, or is not
 * mapped at a multiple of HUGE_PAGE. */
void huge_pages_init(struct huge_pages *h, char *start, uint64_t bytes, int fd);

/* Makes those that hold these n bytes, which the caller is about to write, if there are HUGE_PAGE
 * of them or more. True: they are there, so that no store raises SIGBUS. Any number of threads may
 * call it. */
bool huge_pages_make(struct huge_pages *h, const void *at, uint64_t n);
