/* SPDX-License-Identifier: MIT
 *
 * Pools over a driver: the fake libcuda.so.1 that lies beside the test in the build folder, or,
 * with GPUSHM_TEST_GPU set, the machine's own.
 */
#pragma once

#include "tests/fakecuda/fakecuda.h"
#include "tests/unit/daemon/pool_fixture.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define UID 1000

static const enum pool_kind kinds[] = { POOL_VMM, POOL_PINNED, POOL_MEMPOOL };
#define KINDS ((int)array_size(kinds))

static struct devices devices;

/* Counters of the fake driver; all NULL with a real one. */
static fakecuda_calls_fn *calls;
static fakecuda_handed_out_fn *handed_out;
static fakecuda_reset_fail_fn *reset_fail;

static inline void load_fake(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	ck_assert_ptr_nonnull(library);
	calls = (fakecuda_calls_fn *)dlsym(library, "fakecuda_calls");
	handed_out = (fakecuda_handed_out_fn *)dlsym(library, "fakecuda_handed_out");
	reset_fail = (fakecuda_reset_fail_fn *)dlsym(library, "fakecuda_reset_fail");
}

static inline bool fake_is_there(void)
{
	if (!calls)
		load_fake();
	if (!calls)
		printf("skipped: needs the fake driver\n");
	return calls != NULL;
}

/* The dynamic linker reads LD_LIBRARY_PATH when a program starts, and not again. */
static inline void start_again_with(const char *folder, char **argv)
{
	setenv("LD_LIBRARY_PATH", folder, 1);
	setenv("GPUSHM_TEST_STARTED", "1", 1);
	execv("/proc/self/exe", argv);
	perror("execv");
	exit(EXIT_FAILURE);
}

/* BUILD/fakecuda, from BUILD/tests/unit/test_cuda_pools. */
static inline bool find_fake(char folder[PATH_MAX])
{
	char self[PATH_MAX] = "", library[PATH_MAX];

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return false;
	for (int up = 0; up < 3; up++)
		*strrchr(self, '/') = '\0';
	snprintf(folder, PATH_MAX, "%.4000s/fakecuda", self);
	snprintf(library, sizeof(library), "%.4000s/libcuda.so.1", folder);
	return access(library, R_OK) == 0;
}

static inline bool find_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (library)
		dlclose(library);
	return library != NULL;
}

/* Starts the program again if it needs another LD_LIBRARY_PATH to load the fake driver. Returns
 * whether there is any driver to test with. */
static inline bool driver_is_there(char **argv)
{
	char folder[PATH_MAX];

	if (!pool_kinds[1]) {
		printf("%s: skipped: built without the CUDA Toolkit\n", argv[0]);
		return false;
	}
	if (!getenv("GPUSHM_TEST_GPU") && !getenv("GPUSHM_TEST_STARTED") && find_fake(folder))
		start_again_with(folder, argv);
	if (find_driver())
		return true;
	printf("%s: skipped: no libcuda.so.1, neither the fake one nor a real one\n", argv[0]);
	return false;
}
