/* SPDX-License-Identifier: MIT
 *
 * A daemon on a machine with a real GPU, and what its tests measure with.
 */
#ifndef GPUSHM_TESTS_GPU_FIXTURE_H
#define GPUSHM_TESTS_GPU_FIXTURE_H

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
/* MiB of GPU 0 in use by anybody, as nvidia-smi says; -1 without it. */
long gpu_used_mib(void);
long rss_kib(pid_t pid);

/* The name of the first working pool of that kind; the test fails without one. */
const char *gpu_pool(enum gpushm_kind kind);
struct gpushm_buffer *gpu_create(enum gpushm_kind kind, const char *name, uint64_t bytes);
CUdeviceptr gpu_ptr(const struct gpushm_buffer *b);

/* The driver is the one of tests/fakecuda. */
bool gpu_is_fake(void);

/* Runs a suite of one test case: dispatches roles, and says "skipped: no GPU" without one. For
 * main(). */
int gpu_main(int argc, char **argv, const char *name, const struct role *roles, size_t n_roles,
	     const TTest *const *tests, size_t n_tests);
/* The same for tests that start their own daemon, and run over the fake driver as well. */
int gpu_main_bare(int argc, char **argv, const char *name, const struct role *roles, size_t n_roles,
		  const TTest *const *tests, size_t n_tests);

#endif
