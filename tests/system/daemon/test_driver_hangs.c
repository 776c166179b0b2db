/* SPDX-License-Identifier: MIT
 *
 * A driver call of the daemon does not return: which requests wait, which are refused, which are
 * served as before, what clients are told, and what happens when the call returns. Only over the
 * fake driver.
 */
#include "client/gpushm_events.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/fake.h"
#include "tests/lib/result.h"
#include "tests/lib/role.h"
#include "tests/lib/run.h"
#include "tests/lib/suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define CONFIG "[daemon]\ndriver-timeout=1\n"
/* Each of the pools gpu0, gpu1 and pinned makes one allocation when it is opened. */
#define AT_START 3

/* In the daemon the n-th such call hangs. */
static void start(unsigned n, const char *call)
{
	setenv("FAKECUDA_DEVICES", "2", 1);
	fake_hang(n, call);
	daemon_start(&d, CONFIG, NULL);
	unsetenv("FAKECUDA_HANG");
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

static int create(struct gpushm *conn, const char *name, const char *pool,
		  struct gpushm_buffer **ret)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };

	return gpushm_create(conn, name, 4096, &o, ret);
}

static void expect_served(const char *pool)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(create(c, "served", pool, &b) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_discard(b), 0);
}

static void expect_refused(const char *pool)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(create(c, "refused", pool, &b), -ENODEV);
	ck_assert_str_eq(gpushm_error_code(), "POOL_FAILED");
	ck_assert_msg(strstr(gpushm_error(), "has not returned"), "%s", gpushm_error());
}

/* socket pool: creates a buffer there, and prints the result. */
static int creator_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	int r = gpushm_connect(args[0], &conn);

	if (r == 0)
		r = create(conn, "slow", args[1], &b);
	puts(r == 0 ? "ok" : gpushm_error());
	gpushm_close(b);
	gpushm_disconnect(conn);
	return 0;
}

static void expect_ok(struct role_process *p)
{
	char line[256];

	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, "ok");
	role_finish(p);
}

/* All pools of GPU 0 failed, and work again. */
static void expect_events(void)
{
	struct gpushm_events_options o = { .struct_size = sizeof(o),
					   .types = "pool-failed,pool-recovered" };
	struct gpushm_events *e = NULL;

	ck_assert_int_eq(gpushm_events(c, &o, &e), 0);
	ck_assert_uint_eq(e->n_events, 6);
	for (size_t i = 0; i < e->n_events; i++)
		ck_assert_str_eq(e->events[i]->type, i < 3 ? "pool-failed" : "pool-recovered");
	ck_assert_str_eq(e->events[0]->pool, "gpu0");
	ck_assert_ptr_nonnull(strstr(e->events[0]->text, "has not returned"));
	ck_assert_str_eq(e->events[3]->text, "");
	gpushm_free(e);
}

START_TEST(a_hanging_driver_call_fails_only_the_pools_of_its_gpu)
{
	struct gpushm_buffer *kept = NULL, *again = NULL;
	struct role_process creator;
	char text[1024];

	if (!fake_is_here())
		return;
	start(AT_START + 2, "cuMemCreate");
	ck_assert_int_eq(create(c, "kept", "gpu0", &kept), 0);
	ck_assert_int_eq(gpushm_publish(kept, GPUSHM_SHARED), 0);
	role_start(&creator, "creator", (const char *[]){ d.socket, "gpu0", NULL });
	daemon_await(&d, "3 of them failed: gpu0: a driver call on GPU 0 has not returned for 1 s");
	ck_assert_uint_eq(client_status().pools_failed, 3);
	expect_refused("gpu0");
	expect_refused("gpu0-mempool");
	expect_refused("pinned");
	expect_served("gpu1");
	expect_served("gpu1-mempool");
	expect_served("host");
	/* Existing buffers are opened and closed without the driver. */
	ck_assert_msg(gpushm_open(c, "kept", GPUSHM_WRITE, 0, NULL, &again) == 0, "%s",
		      gpushm_error());
	ck_assert_int_eq(gpushm_close(again), 0);
	ck_assert_int_eq(run_program(build_path("gpushmctl"),
				     (const char *[]){ "--socket", d.socket, "pools", NULL }, text,
				     sizeof(text)),
			 0);
	ck_assert_msg(strstr(text, "has not returned"), "%s", text);
	/* An exec would wait for the thread that hangs. */
	ck_assert_int_eq(gpushm_restart(c), -ENOEXEC);
	ck_assert_msg(strstr(gpushm_error(), "would wait for it"), "%s", gpushm_error());
	fake_let_go();
	expect_ok(&creator);
	client_await(client_status().pools_failed == 0);
	expect_events();
	expect_served("gpu0");
	/* Once for the GPU, for the restart, and for all creates that were refused. */
	ck_assert_uint_eq(daemon_log_count(&d, "has not returned"), 3);
	ck_assert_uint_eq(daemon_log_count(&d, "GPU 0 has returned"), 1);
	client_close_and_unlink(kept, "kept");
	ck_assert_int_eq(gpushm_flush(c, NULL), 0);
	fake_forget();
	client_teardown();
}
END_TEST

static void make_pending(const char *pool)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(create(c, "pending", pool, &b) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_discard(b), 0);
}

/* pool NULL: all of them. */
static void expect_late(const char *pool)
{
	ck_assert_int_eq(gpushm_flush(c, pool), -ENODEV);
	ck_assert_str_eq(gpushm_error_code(), "POOL_FAILED");
	ck_assert_msg(strstr(gpushm_error(), "\"gpu0-mempool\""), "%s", gpushm_error());
	ck_assert_msg(strstr(gpushm_error(), "has not returned"), "%s", gpushm_error());
	ck_assert_msg(!strstr(gpushm_error(), "gpu1"), "%s", gpushm_error());
	ck_assert_msg(!strstr(gpushm_error(), "\"gpu0\""), "%s", gpushm_error());
}

static uint64_t pending_bytes(void)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	uint64_t sum = 0;
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		sum += pools[i]->pending_bytes;
	return sum;
}

START_TEST(a_flush_names_the_hanging_pool_and_flushes_the_others)
{
	if (!fake_is_here())
		return;
	start(1, "cuMemFreeAsync");
	make_pending("gpu0-mempool");
	/* Before the daemon knows that it hangs, and after; for all pools, for the one that hangs,
	 * and for others. */
	expect_late(NULL);
	expect_late("gpu0-mempool");
	ck_assert_int_eq(gpushm_flush(c, "gpu0"), 0);
	make_pending("gpu1-mempool");
	make_pending("host");
	ck_assert_uint_ne(pending_bytes(), 0);
	expect_late(NULL);
	ck_assert_uint_eq(pending_bytes(), 0);
	fake_let_go();
	client_await(client_status().pools_failed == 0);
	ck_assert_msg(gpushm_flush(c, NULL) == 0, "%s", gpushm_error());
	fake_forget();
	client_teardown();
}
END_TEST

START_TEST(a_daemon_serves_host_memory_without_its_driver)
{
	if (!fake_is_here())
		return;
	start(1, "cuInit");
	expect_served("host");
	ck_assert_uint_eq(daemon_log_count(&d, "goes on without a GPU"), 1);
	fake_let_go();
	client_await(daemon_log_count(&d, "has answered after all") == 1);
	ck_assert_msg(gpushm_restart(c) == 0, "%s", gpushm_error());
	expect_served("gpu0");
	fake_forget();
	client_teardown();
}
END_TEST

static bool has_driver(void)
{
	char path[32], line[512];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", d.pid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		found = found || strstr(line, "libcuda");
	fclose(f);
	return found;
}

static const char *const pools[] = { "[pool p]\nkind=host\n", "[pool p]\nkind=pinned\n" };

START_TEST(the_driver_is_loaded_only_for_pools_that_need_it)
{
	if (!fake_is_here())
		return;
	daemon_start(&d, pools[_i], NULL);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	expect_served("p");
	ck_assert_int_eq(has_driver(), _i == 1);
	client_teardown();
}
END_TEST

/* The call that hangs: at the start, or in a create. */
static const char *const calls[] = { "cuInit", "cuMemCreate" };

START_TEST(a_daemon_ends_while_a_driver_call_hangs)
{
	struct role_process creator = { 0 };
	int status;

	if (!fake_is_here())
		return;
	start(_i ? AT_START + 1 : 1, calls[_i]);
	if (_i) {
		role_start(&creator, "creator", (const char *[]){ d.socket, "gpu0", NULL });
		daemon_await(&d, "has not returned");
	}
	c = gpushm_disconnect(c);
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	status = daemon_wait(&d);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_lt(access(d.socket, F_OK), 0);
	ck_assert_uint_eq(daemon_log_count(&d, "ends without it"), 1);
	if (_i)
		ck_assert_int_eq(role_wait(&creator), 0);
	/* The next daemon has inherited nothing of it. */
	daemon_restart(&d);
	daemon_kill(&d);
}
END_TEST

static const struct role roles[] = { { "creator", creator_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("driver_hangs");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_hanging_driver_call_fails_only_the_pools_of_its_gpu);
	tcase_add_test(t, a_flush_names_the_hanging_pool_and_flushes_the_others);
	tcase_add_test(t, a_daemon_serves_host_memory_without_its_driver);
	tcase_add_loop_test(t, the_driver_is_loaded_only_for_pools_that_need_it, 0,
			    array_size(pools));
	tcase_add_loop_test(t, a_daemon_ends_while_a_driver_call_hangs, 0, (int)array_size(calls));
	return suite_run("driver_hangs", t, NULL);
}
