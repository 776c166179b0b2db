/* SPDX-License-Identifier: MIT
 *
 * A daemon that has restarted serves before its driver has started. Requests to a pool meanwhile:
 * which succeed, which are refused, and when. Only over the fake driver.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/fake.h"
#include "tests/lib/raw.h"
#include "tests/lib/suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define IMPATIENT "[daemon]\ndriver-timeout=1\n"
#define TIB (1ull << 40)

static char state[64];
static struct gpushm_buffer *kept;
static struct raw r;

/* Starts a daemon that has a buffer in this pool and whose driver has not started. */
static void start(const char *config, const char *pool)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };

	snprintf(state, sizeof(state), "gpushm-test-starting-%d", getpid());
	fake_hang(1, "cuInit");
	fake_let_go();
	setenv("FAKECUDA_STATE", state, 1);
	daemon_start_with(&d, config, &(struct daemon_options){ .copied = true });
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
	kept = client_create("kept", 4096, &o);
	ck_assert_int_eq(gpushm_publish(kept, GPUSHM_SHARED), 0);
	fake_forget();
	daemon_forget_notifications(&d);
	ck_assert_msg(gpushm_restart(c) == 0, "%s", gpushm_error());
	raw_greet(&r, d.socket);
}

static void ask(const char *pool, uint64_t bytes, uint64_t wait_ms)
{
	ck_assert_int_eq(raw_request(&r, REQUEST(CREATE, Create, create, BYTES(name, "b"),
						 BYTES(pool, pool), SET(size_bytes, bytes),
						 SET(wait_ms, wait_ms))),
			 0);
}

static void forget_state(void)
{
	char path[96];

	fake_forget();
	snprintf(path, sizeof(path), "/dev/shm/%s", state);
	unlink(path);
}

static void stop(void)
{
	raw_close(&r);
	client_close_and_unlink(kept, "kept");
	client_teardown();
	forget_state();
}

START_TEST(a_create_is_refused_when_its_gpu_does_not_come_back)
{
	if (!fake_is_here())
		return;
	start(IMPATIENT, "gpu0");
	ask("gpu0", 4096, 0);
	ck_assert_int_eq(raw_receive(&r), CODE_POOL_FAILED);
	ck_assert_msg(strstr(r.text, "has not answered"), "%s", r.text);
	/* The GPU is missing; no call of its driver has failed. */
	ck_assert_uint_eq(daemon_log_count(&d, "the GPU is lost"), 0);
	fake_let_go();
	stop();
}
END_TEST

/* The create needs more than the pool has. These pools belong to an earlier daemon: one is not
 * opened again, the other has a mempool successor and is closed at once. */
static const char *const pools[] = { "gpu0", "gpu0-mempool" };

START_TEST(a_create_that_waits_for_space_obeys_the_driver_timeout)
{
	if (!fake_is_here())
		return;
	start(IMPATIENT, pools[_i]);
	ask(pools[_i], TIB, UINT64_MAX);
	ck_assert_int_eq(raw_receive(&r), CODE_POOL_FAILED);
	fake_let_go();
	stop();
}
END_TEST

START_TEST(a_too_large_create_is_refused_once_the_driver_starts)
{
	if (!fake_is_here())
		return;
	start("", "gpu0-mempool");
	ask("gpu0-mempool", 5ull << 30, _i ? UINT64_MAX : 0);
	fake_let_go();
	ck_assert_int_eq(raw_receive(&r), CODE_TOO_LARGE);
	stop();
}
END_TEST

START_TEST(a_create_that_waits_for_the_driver_is_made)
{
	if (!fake_is_here())
		return;
	start("", "gpu0");
	ask("gpu0", 4096, 0);
	fake_let_go();
	ck_assert_int_eq(raw_receive(&r), 0);
	ck_assert_int_eq(raw_call(&r,
				  REQUEST(CLOSE, Close, close, SET(lease, r.reply->attach->lease))),
			 0);
	stop();
}
END_TEST

/* Its client disconnects, or the daemon ends. */
START_TEST(a_waiting_create_ends_with_its_client_or_daemon)
{
	if (!fake_is_here())
		return;
	start("", "gpu0");
	ask("gpu0", 4096, 0);
	client_await(gpushm_wait(c, "b", 0) == -EAGAIN);
	if (_i) {
		raw_close(&r);
		client_await(gpushm_wait(c, "b", 0) == -ENOENT);
		fake_let_go();
		stop();
		return;
	}
	ck_assert_int_eq(gpushm_close(kept), 0);
	c = gpushm_disconnect(c);
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	ck_assert_int_ge(raw_await_end(&r), 0);
	fake_let_go();
	ck_assert_int_eq(daemon_wait(&d), 0);
	raw_close(&r);
	forget_state();
}
END_TEST

START_TEST(a_reload_waits_until_the_driver_starts)
{
	if (!fake_is_here())
		return;
	start("", "gpu0");
	daemon_write_config(&d, "[daemon]\naudit=yes\n");
	ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
	raw_close(&r);
	raw_greet(&r, d.socket);
	ck_assert_uint_eq(daemon_log_count(&d, "configuration reloaded"), 0);
	fake_let_go();
	client_await(daemon_log_count(&d, "configuration reloaded") == 1);
	stop();
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("driver_starts");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_create_is_refused_when_its_gpu_does_not_come_back);
	tcase_add_loop_test(t, a_create_that_waits_for_space_obeys_the_driver_timeout, 0,
			    (int)array_size(pools));
	tcase_add_loop_test(t, a_too_large_create_is_refused_once_the_driver_starts, 0, 2);
	tcase_add_test(t, a_create_that_waits_for_the_driver_is_made);
	tcase_add_loop_test(t, a_waiting_create_ends_with_its_client_or_daemon, 0, 2);
	tcase_add_test(t, a_reload_waits_until_the_driver_starts);
	return suite_run("driver_starts", t, NULL);
}
