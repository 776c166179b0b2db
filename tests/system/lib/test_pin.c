/* SPDX-License-Identifier: MIT
 *
 * Memory of the program's own that the driver pins, over the fake driver, which counts what it has
 * handed out; without a daemon.
 */
#include "client/gpushm_handle.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SIZE 65536

static void *driver, *memory;
static fakecuda_calls_fn *calls; /* NULL: no fake driver */
static fakecuda_handed_out_fn *handed_out;
static fakecuda_reset_fail_fn *reset_fail;

static void setup(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	calls = driver ? (fakecuda_calls_fn *)dlsym(driver, "fakecuda_calls") : NULL;
	handed_out = driver ? (fakecuda_handed_out_fn *)dlsym(driver, "fakecuda_handed_out") : NULL;
	reset_fail = driver ? (fakecuda_reset_fail_fn *)dlsym(driver, "fakecuda_reset_fail") : NULL;
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
}

static void teardown(void)
{
	ck_assert_int_eq(munmap(memory, SIZE), 0);
}

static bool needs_the_fake_driver(void)
{
	if (!calls)
		printf("skipped: not over the fake driver\n");
	return !calls;
}

/* Nothing is pinned, and no context is kept. */
static void check_nothing_left(void)
{
	ck_assert_uint_eq(handed_out(), 0);
	ck_assert_uint_eq(calls("cuDevicePrimaryCtxRetain"), calls("cuDevicePrimaryCtxRelease"));
}

START_TEST(pinned_memory_is_unpinned)
{
	void *there = NULL;

	if (needs_the_fake_driver())
		return;
	for (int i = 0; i < 2; i++) {
		ck_assert_msg(gpushm_pin(memory, SIZE, 0, NULL) == 0, "%s", gpushm_error());
		ck_assert_uint_eq(handed_out(), 1);
		ck_assert_int_eq(gpushm_unpin(memory), 0);
		check_nothing_left();
	}
	ck_assert_uint_eq(calls("cuMemHostGetDevicePointer"), 0);
	ck_assert_int_eq(gpushm_pin(memory, SIZE, GPUSHM_PIN_MAPPED, &there), 0);
	ck_assert_ptr_nonnull(there);
	ck_assert_int_eq(gpushm_unpin(memory), 0);
	check_nothing_left();
}
END_TEST

START_TEST(what_is_pinned_keeps_its_context)
{
	char *second = (char *)memory + SIZE / 2;

	if (needs_the_fake_driver())
		return;
	ck_assert_int_eq(gpushm_pin(memory, 4096, 0, NULL), 0);
	ck_assert_int_eq(gpushm_pin(second, 4096, 0, NULL), 0);
	ck_assert_int_eq(gpushm_unpin(memory), 0);
	ck_assert_uint_eq(calls("cuDevicePrimaryCtxRelease"), 0);
	ck_assert_int_eq(gpushm_unpin(second), 0);
	check_nothing_left();
}
END_TEST

START_TEST(a_second_pin_and_a_second_unpin_are_refused)
{
	if (needs_the_fake_driver())
		return;
	ck_assert_int_eq(gpushm_pin(memory, SIZE, 0, NULL), 0);
	ck_assert_int_eq(gpushm_pin(memory, SIZE, 0, NULL), -EIO);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "ALREADY_REGISTERED"));
	ck_assert_int_eq(gpushm_unpin(memory), 0);
	ck_assert_int_eq(gpushm_unpin(memory), -EIO);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "NOT_REGISTERED"));
	check_nothing_left();
}
END_TEST

START_TEST(arguments_that_make_no_sense_are_refused)
{
	void *there;

	ck_assert_int_eq(gpushm_pin(memory, 0, 0, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_pin(memory, SIZE, 1, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_pin(memory, SIZE, GPUSHM_PIN_MAPPED, NULL), -EINVAL);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "ret_device_ptr"));
	ck_assert_int_eq(gpushm_pin(NULL, SIZE, GPUSHM_PIN_MAPPED, &there), -EINVAL);
}
END_TEST

START_TEST(a_driver_call_that_fails_leaves_nothing_pinned)
{
	void *there = NULL;
	unsigned long n = 1, before = 0, failed = 0;
	int r;

	if (needs_the_fake_driver())
		return;
	for (; before + n <= calls(NULL) || n < 2; n++) {
		there = NULL;
		before = calls(NULL);
		reset_fail(n);
		r = gpushm_pin(memory, SIZE, GPUSHM_PIN_MAPPED, &there);
		reset_fail(0);
		failed += r < 0;
		ck_assert_msg((r == 0) == (there != NULL), "call %lu: %s", n, gpushm_error());
		ck_assert_int_eq(gpushm_unpin(memory), r == 0 ? 0 : -EIO);
		ck_assert_uint_eq(handed_out(), 0);
	}
	ck_assert_uint_ge(failed, 4);
}
END_TEST

START_TEST(without_a_driver_pinning_is_refused)
{
	if (driver) {
		printf("skipped: there is a driver\n");
		return;
	}
	ck_assert_int_eq(gpushm_pin(memory, SIZE, 0, NULL), -ENODEV);
	ck_assert_int_eq(gpushm_unpin(memory), -ENODEV);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("pin");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, pinned_memory_is_unpinned);
	tcase_add_test(t, what_is_pinned_keeps_its_context);
	tcase_add_test(t, a_second_pin_and_a_second_unpin_are_refused);
	tcase_add_test(t, arguments_that_make_no_sense_are_refused);
	tcase_add_test(t, a_driver_call_that_fails_leaves_nothing_pinned);
	tcase_add_test(t, without_a_driver_pinning_is_refused);
	return suite_run("pin", t, NULL);
}
