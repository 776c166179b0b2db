/* SPDX-License-Identifier: MIT
 *
 * A driver call of the daemon fails for good: which requests are refused, which are served as
 * before, and which errors clients get. Only over the fake driver.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/fake.h"
#include "tests/lib/fds.h"
#include "tests/lib/result.h"
#include "tests/lib/suite.h"

#include <stdio.h>
#include <string.h>

/* CUresult values for FAKECUDA_FAIL_WITH. */
#define ECC_UNCORRECTABLE "214"
#define ILLEGAL_ADDRESS "700"
#define DEVICE_UNAVAILABLE "46"
#define UNKNOWN "999"

/* Each of the pools gpu0, gpu1 and pinned makes one allocation when it is opened. */
#define AT_START 3

/* In the daemon the n-th such call fails with this result. */
static void start(const char *gpus, unsigned n, const char *call, const char *with)
{
	char text[64];

	snprintf(text, sizeof(text), "%u:%s", n, call);
	setenv("FAKECUDA_DEVICES", gpus, 1);
	setenv("FAKECUDA_FAIL", text, 1);
	setenv("FAKECUDA_FAIL_WITH", with, 1);
	fds_mark();
	daemon_start(&d, "", NULL);
	unsetenv("FAKECUDA_FAIL");
	unsetenv("FAKECUDA_FAIL_WITH");
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

static void stop(void)
{
	ck_assert_int_eq(gpushm_flush(c, NULL), 0);
	client_teardown();
	fds_check();
}

static int create(const char *name, const char *pool, struct gpushm_buffer **ret)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };

	return gpushm_create(c, name, 4096, &o, ret);
}

static void expect_served(const char *pool)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(create("served", pool, &b) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_discard(b), 0);
}

static void expect_refused(const char *pool, const char *why)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(create("refused", pool, &b), -ENODEV);
	ck_assert_str_eq(gpushm_error_code(), "POOL_FAILED");
	ck_assert_msg(strstr(gpushm_error(), why), "%s", gpushm_error());
}

/* The POOLS reply must say the same. */
static void expect_failed(uint32_t expected, const char *why)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	uint32_t failed = 0;
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++) {
		failed += pools[i]->failed != 0;
		ck_assert(!pools[i]->failed || strstr(pools[i]->why, why));
	}
	ck_assert_uint_eq(failed, expected);
	ck_assert_uint_eq(client_status().pools_failed, expected);
}

START_TEST(a_lost_gpu_fails_only_its_own_pools_until_a_restart)
{
	struct gpushm_buffer *kept = NULL, *again = NULL;

	if (!fake_is_here())
		return;
	start("2", AT_START + 2, "cuMemCreate", ECC_UNCORRECTABLE);
	ck_assert_int_eq(create("kept", "gpu0", &kept), 0);
	ck_assert_int_eq(gpushm_publish(kept, GPUSHM_SEALED), 0);
	expect_failed(0, "");
	expect_refused("gpu0", "cuMemCreate: CUDA_ERROR_ECC_UNCORRECTABLE");
	daemon_await(&d, "3 of them failed: gpu0: cuMemCreate: CUDA_ERROR_ECC_UNCORRECTABLE");
	/* The call would succeed now. */
	expect_refused("gpu0", "restart");
	expect_refused(NULL, "gpu0");
	expect_refused("gpu0-mempool", "ECC_UNCORRECTABLE");
	expect_refused("pinned", "ECC_UNCORRECTABLE");
	expect_failed(3, "ECC_UNCORRECTABLE");
	ck_assert_uint_eq(daemon_log_count(&d, "has failed"), 1);
	expect_served("gpu1");
	expect_served("gpu1-mempool");
	expect_served("host");
	/* Existing buffers remain usable and can be freed. */
	ck_assert_msg(gpushm_open(c, "kept", GPUSHM_READ, 0, NULL, &again) == 0, "%s",
		      gpushm_error());
	ck_assert_int_eq(gpushm_close(again), 0);
	client_close_and_unlink(kept, "kept");
	stop();
}
END_TEST

START_TEST(a_gpu_lost_while_memory_is_given_back_fails_its_pools)
{
	struct gpushm_buffer *b = NULL;

	if (!fake_is_here())
		return;
	/* The driver keeps the block: the daemon can't give it back. */
	setenv("FAKECUDA_STRICT", "0", 1);
	start("2", 2, "cuMemsetD8Async", ILLEGAL_ADDRESS);
	setenv("FAKECUDA_STRICT", "1", 1);
	ck_assert_int_eq(create("x", "gpu0-mempool", &b), 0);
	ck_assert_int_eq(gpushm_discard(b), 0);
	ck_assert_int_eq(gpushm_flush(c, NULL), 0);
	expect_refused("gpu0-mempool", "cuMemsetD8Async: CUDA_ERROR_ILLEGAL_ADDRESS");
	expect_refused("gpu0", "CUDA_ERROR_ILLEGAL_ADDRESS");
	expect_served("gpu1");
	expect_failed(3, "CUDA_ERROR_ILLEGAL_ADDRESS");
	stop();
}
END_TEST

static const char *const passing[] = { UNKNOWN, DEVICE_UNAVAILABLE };

START_TEST(an_error_that_may_pass_fails_only_one_create)
{
	struct gpushm_buffer *b = NULL;

	if (!fake_is_here())
		return;
	start("2", AT_START + 1, "cuMemCreate", passing[_i]);
	ck_assert_int_eq(create("x", "gpu0", &b), -EIO);
	ck_assert_str_eq(gpushm_error_code(), "DRIVER");
	expect_served("gpu0");
	expect_failed(0, "");
	stop();
}
END_TEST

START_TEST(a_gpu_that_is_lost_at_the_start_leaves_host_memory)
{
	if (!fake_is_here())
		return;
	start("1", 1, "cuMemCreate", ECC_UNCORRECTABLE);
	expect_refused("pinned", "ECC_UNCORRECTABLE");
	expect_refused("gpu0-mempool", "ECC_UNCORRECTABLE");
	expect_served("host");
	expect_failed(3, "ECC_UNCORRECTABLE");
	stop();
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("lost_gpu");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_lost_gpu_fails_only_its_own_pools_until_a_restart);
	tcase_add_test(t, a_gpu_lost_while_memory_is_given_back_fails_its_pools);
	tcase_add_loop_test(t, an_error_that_may_pass_fails_only_one_create, 0,
			    (int)array_size(passing));
	tcase_add_test(t, a_gpu_that_is_lost_at_the_start_leaves_host_memory);
	return suite_run("lost_gpu", t, NULL);
}
