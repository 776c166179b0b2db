/* SPDX-License-Identifier: MIT
 *
 * A daemon on a machine with a real GPU, and the measurements of its tests.
 */
#pragma once

#include "tests/lib/client.h"
#include "tests/lib/role.h"

#include <check.h>
#include <cuda.h>
#include <stdbool.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

extern long gpu_used_before; /* MiB, before the daemon was started */

void gpu_setup(void);
void gpu_teardown(void);

double now_us(void);
/* MiB of GPU 0 that all processes use, from nvidia-smi; -1 without it. */
long gpu_used_mib(void);
long rss_kib(pid_t pid);

/* The name of the first working pool of that kind; the test fails without one. */
const char *gpu_pool(enum gpushm_kind kind);
struct gpushm_buffer *gpu_create(enum gpushm_kind kind, const char *name, uint64_t bytes);
CUdeviceptr gpu_ptr(const struct gpushm_buffer *b);

/* Returns true if the driver is the one of tests/fakecuda. */
bool gpu_is_fake(void);

/* For main(): dispatches roles and runs a suite of one test case. Without a GPU prints "skipped: no
 * GPU". */
int gpu_main(int argc, char **argv, const char *name, const struct role *roles, size_t n_roles,
	     const TTest *const *tests, size_t n_tests);
/* The same for tests that start their own daemon, and also run over the fake driver. */
int gpu_main_bare(int argc, char **argv, const char *name, const struct role *roles, size_t n_roles,
		  const TTest *const *tests, size_t n_tests);
