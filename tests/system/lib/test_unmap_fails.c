/* SPDX-License-Identifier: MIT
 *
 * Memory that this process could not unmap, and so may still use: the daemon must not reuse it
 * before the process has ended, whatever happens to the daemon and the connection. Over the fake
 * driver, whose n-th call fails.
 */
#include "proto/base/own.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/lib/client.h"
#include "tests/lib/suite.h"
#include "tests/lib/supervisor.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLS_MAX 50

static const char *const pools[] = { "gpu0", "pinned" };

static struct supervisor k;
static fakecuda_reset_fail_fn *reset_fail;

static bool has_fake(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	reset_fail = driver ? (fakecuda_reset_fail_fn *)dlsym(driver, "fakecuda_reset_fail") : NULL;
	if (!reset_fail)
		puts("skipped: needs the fake driver");
	return reset_fail != NULL;
}

/* Returns true if the buffer could not be unmapped. */
static bool strand(const char *pool, unsigned n)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *b = client_create("x", 100, &o);
	int r;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	reset_fail(n);
	r = gpushm_close(b);
	reset_fail(0);
	if (r < 0)
		ck_assert_int_eq(r, -EIO);
	else
		ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	return r < 0;
}

static unsigned holders(void)
{
	struct gpushm_stat *st = NULL;
	unsigned n;

	ck_assert_msg(gpushm_stat(c, "x", 0, 0, &st) == 0, "%s", gpushm_error());
	n = st->readers + st->writers;
	gpushm_free(st);
	return n;
}

START_TEST(memory_that_may_still_be_mapped_is_kept)
{
	unsigned n = 1;

	if (!has_fake())
		return;
	/* Here it is right that the daemon ends with memory that is not freed. */
	unsetenv("FAKECUDA_STRICT");
	supervisor_init(&k, "");
	supervisor_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
	while (!strand(pools[_i], n))
		ck_assert_uint_lt(n++, CALLS_MAX);
	ck_assert_uint_eq(holders(), 1);
	/* The client tells the next daemon what this process still has. */
	for (int i = 0; i < 2; i++) {
		supervisor_end(&k, SIGKILL);
		supervisor_start(&k);
		ck_assert_uint_eq(holders(), 1);
	}
	/* The connection ends, the process does not. */
	c = gpushm_disconnect(c);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(holders(), 1);
	c = gpushm_disconnect(c);
	supervisor_end(&k, SIGTERM);
	supervisor_done(&k);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("unmap_fails");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, memory_that_may_still_be_mapped_is_kept, 0, (int)array_size(pools));
	return suite_run("unmap_fails", tc, NULL);
}
