/* SPDX-License-Identifier: MIT
 *
 * The n-th driver call fails, for every n of a pool's whole life and every kind: the error names
 * the call, and nothing leaks. Each n runs in a process of its own.
 */
#include "tests/lib/suite.h"
#include "tests/unit/daemon/cuda_fixture.h"

#include <string.h>

/* CUresult, as FAKECUDA_FAIL_WITH takes it. */
#define OUT_OF_MEMORY "2"
#define UNKNOWN "999"

/* More driver calls than any kind makes from its first to its last. */
#define CALLS_MAX 40

static char text_seen[512]; /* the first error text */
static bool served;	    /* a block was allocated and freed */
static char log_path[] = "/tmp/gpushm-test-XXXXXX";

static void tell(const char *text)
{
	if (!text_seen[0])
		snprintf(text_seen, sizeof(text_seen), "%s", text);
}

/* One block's life in an open pool. */
static void try_block(struct pool *pool)
{
	struct block b = BLOCK_NONE;
	struct fault f;

	if (request_block(pool, MIB, UID, &b, &f) < 0) {
		tell(f.text);
		ck_assert_uint_eq(pool->used, 0);
		ck_assert_uint_eq(pool->blocks, 0);
		return;
	}
	pool_free(pool, &b, UID, false);
	pool_flush(pool);
	settle();
	served = pool->lost == 0;
}

/* Everything that a daemon does with one pool of that kind, from cuInit on. Returns how many
 * bytes leaked. */
static uint64_t try_life(enum pool_kind kind)
{
	struct pool_config c = a_config(kind, 64 * MIB);
	uint64_t lost = 0;
	struct pool *pool;

	devices_probe(&devices);
	if (devices.n > 0) {
		pool = open_pool(&c, &devices.items[0]);
		if (pool->state == POOL_READY)
			try_block(pool);
		else
			tell(pool->why);
		lost = pool->lost;
		close_pool(pool);
		fixture_end();
	} else {
		tell(devices.why_none);
		fixture_end();
	}
	devices_done(&devices);
	return lost;
}

/* The name of the call that the fake driver failed, without its version; empty if there was
 * none. */
static void find_failed(char name[64])
{
	FILE *log = fopen(log_path, "r");
	char line[256], call[64], result[64];

	ck_assert_ptr_nonnull(log);
	name[0] = '\0';
	while (!name[0] && fgets(line, sizeof(line), log))
		if (sscanf(line, "%*d %63s %63s", call, result) == 2 &&
		    strcmp(result, "CUDA_SUCCESS") != 0)
			strcpy(name, call);
	fclose(log);
	name[strcspn(name, "_")] = '\0';
}

/* Calls that may fail although the client gets its block: they clean up, or set a preference. A
 * handle that stays may be of the fd that the pool keeps. */
static bool is_harmless(const char *call)
{
	static const char *const names[] = { "cuDeviceGetAttribute",	  "cuStreamDestroy",
					     "cuMemPoolDestroy",	  "cuDeviceGet",
					     "cuDevicePrimaryCtxRelease", "cuMemRelease" };

	for (size_t i = 0; i < array_size(names); i++)
		if (strcmp(names[i], call) == 0)
			return true;
	return false;
}

static uint64_t fail_nth_call(enum pool_kind kind, int n, const char *with, char failed[64])
{
	char n_text[16];
	uint64_t lost;

	close(mkstemp(log_path));
	snprintf(n_text, sizeof(n_text), "%d", n);
	setenv("FAKECUDA_FAIL", n_text, 1);
	setenv("FAKECUDA_FAIL_WITH", with, 1);
	setenv("FAKECUDA_LOG", log_path, 1);

	fixture_open();
	lost = try_life(kind);
	find_failed(failed);
	unlink(log_path);

	if (lost) /* the driver still has the block, and its fds */
		return lost;
	load_fake();
	ck_assert_uint_eq(handed_out(), 0);
	fds_check();
	return 0;
}

static void fail_each_call(int i, const char *with, bool retried)
{
	int n = i / KINDS + 1;
	char failed[64];
	uint64_t lost;

	if (!fake_is_there())
		return;
	lost = fail_nth_call(kinds[i % KINDS], n, with, failed);

	if (n == 1)
		ck_assert_str_eq(failed, "cuInit");
	if (n == CALLS_MAX)
		ck_assert_str_eq(failed, ""); /* otherwise raise the limit */
	if (!failed[0] || (served && (retried || is_harmless(failed))))
		return;
	if (lost) { /* the call failed in a free: the log has its name */
		ck_assert_uint_eq(lost, MIB);
		return;
	}
	ck_assert_msg(strstr(text_seen, failed) && strstr(text_seen, "CUDA_ERROR_"),
		      "%s failed, but the error is: \"%s\"", failed, text_seen);
}

START_TEST(any_call_that_fails_is_named_in_the_error_and_leaks_nothing)
{
	fail_each_call(_i, UNKNOWN, false);
}
END_TEST

START_TEST(a_call_out_of_memory_is_retried_or_named_and_leaks_nothing)
{
	fail_each_call(_i, OUT_OF_MEMORY, true);
}
END_TEST

static TCase *failures_tests(void)
{
	TCase *tc = tcase_create("failures");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, any_call_that_fails_is_named_in_the_error_and_leaks_nothing, 0,
			    CALLS_MAX * KINDS);
	tcase_add_loop_test(tc, a_call_out_of_memory_is_retried_or_named_and_leaks_nothing, 0,
			    CALLS_MAX * KINDS);
	return tc;
}

int main(int argc, char **argv)
{
	if (!driver_is_there(argv))
		return EXIT_SUCCESS;
	return suite_run("cuda_failures", failures_tests(), NULL);
}
