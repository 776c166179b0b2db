/* SPDX-License-Identifier: MIT
 *
 * New memory for pinning: huge pages where the kernel gives them, that are there already, so that
 * the driver clears none one by one. A child of fork() does not have it.
 */
#pragma once

#include <sched.h>
#include <stddef.h>

/* Clears the pages in threads on these processors, and so, by the kernel's default, on their NUMA
 * node; NULL: on any. Blocks until they are there, some 5 ms for 100 MiB. NULL: no memory. */
void *pages_new(size_t bytes, const cpu_set_t *cpus);

/* With the same number of bytes. */
void pages_free(void *pages, size_t bytes);
