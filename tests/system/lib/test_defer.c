/* SPDX-License-Identifier: MIT
 *
 * Deferred closes, over the fake driver. Its log proves that nothing is synchronised or unmapped
 * within a section, and that the flush does it. Then the cases that end the deferral early: a full
 * pool, a limit, a mapping without memory, the end of the connection.
 */
#include "client/gpushm_cleanup.h"
#include "proto/base/own.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/lib/client.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BYTES (2u << 20)

static char calls_path[128]; /* the log of the driver's calls, in the daemon's folder */

static void *driver; /* NULL: no fake driver */
static fakecuda_reset_fail_fn *reset_fail;

static void load_fake(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver)
		return;
	reset_fail = (fakecuda_reset_fail_fn *)dlsym(driver, "fakecuda_reset_fail");
	if (!reset_fail) {
		dlclose(driver);
		driver = NULL;
	}
}

static bool fake_is_there(void)
{
	if (!driver)
		printf("skipped: needs the fake driver\n");
	return driver != NULL;
}

/* Counts a call in the log, "" for any call, since the last forget_calls(). */
static unsigned count_calls(const char *call)
{
	FILE *f = fopen(calls_path, "re");
	char name[64];
	unsigned n = 0;

	while (f && fscanf(f, "%*d %63s %*s", name) == 1)
		n += !*call || strcmp(name, call) == 0;
	if (f)
		fclose(f);
	return n;
}

static void forget_calls(void)
{
	unlink(calls_path);
}

static struct gpushm_buffer *create_in(const char *pool, const char *name)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *b = client_create(name, BYTES, &o);

	/* This makes a context and work in it, for which a close waits. */
	ck_assert_msg(gpushm_write(b, 0, "some words", 10) == 0, "%s", gpushm_error());
	return b;
}

static void close_one(struct gpushm_buffer *b)
{
	ck_assert_msg(gpushm_close(b) >= 0, "%s", gpushm_error());
}

/* The daemon runs already: these settings change only the driver of this process. */
static void start(const char *config, const char *const *pools)
{
	daemon_start(&d, config, NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
	load_fake();
	snprintf(calls_path, sizeof(calls_path), "%s/calls", d.folder);
	setenv("FAKECUDA_LOG", calls_path, 1);
	setenv("FAKECUDA_FAIL", "0:cuMemMap",
	       1); /* reset_fail() reads both: the call, and its result */
	setenv("FAKECUDA_FAIL_WITH", "2", 1); /* CUDA_ERROR_OUT_OF_MEMORY */
	/* A driver opens fds when it is first used, and keeps them; so does a connection with a
	 * mempool. */
	for (; driver && *pools; pools++)
		close_one(create_in(*pools, "first"));
	fds_mark();
}

static void setup(void)
{
	start("", (const char *const[]){ "gpu0", "gpu0-mempool", "pinned", NULL });
}

static void teardown(void)
{
	unsetenv("FAKECUDA_LOG");
	forget_calls();
	fds_check();
	if (driver)
		dlclose(driver);
	client_teardown();
}

/* ---- sections ---- */

static const struct {
	const char *pool, *unmap;
} kinds[] = { { "gpu0", "cuMemUnmap" },
	      { "gpu0-mempool", "cuMemFreeAsync" },
	      { "pinned", "cuMemUnmap" } };

START_TEST(a_close_in_a_section_is_deferred_until_the_flush)
{
	struct gpushm_buffer *one, *two;
	uint64_t bytes;

	if (!fake_is_there())
		return;
	one = create_in(kinds[_i].pool, "one");
	two = create_in(kinds[_i].pool, "two");
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	forget_calls();
	close_one(one);
	close_one(two);
	ck_assert_uint_eq(count_calls(""), 0);
	ck_assert_uint_eq(gpushm_pending_cleanup(&bytes), 2);
	ck_assert_uint_eq(bytes, 2 * BYTES);
	ck_assert_uint_eq(client_used_bytes(), 2 * BYTES);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	ck_assert_uint_eq(count_calls("cuCtxSynchronize") + count_calls(kinds[_i].unmap), 0);

	ck_assert_msg(gpushm_flush_cleanup() == 0, "%s", gpushm_error());
	ck_assert_uint_ge(count_calls("cuCtxSynchronize"), 2);
	ck_assert_uint_eq(count_calls(kinds[_i].unmap), 2);
	ck_assert_uint_eq(gpushm_pending_cleanup(NULL), 0);
	ck_assert_uint_eq(client_used_bytes(), 0);
}
END_TEST

START_TEST(a_close_after_a_section_ends_deferred_closes_too)
{
	struct gpushm_buffer *one, *two;

	if (!fake_is_there())
		return;
	one = create_in("gpu0", "one");
	two = create_in("gpu0", "two");
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	close_one(one);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	forget_calls();
	close_one(two);
	ck_assert_uint_eq(count_calls("cuMemUnmap"), 2);
	ck_assert_uint_eq(client_used_bytes(), 0);
}
END_TEST

START_TEST(the_ratio_is_of_the_gpus_memory)
{
	struct gpushm_buffer *one, *two;

	if (!fake_is_there())
		return;
	/* 2 MiB of the fake driver's 8 GiB: the limit is reached but not exceeded, then exceeded.
	 */
	ck_assert_int_eq(gpushm_set_cleanup_limits(10, 1.0 / 4096), 0);
	one = create_in("gpu0", "one");
	two = create_in("gpu0", "two");
	close_one(one);
	ck_assert_uint_eq(gpushm_pending_cleanup(NULL), 1);
	close_one(two);
	ck_assert_uint_eq(gpushm_pending_cleanup(NULL), 0);
	ck_assert_uint_eq(client_used_bytes(), 0);
}
END_TEST

START_TEST(a_host_buffer_is_closed_at_once)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	struct gpushm_buffer *b = client_create("host", BYTES, &o);

	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	close_one(b);
	ck_assert_uint_eq(gpushm_pending_cleanup(NULL), 0);
	ck_assert_uint_eq(client_used_bytes(), 0);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
}
END_TEST

/* Its mapping still exists: the new open and the deferred close share it. */
START_TEST(a_buffer_with_a_deferred_close_can_be_opened_again)
{
	struct gpushm_buffer *b, *again = NULL;
	char words[10];

	if (!fake_is_there())
		return;
	b = create_in("gpu0", "one");
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	close_one(b);
	forget_calls();
	ck_assert_msg(gpushm_open(c, "one", GPUSHM_READ, 0, NULL, &again) == 0, "%s",
		      gpushm_error());
	ck_assert_uint_eq(count_calls("cuMemMap"), 0);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	ck_assert_int_eq(gpushm_flush_cleanup(), 0);
	ck_assert_int_eq(gpushm_read(again, 0, words, sizeof(words)), 0);
	ck_assert_mem_eq(words, "some words", sizeof(words));
	client_close_and_unlink(again, "one");
}
END_TEST

/* ---- no space ---- */

START_TEST(a_mapping_that_fails_is_retried_after_deferred_closes)
{
	struct gpushm_buffer *one, *two;

	if (!fake_is_there())
		return;
	reset_fail(2);
	one = create_in("gpu0", "one");
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	close_one(one);
	forget_calls();
	two = create_in("gpu0", "two");
	ck_assert_uint_eq(count_calls("cuMemMap"), 2);
	ck_assert_uint_ge(count_calls("cuCtxSynchronize"), 1);
	ck_assert_uint_eq(gpushm_pending_cleanup(NULL), 0);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	close_one(two);
}
END_TEST

START_TEST(a_mapping_is_tried_once_without_deferred_closes)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "gpu0" };
	struct gpushm_buffer *b = NULL;

	if (!fake_is_there())
		return;
	reset_fail(1);
	forget_calls();
	ck_assert_int_eq(gpushm_create(c, "one", BYTES, &o, &b), -ENOMEM);
	ck_assert_uint_eq(count_calls("cuMemMap"), 1);
}
END_TEST

static void setup_small(void)
{
	start("[pool small]\nkind=vmm\nsize=4M\n[limits]\nmax-leases=3\n",
	      (const char *const[]){ "small", NULL });
}

START_TEST(a_full_pool_ends_deferred_closes)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "small" };
	struct gpushm_buffer *one, *two, *three = NULL;

	if (!fake_is_there())
		return;
	one = create_in("small", "one");
	two = create_in("small", "two");
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	close_one(one);
	close_one(two);
	one = create_in("small", "three");
	ck_assert_uint_eq(gpushm_pending_cleanup(NULL), 0);
	two = create_in("small", "four");
	ck_assert_int_eq(gpushm_create(c, "five", BYTES, &o, &three), -ENOSPC);
	ck_assert_str_eq(gpushm_error_code(), "POOL_FULL");
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	close_one(two);
	close_one(one);
}
END_TEST

START_TEST(a_create_that_waits_ends_deferred_closes_of_its_process)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .pool = "small",
					   .wait_ms = GPUSHM_WAIT_FOREVER };
	struct gpushm_buffer *b;

	if (!fake_is_there())
		return;
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	close_one(create_in("small", "one"));
	close_one(create_in("small", "two"));
	b = client_create("three", BYTES, &o);
	ck_assert_uint_eq(gpushm_pending_cleanup(NULL), 0);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	close_one(b);
}
END_TEST

START_TEST(a_reached_limit_ends_deferred_closes)
{
	struct gpushm_buffer *b, *again = NULL;

	if (!fake_is_there())
		return;
	b = create_in("small", "one");
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	for (int i = 0; i < 5; i++) {
		ck_assert_msg(gpushm_open(c, "one", GPUSHM_READ, 0, NULL, &again) == 0, "%s",
			      gpushm_error());
		close_one(again);
	}
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	client_close_and_unlink(b, "one");
}
END_TEST

/* ---- the end of a connection ---- */

START_TEST(a_deferred_close_ends_with_its_connection)
{
	struct gpushm *other = NULL;
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "gpu0" };
	struct gpushm_buffer *b = NULL, *ours;

	if (!fake_is_there())
		return;
	ck_assert_int_eq(gpushm_connect(d.socket, &other), 0);
	ck_assert_msg(gpushm_create(other, "theirs", BYTES, &o, &b) == 0, "%s", gpushm_error());
	ours = create_in("gpu0", "ours");
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	close_one(b);
	close_one(ours);
	gpushm_disconnect(other);
	ck_assert_uint_eq(gpushm_pending_cleanup(NULL), 1);
	ck_assert_uint_eq(client_used_bytes(), BYTES);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
	ck_assert_int_eq(gpushm_flush_cleanup(), 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("sections"), *small = tcase_create("a small pool");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_close_in_a_section_is_deferred_until_the_flush, 0,
			    (int)array_size(kinds));
	tcase_add_test(t, a_close_after_a_section_ends_deferred_closes_too);
	tcase_add_test(t, the_ratio_is_of_the_gpus_memory);
	tcase_add_test(t, a_host_buffer_is_closed_at_once);
	tcase_add_test(t, a_buffer_with_a_deferred_close_can_be_opened_again);
	tcase_add_test(t, a_mapping_that_fails_is_retried_after_deferred_closes);
	tcase_add_test(t, a_mapping_is_tried_once_without_deferred_closes);
	tcase_add_test(t, a_deferred_close_ends_with_its_connection);
	tcase_add_checked_fixture(small, setup_small, teardown);
	tcase_add_test(small, a_full_pool_ends_deferred_closes);
	tcase_add_test(small, a_create_that_waits_ends_deferred_closes_of_its_process);
	tcase_add_test(small, a_reached_limit_ends_deferred_closes);
	tcase_set_timeout(t, 60);
	tcase_set_timeout(small, 60);
	return suite_run("defer", t, small, NULL);
}
