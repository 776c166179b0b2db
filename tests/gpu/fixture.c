/* SPDX-License-Identifier: MIT
 *
 * The fixture that GPU tests share: a daemon with its default pools, and measurements of the GPU's
 * and the daemon's memory from outside.
 */
#include "tests/gpu/fixture.h"

#include "proto/base/own.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

long gpu_used_before;
static struct gpushm_pool **pools;
static size_t n_pools;

double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

long gpu_used_mib(void)
{
	FILE *f = popen("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0 "
			"2>/dev/null",
			"r");
	long v = -1;

	if (f && fscanf(f, "%ld", &v) != 1)
		v = -1;
	if (f)
		pclose(f);
	return v;
}

long rss_kib(pid_t pid)
{
	char path[64], line[256];
	long v = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &v) == 1)
			break;
	if (f)
		fclose(f);
	return v;
}

void gpu_setup(void)
{
	gpu_used_before = gpu_used_mib();
	daemon_start(&d, "", NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_pools(c, &pools, &n_pools), 0);
}

void gpu_teardown(void)
{
	pools = gpushm_free(pools);
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}

const char *gpu_pool(enum gpushm_kind kind)
{
	for (size_t i = 0; i < n_pools; i++)
		if (pools[i]->kind == kind && !pools[i]->failed)
			return pools[i]->name;
	ck_abort_msg("no pool of kind %d", kind);
}

struct gpushm_buffer *gpu_create(enum gpushm_kind kind, const char *name, uint64_t bytes)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = gpu_pool(kind) };
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_create(c, name, bytes, &o, &b) == 0, "%s", gpushm_error());
	return b;
}

CUdeviceptr gpu_ptr(const struct gpushm_buffer *b)
{
	return (CUdeviceptr)(uintptr_t)gpushm_buffer_device_ptr(b);
}

/* A driver can't be unloaded, and the fake one would check for leaks. */
bool gpu_is_fake(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	return library && dlsym(library, "fakecuda_calls");
}

/* No CUDA call before the tests fork: a context does not survive a fork. */
static bool has_gpu(void)
{
	return system("nvidia-smi -L >/dev/null 2>&1") == 0;
}

static int run(const char *name, TCase *t, const TTest *const *tests, size_t n_tests, bool may_run)
{
	Suite *s = suite_create(name);
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 600);
	for (size_t i = 0; i < n_tests; i++)
		tcase_add_test(t, tests[i]);
	suite_add_tcase(s, t);
	if (may_run)
		srunner_run_all(sr, CK_ENV);
	else
		puts("skipped: no GPU");
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}

int gpu_main(int argc, char **argv, const char *name, const struct role *roles, size_t n_roles,
	     const TTest *const *tests, size_t n_tests)
{
	TCase *t = tcase_create("a real GPU");

	setvbuf(stdout, NULL, _IOLBF, 0);
	role_dispatch(argc, argv, roles, n_roles);
	tcase_add_checked_fixture(t, gpu_setup, gpu_teardown);
	return run(name, t, tests, n_tests, has_gpu());
}

int gpu_main_bare(int argc, char **argv, const char *name, const struct role *roles, size_t n_roles,
		  const TTest *const *tests, size_t n_tests)
{
	TCase *t = tcase_create("a GPU, or the fake driver");

	setvbuf(stdout, NULL, _IOLBF, 0);
	role_dispatch(argc, argv, roles, n_roles);
	return run(name, t, tests, n_tests, has_gpu() || gpu_is_fake());
}
