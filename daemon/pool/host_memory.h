/* SPDX-License-Identifier: MIT
 *
 * How much memory the host, and the control group of this process, have left.
 */
#pragma once

#include <stdint.h>

/* The least of: what the kernel calls available, and what each control group that this process is
 * in may still use; page cache that can be dropped counts as free. UINT64_MAX if nothing is known.
 * *ret_whose, for people: which of these it is. proc and sys are "/proc" and "/sys/fs/cgroup",
 * except in tests. Reads files: some 100 us. */
uint64_t host_memory_free(const char *proc, const char *sys, const char **ret_whose);
