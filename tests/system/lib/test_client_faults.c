/* SPDX-License-Identifier: MIT
 *
 * The library over the fake driver, with a real daemon: the n-th driver call of this process fails,
 * for n = 1, 2, ... until no call is left. Meanwhile a buffer of each kind is made, written,
 * published, opened and closed. Each failure must give an error with the driver's name for it, and
 * leave nothing of the driver's behind.
 */
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/lib/daemon.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define CALLS_MAX 200

static const char *const kinds[] = { "gpu0", "gpu0-mempool", "pinned" };

static struct daemon d;
static void *driver; /* NULL: no fake driver */
static fakecuda_calls_fn *calls;
static fakecuda_handed_out_fn *handed_out;
static fakecuda_reset_fail_fn *reset_fail;

static void load_fake(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver)
		return;
	calls = (fakecuda_calls_fn *)dlsym(driver, "fakecuda_calls");
	handed_out = (fakecuda_handed_out_fn *)dlsym(driver, "fakecuda_handed_out");
	reset_fail = (fakecuda_reset_fail_fn *)dlsym(driver, "fakecuda_reset_fail");
	if (!calls) {
		dlclose(driver);
		driver = NULL;
	}
}

/* Starts the driver, which keeps the fds that it opens then. */
static void warm_up(void)
{
	struct gpushm *c = NULL;
	struct gpushm_pool **pools = NULL;
	size_t n;

	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	gpushm_free(pools);
	gpushm_disconnect(c);
}

static void setup(void)
{
	const char *strict = getenv("FAKECUDA_STRICT");

	load_fake();
	/* What this process could not unmap stays leased until it ends, which is after the daemon:
	 * so the daemon ends with memory that is not freed. This process itself must free all. */
	unsetenv("FAKECUDA_STRICT");
	daemon_start(&d, "", NULL);
	if (strict)
		setenv("FAKECUDA_STRICT", strict, 1);
	if (driver)
		warm_up();
	fds_mark();
}

static void teardown(void)
{
	fds_check();
	daemon_stop(&d);
	if (driver)
		dlclose(driver);
}

struct run {
	struct gpushm *c;
	struct gpushm_buffer *made, *opened;
	struct gpushm_array *a;
};

static int fill(struct run *r, const char *pool, const char *name)
{
	const int64_t shape[] = { 16 };
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec),
					  .name = "x",
					  .dtype = { .code = 1, .bits = 8, .lanes = 1 },
					  .ndim = 1,
					  .shape = shape };
	int result = gpushm_create_arrays(r->c, name, &spec, 1, &o, &r->made);

	if (result == 0)
		result = gpushm_write(r->made, 0, "sixteen letters.", 16);
	if (result == 0)
		result = gpushm_publish(r->made, GPUSHM_SEALED);
	return result;
}

static int look(struct run *r, const char *name)
{
	char text[16];
	int result = gpushm_open(r->c, name, GPUSHM_READ, 0, NULL, &r->opened);

	if (result == 0)
		result = gpushm_array_get(r->opened, "x", &r->a);
	if (result == 0)
		result = gpushm_copy_to_host(r->a, text, NULL);
	if (result == 0)
		ck_assert_mem_eq(text, "sixteen letters.", 16);
	return result;
}

/* Makes each call once and returns the first error with its text. Closes everything in any case. */
static int run_through(const char *pool, const char *name, char *words, size_t size)
{
	struct run r = { 0 };
	int result, closing;

	ck_assert_msg(gpushm_connect(d.socket, &r.c) == 0, "%s", gpushm_error());
	result = fill(&r, pool, name);
	if (result == 0)
		result = look(&r, name);
	snprintf(words, size, "%s", result < 0 ? gpushm_error() : "");
	gpushm_array_free(r.a);
	closing = gpushm_close(r.opened);
	if (closing == 0)
		closing = gpushm_close(r.made);
	else
		gpushm_close(r.made);
	if (result == 0 && closing < 0) {
		snprintf(words, size, "%s", gpushm_error());
		result = closing;
	}
	gpushm_unlink(r.c, name); /* nothing to unlink if an early call failed */
	gpushm_disconnect(r.c);
	return result;
}

static void check_failure(const char *pool, unsigned n, int result, const char *words)
{
	ck_assert_msg(result == 0 || result == -EIO || result == -ENODEV || result == -ENOMEM,
		      "%s, call %u: %d (%s)", pool, n, result, words);
	ck_assert_msg(result == 0 || strstr(words, "CUDA_ERROR_"), "%s, call %u: %d (%s)", pool, n,
		      result, words);
	ck_assert_msg(handed_out() == 0, "%s, call %u (%s): %lu things of the driver's are left",
		      pool, n, words, handed_out());
}

START_TEST(a_failed_driver_call_is_named_and_leaks_nothing)
{
	const char *pool = kinds[_i];
	char name[64], words[512];
	unsigned failures = 0, n;

	if (!driver) {
		printf("skipped: needs the fake driver\n");
		return;
	}
	for (n = 1; n < CALLS_MAX; n++) {
		unsigned long before;
		int result;

		snprintf(name, sizeof(name), "fault/%s/%u", pool, n);
		before = calls(NULL);
		reset_fail(n);
		result = run_through(pool, name, words, sizeof(words));
		reset_fail(0);
		check_failure(pool, n, result, words);
		failures += result < 0;
		if (calls(NULL) - before < n)
			break;
	}
	ck_assert_uint_lt(n, CALLS_MAX);
	/* Mapping alone makes five driver calls: with fewer failures some were ignored. */
	ck_assert_uint_ge(failures, 5);
	ck_assert_int_eq(run_through(pool, "fault/none", words, sizeof(words)), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("client_faults");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, a_failed_driver_call_is_named_and_leaks_nothing, 0,
			    (int)array_size(kinds));
	return suite_run("client_faults", tc, NULL);
}
