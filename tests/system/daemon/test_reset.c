/* SPDX-License-Identifier: MIT
 *
 * A GPU is reset, or loses its memory, while there is no daemon: the next one finds out, drops the
 * lost buffers and nothing else, and reports them. A stand-in for systemd keeps the fds. Over the
 * fake driver, which can play a reset; also on a real one, where another kind of fd stands for a
 * dead handle.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/fake.h"
#include "tests/lib/raw.h"
#include "tests/lib/suite.h"
#include "tests/lib/supervisor.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES_EACH ((uint64_t)1 << 20)

/* CUresult values for FAKECUDA_FAIL_WITH. */
#define OUT_OF_MEMORY "2"
#define NOT_INITIALIZED "3"
#define INVALID_HANDLE "400"

static const char *const on_gpu[] = { "gpu0", "gpu0-mempool", "pinned" };

static struct supervisor k;
#define log_count(text) supervisor_log_count(&k, text)

/* Any driver. */
static bool has_driver(void)
{
	if (dlopen("libcuda.so.1", RTLD_NOW))
		return true;
	puts("skipped: no driver");
	return false;
}

static void begin(void)
{
	supervisor_init(&k, "");
	supervisor_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
}

static void end(void)
{
	ck_assert_uint_eq(client_used_bytes(), 0);
	c = gpushm_disconnect(c);
	supervisor_end(&k, SIGTERM);
	ck_assert_uint_eq(supervisor_count(&k, 'm'), 0);
	supervisor_done(&k);
}

static struct gpushm_buffer *publish(const char *pool, const char *name)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *b = client_create(name, BYTES_EACH, &o);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	return b;
}

static bool is_there(const char *name)
{
	struct gpushm_stat *st = NULL;
	int r = gpushm_stat(c, name, 0, 0, &st);

	ck_assert_msg(r == 0 || r == -ENOENT, "%s", gpushm_error());
	if (r == 0)
		gpushm_free(st);
	return r == 0;
}

static void reset_gpus(void)
{
	setenv("FAKECUDA_EPOCH", "1", 1);
}

/* ---- all is lost ---- */

/* A process that has it mapped sees this without a request. */
static void await_gone(struct gpushm_buffer *b)
{
	uint32_t seen = gpushm_buffer_notice(b);

	while (!(seen & GPUSHM_NOTICE_GONE))
		ck_assert_msg(gpushm_buffer_wait(b, seen, 60000, &seen) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_buffer_lost(b), 1);
}

static void expect_lost(const char *name, struct gpushm_buffer *held)
{
	struct gpushm_buffer *b = NULL;

	await_gone(held);
	ck_assert_int_eq(gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b), -ENOENT);
	ck_assert_msg(strstr(gpushm_error(), "its memory was lost") &&
			      strstr(gpushm_error(), "CUDA_ERROR_INVALID_HANDLE"),
		      "%s", gpushm_error());
	/* Its holder has nothing left to give back. */
	ck_assert_msg(gpushm_close(held) == 0, "%s", gpushm_error());
}

static uint64_t charged(void)
{
	struct gpushm_status *st = NULL;
	uint64_t bytes;

	ck_assert_int_eq(gpushm_status(c, &st), 0);
	bytes = st->usage[0]->bytes + st->usage[0]->buffers;
	gpushm_free(st);
	return bytes;
}

START_TEST(a_buffer_whose_memory_is_gone_is_reported_and_frees_its_name)
{
	struct gpushm_buffer *held[array_size(on_gpu)], *host, *again;
	char text[128];

	if (!fake_is_here())
		return;
	begin();
	for (size_t i = 0; i < array_size(on_gpu); i++)
		held[i] = publish(on_gpu[i], on_gpu[i]);
	host = publish("host", "stays");
	supervisor_end(&k, SIGKILL);
	reset_gpus();
	supervisor_spawn(&k);
	for (size_t i = 0; i < array_size(on_gpu); i++) {
		expect_lost(on_gpu[i], held[i]);
		snprintf(text, sizeof(text),
			 "buffer \"%s\" is lost: pool \"%s\" no longer has its memory", on_gpu[i],
			 on_gpu[i]);
		ck_assert_uint_eq(log_count(text), 1);
	}
	ck_assert(is_there("stays"));
	client_close_and_unlink(host, "stays");
	ck_assert_uint_eq(charged(), 0);
	ck_assert_uint_eq(client_used_bytes(), 0);
	/* The names are free, and new buffers can have them. */
	for (size_t i = 0; i < array_size(on_gpu); i++) {
		again = publish(on_gpu[i], on_gpu[i]);
		ck_assert(is_there(on_gpu[i]));
		client_close_and_unlink(again, on_gpu[i]);
		ck_assert(!is_there(on_gpu[i]));
		ck_assert_ptr_null(strstr(gpushm_error(), "lost"));
	}
	end();
}
END_TEST

/* Memory that is freed before the driver is up must not serve a new buffer. */
START_TEST(the_next_buffer_gets_fresh_memory_after_a_reset)
{
	const char word[] = "fresh";
	char got[sizeof(word)];
	struct gpushm_buffer *b;

	if (!fake_is_here())
		return;
	begin();
	b = publish("gpu0", "x");
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	supervisor_end(&k, SIGKILL);
	reset_gpus();
	supervisor_spawn(&k);
	ck_assert_int_eq(gpushm_close(b), 0);
	b = publish("gpu0", "x");
	ck_assert_int_eq(gpushm_write(b, 0, word, sizeof(word)), 0);
	ck_assert_int_eq(gpushm_read(b, 0, got, sizeof(got)), 0);
	ck_assert_str_eq(got, word);
	client_close_and_unlink(b, "x");
	supervisor_await(&k);
	end();
}
END_TEST

/* ---- changes before the reset is found ---- */

START_TEST(a_reset_is_reported_once_and_keeps_new_buffers)
{
	struct gpushm_buffer *old, *fresh;

	if (!fake_is_here())
		return;
	begin();
	old = publish("gpu0", "x");
	supervisor_end(&k, SIGKILL);
	reset_gpus();
	supervisor_start(&k);
	client_await(!is_there("x"));
	fresh = publish("gpu0", "x");
	/* The journal has one buffer as gone and the other as existing. */
	supervisor_end(&k, SIGKILL);
	supervisor_start(&k);
	ck_assert_uint_eq(log_count("is lost"), 1);
	ck_assert(is_there("x"));
	ck_assert_int_eq(gpushm_buffer_lost(old), 1);
	ck_assert_int_eq(gpushm_close(old), 0);
	client_close_and_unlink(fresh, "x");
	end();
}
END_TEST

/* ---- no buffer may be dropped ---- */

static const char *const passing[] = { OUT_OF_MEMORY, NOT_INITIALIZED };

/* In the new daemon this import fails with this result. Pools import as well when they open. */
static void fail_import(const char *nth_call, const char *with)
{
	setenv("FAKECUDA_FAIL", nth_call, 1);
	setenv("FAKECUDA_FAIL_WITH", with, 1);
	supervisor_spawn(&k);
	unsetenv("FAKECUDA_FAIL");
	unsetenv("FAKECUDA_FAIL_WITH");
	supervisor_await(&k);
}

static void expect_kept(const char *pool, const char *nth_call, const char *with)
{
	struct gpushm_buffer *b = publish(pool, "kept"), *again = NULL;
	unsigned before = log_count("can't be told");

	supervisor_end(&k, SIGKILL);
	fail_import(nth_call, with);
	client_await(log_count("can't be told") == before + 1);
	ck_assert_msg(gpushm_open(c, "kept", GPUSHM_READ, 0, NULL, &again) == 0, "%s",
		      gpushm_error());
	ck_assert_int_eq(gpushm_close(again), 0);
	client_close_and_unlink(b, "kept");
}

START_TEST(an_error_that_may_pass_keeps_all_buffers)
{
	if (!fake_is_here())
		return;
	begin();
	expect_kept("gpu0", "3:cuMemImportFromShareableHandle", passing[_i]);
	expect_kept("pinned", "3:cuMemImportFromShareableHandle", passing[_i]);
	expect_kept("gpu0-mempool", "2:cuMemPoolImportFromShareableHandle", passing[_i]);
	ck_assert_uint_eq(log_count("is lost"), 0);
	end();
}
END_TEST

/* The GPU is missing: its buffers wait for it. */
START_TEST(a_missing_gpus_buffers_wait_for_it)
{
	struct gpushm_buffer *b, *again = NULL;

	if (!fake_is_here())
		return;
	begin();
	b = publish("gpu0", "kept");
	supervisor_end(&k, SIGKILL);
	setenv("FAKECUDA_DEVICES", "0", 1);
	supervisor_spawn(&k);
	unsetenv("FAKECUDA_DEVICES");
	supervisor_await(&k);
	ck_assert(is_there("kept"));
	client_await(log_count("its GPU is not there; 1 buffers") == 1);
	supervisor_end(&k, SIGKILL);
	supervisor_start(&k);
	ck_assert_msg(gpushm_open(c, "kept", GPUSHM_READ, 0, NULL, &again) == 0, "%s",
		      gpushm_error());
	ck_assert_uint_eq(log_count("is lost"), 0);
	ck_assert_int_eq(gpushm_close(again), 0);
	client_close_and_unlink(b, "kept");
	end();
}
END_TEST

/* Another GPU has its ordinal and its pool's name. */
START_TEST(a_buffer_stays_on_its_gpu_when_another_has_the_ordinal)
{
	struct gpushm_buffer *b, *fresh, *again = NULL;

	if (!fake_is_here())
		return;
	setenv("FAKECUDA_DEVICES", "2", 1);
	setenv("CUDA_VISIBLE_DEVICES", "0", 1);
	begin();
	unsetenv("CUDA_VISIBLE_DEVICES");
	b = publish("gpu0", "kept");
	supervisor_end(&k, SIGKILL);
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	supervisor_spawn(&k);
	unsetenv("CUDA_VISIBLE_DEVICES");
	supervisor_await(&k);
	client_await(log_count("its GPU is not there; 1 buffers") == 1);
	ck_assert(is_there("kept"));
	fresh = publish("gpu0", "fresh");
	ck_assert_int_ne(gpushm_buffer_device(fresh), gpushm_buffer_device(b));
	client_close_and_unlink(fresh, "fresh");
	ck_assert_int_eq(gpushm_open(c, "kept", GPUSHM_READ, 0, NULL, &again), 0);
	ck_assert_int_eq(gpushm_buffer_device(again), gpushm_buffer_device(b));
	ck_assert_int_eq(gpushm_close(again), 0);
	client_close_and_unlink(b, "kept");
	end();
}
END_TEST

/* ---- one among many ---- */

/* Replaces one of the stored fds whose names begin with this letter by an unrelated fd. */
static void swap_kept(char letter, size_t which)
{
	int other = memfd_create("other", MFD_CLOEXEC);

	ck_assert_uint_gt(supervisor_count(&k, letter), which);
	for (size_t i = 0; i < k.n_kept; i++) {
		if (k.kept[i].name[0] != letter || which-- > 0)
			continue;
		ck_assert_int_ge(dup3(other, k.kept[i].fd, O_CLOEXEC), 0);
		break;
	}
	close(other);
}

START_TEST(one_dead_handle_loses_only_its_own_buffer)
{
	enum { N = 200 };
	static struct gpushm_buffer *all[N];
	unsigned there = 0;
	char name[32];

	if (!has_driver())
		return;
	begin();
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "x/%d", i);
		all[i] = publish("gpu0", name);
	}
	supervisor_end(&k, SIGKILL);
	swap_kept('m', 150);
	supervisor_start(&k);
	client_await(log_count("is lost: pool \"gpu0\" no longer has its memory") == 1);
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "x/%d", i);
		there += is_there(name);
		ck_assert_int_eq(gpushm_close(all[i]), 0);
		gpushm_unlink(c, name);
	}
	ck_assert_uint_eq(there, N - 1);
	end();
}
END_TEST

START_TEST(a_dead_mempool_is_replaced_by_a_new_one)
{
	struct gpushm_buffer *a, *b, *fresh;

	if (!has_driver())
		return;
	begin();
	a = publish("gpu0-mempool", "a");
	b = publish("gpu0-mempool", "b");
	supervisor_end(&k, SIGKILL);
	for (size_t i = 0; i < supervisor_count(&k, 'p'); i++) /* one for each GPU */
		swap_kept('p', i);
	supervisor_start(&k);
	client_await(!is_there("a") && !is_there("b"));
	ck_assert_uint_eq(log_count("is lost: pool \"gpu0-mempool\" no longer has its memory"), 2);
	ck_assert_int_eq(gpushm_close(a), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	fresh = publish("gpu0-mempool", "a");
	client_close_and_unlink(fresh, "a");
	end();
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("reset");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_buffer_whose_memory_is_gone_is_reported_and_frees_its_name);
	tcase_add_test(t, the_next_buffer_gets_fresh_memory_after_a_reset);
	tcase_add_test(t, a_reset_is_reported_once_and_keeps_new_buffers);
	tcase_add_loop_test(t, an_error_that_may_pass_keeps_all_buffers, 0,
			    (int)array_size(passing));
	tcase_add_test(t, a_missing_gpus_buffers_wait_for_it);
	tcase_add_test(t, a_buffer_stays_on_its_gpu_when_another_has_the_ordinal);
	if (!supervisor_skips("one_dead_handle_loses_only_its_own_buffer"))
		tcase_add_test(t, one_dead_handle_loses_only_its_own_buffer);
	if (!supervisor_skips("a_dead_mempool_is_replaced_by_a_new_one"))
		tcase_add_test(t, a_dead_mempool_is_replaced_by_a_new_one);
	return suite_run("reset", t, NULL);
}
