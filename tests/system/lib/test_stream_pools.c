/* SPDX-License-Identifier: MIT
 *
 * Streams in pools of a GPU, within one process: CUDA streams and the host on both sides of a
 * frame, work that is not finished, and what a pool can't have. Over the fake driver, where a host
 * function that waits plays a long kernel.
 */
#include "client/gpushm_cleanup.h"
#include "tests/lib/cu.h"
#include "tests/lib/fake.h"
#include "tests/lib/kept.h"
#include "tests/system/lib/stream_fixture.h"

#include <signal.h>
#include <stdio.h>

static void *one, *two;

static void begin_driver(void)
{
	cu_enter();
	ck_assert_int_eq(cu.create(&one, 1), 0);
	ck_assert_int_eq(cu.create(&two, 1), 0);
}

static void setup(void)
{
	cu_load();
	client_setup();
	begin_driver();
}

static void end_driver(void)
{
	cu_gate_open = true;
	r = gpushm_stream_close(r);
	r2 = gpushm_stream_close(r2);
	p = gpushm_stream_close(p);
	ck_assert_int_eq(cu.destroy(one), 0);
	ck_assert_int_eq(cu.destroy(two), 0);
	cu_leave();
}

static void end(void)
{
	end_driver();
	client_teardown();
}

static void make(const char *pool, uint32_t slots)
{
	ck_assert_msg(create_in(pool, slots) == 0, "%s", gpushm_error());
}

static unsigned long long words_of(struct gpushm_frame *f)
{
	struct gpushm_array *a = NULL;
	unsigned long long ptr;

	ck_assert_int_eq(gpushm_frame_array(f, "words", &a), 0);
	ptr = (uintptr_t)gpushm_array_device_ptr(a);
	gpushm_array_free(a);
	return ptr;
}

/* Fills a frame with that word on the CUDA stream, behind what is queued there. */
static void produce_on(void *stream, unsigned word)
{
	struct gpushm_frame *f = NULL;

	ck_assert_msg(gpushm_frame_begin(p, stream, 0, &f) == 0, "%s", gpushm_error());
	ck_assert_int_eq(cu.fill(words_of(f), word, STREAMER_WORDS * 2, stream), 0);
	ck_assert_int_eq(gpushm_frame_publish(f, stream, NULL, 0), 0);
}

/* Waits for nothing. */
static struct gpushm_frame *next_on(void *stream)
{
	struct gpushm_frame *f = NULL;

	ck_assert_msg(gpushm_frame_next(r, stream, 0, &f) == 0, "%s", gpushm_error());
	return f;
}

static void release_on(void *stream, struct gpushm_frame *f)
{
	ck_assert_int_eq(gpushm_frame_release(f, stream), 0);
}

static unsigned read_on(void *stream, struct gpushm_frame *f)
{
	static unsigned words[STREAMER_WORDS * 2];

	ck_assert_int_eq(cu.to_host(words, words_of(f), sizeof(words), stream), 0);
	ck_assert_int_eq(cu.synchronize(stream), 0);
	for (size_t i = 1; i < array_size(words); i++)
		ck_assert_uint_eq(words[i], words[0]);
	return words[0];
}

START_TEST(a_readers_gpu_waits_for_the_producers_work)
{
	struct gpushm_frame *f = NULL;
	static const char *const pools[] = { "gpu0", "pinned" };

	make(pools[_i], 4);
	r = follow(GPUSHM_EVERY, 1);
	cu_work(one);
	produce_on(one, 42);
	/* Neither call waits. */
	f = next_on(two);
	ck_assert_int_ne(cu.query(two), 0);
	cu_gate_open = true;
	ck_assert_uint_eq(read_on(two, f), 42);
	ck_assert_int_eq(gpushm_frame_ok(f), 0);
	release_on(two, f);
}
END_TEST

START_TEST(a_producers_gpu_waits_for_the_readers_work)
{
	struct gpushm_frame *f = NULL, *g = NULL;

	hostile_reader_stays_away("the reader is named by its seat");
	make("gpu0", 2);
	r = follow(GPUSHM_EVERY, 1);
	for (unsigned i = 1; i <= 2; i++)
		produce_on(one, i);
	f = next_on(two);
	cu_work(two);
	release_on(two, f);
	/* The host would have to wait, and knows for whom; the GPU waits by itself. */
	ck_assert_int_eq(gpushm_frame_begin(p, GPUSHM_ON_HOST, 0, &g), -EAGAIN);
	ck_assert_int_eq(gpushm_frame_begin(p, GPUSHM_ON_HOST, 20, &g), -ETIMEDOUT);
	says("reader 0");
	produce_on(one, 3);
	ck_assert_int_ne(cu.query(one), 0);
	cu_gate_open = true;
	ck_assert_int_eq(cu.synchronize(one), 0);
	for (unsigned i = 2; i <= 3; i++) {
		f = next_on(two);
		ck_assert_uint_eq(read_on(two, f), i);
		release_on(two, f);
	}
}
END_TEST

START_TEST(the_host_waits_for_a_gpus_release)
{
	struct gpushm_frame *f = NULL;
	pthread_t thread;

	make("pinned", 2);
	r = follow(GPUSHM_EVERY, 1);
	for (unsigned i = 1; i <= 2; i++)
		produce_on(one, i);
	f = next_on(two);
	cu_work(two);
	release_on(two, f);
	thread = cu_open_gate_later();
	ck_assert_msg(gpushm_frame_begin(p, GPUSHM_ON_HOST, 10000, &f) == 0, "%s", gpushm_error());
	pthread_join(thread, NULL);
	fill_and_publish(f);
	f = next_on(two);
	ck_assert_uint_eq(read_on(two, f), 2);
	release_on(two, f);
	f = next_on(GPUSHM_ON_HOST);
	ck_assert(streamer_is_right(f));
	release_on(GPUSHM_ON_HOST, f);
}
END_TEST

/* Its producer's GPU has not finished it when the time is over. */
START_TEST(the_host_gets_a_frame_when_the_gpu_has_finished_it)
{
	struct gpushm_frame *f = NULL;
	struct pollfd pfd = { .events = POLLIN };
	pthread_t thread;
	int calls_before;

	streamer_spin_us = _i ? 1000000 : 0;
	make("pinned", 4);
	r = follow(GPUSHM_EVERY, 1);
	cu_work(one);
	produce_on(one, 7);
	ck_assert_int_eq(gpushm_frame_next(r, GPUSHM_ON_HOST, 0, &f), -EAGAIN);
	ck_assert_int_eq(gpushm_frame_next(r, GPUSHM_ON_HOST, 20, &f), -ETIMEDOUT);
	pfd.fd = gpushm_stream_fd(r);
	thread = cu_open_gate_later();
	for (calls_before = 0; gpushm_frame_next(r, GPUSHM_ON_HOST, 0, &f) == -EAGAIN;
	     calls_before++)
		ck_assert_int_eq(poll(&pfd, 1, 10000), 1);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(gpushm_frame_seq(f), 1);
	ck_assert_uint_eq(read_on(two, f), 7);
	release_on(GPUSHM_ON_HOST, f);
	ck_assert_int_eq(gpushm_frame_next(r, GPUSHM_ON_HOST, 0, &f), -EAGAIN);
}
END_TEST

static uint32_t count_readers(void)
{
	struct gpushm_stream_stats stats = { .struct_size = sizeof(stats) };

	ck_assert_int_eq(gpushm_stream_stats(p, &stats), 0);
	return stats.readers;
}

START_TEST(a_close_waits_for_the_gpu)
{
	struct gpushm_frame *f = NULL;
	pthread_t thread;

	hostile_reader_stays_away("readers are counted");
	make("gpu0", 3);
	r = follow(GPUSHM_EVERY, 2);
	produce_on(one, 5);
	produce_on(one, 6);
	f = next_on(two);
	cu_work(two);
	release_on(two, f);
	f = next_on(two);
	thread = cu_open_gate_later();
	r = gpushm_stream_close(r);
	ck_assert(cu_gate_open);
	pthread_join(thread, NULL);
	/* The close itself has no reply to wait for. */
	client_await(count_readers() == 0);
	for (unsigned i = 0; i < 5; i++)
		produce_on(one, i);
	ck_assert_int_eq(gpushm_frame_begin(p, one, 0, &f), 0);
	gpushm_frame_cancel(f);
	ck_assert_int_eq(gpushm_frame_begin(p, NULL, 0, &f), 0);
	ck_assert_int_eq(gpushm_frame_publish(f, NULL, NULL, 0), 0);
}
END_TEST

/* Each gets a page of its own, which the producer registers anew. */
START_TEST(readers_of_one_seat_follow_each_other)
{
	make("gpu0", 3);
	for (unsigned i = 0; i < 20; i++) {
		struct gpushm_frame *f = NULL;

		r = follow(GPUSHM_EVERY, 2);
		for (unsigned j = 0; j < 4; j++) {
			produce_on(one, i);
			f = next_on(two);
			release_on(two, f);
		}
		r = gpushm_stream_close(r);
	}
	ck_assert_int_eq(cu.synchronize(one), 0);
}
END_TEST

START_TEST(a_mempool_has_no_streams)
{
	ck_assert_int_eq(create_in("gpu0-mempool", 4), -ENOTSUP);
	says("mempool");
	make("gpu0", 4);
}
END_TEST

START_TEST(a_close_of_a_stream_is_not_deferred)
{
	struct gpushm_frame *f = NULL;

	make("gpu0", 4);
	r = follow(GPUSHM_EVERY, 1);
	produce_on(one, 1);
	ck_assert_int_eq(gpushm_defer_cleanup(), 0);
	p = gpushm_stream_close(p);
	f = next_on(two);
	release_on(two, f);
	ck_assert_int_eq(gpushm_frame_next(r, two, 5000, &f), -EPIPE);
	ck_assert_int_eq(gpushm_resume_cleanup(), 0);
}
END_TEST

/* ---- without a daemon ---- */

static void setup_kept(void)
{
	cu_load();
	kept_setup();
	begin_driver();
}

static void end_kept(void)
{
	end_driver();
	kept_teardown();
}

/* Both look at intervals, since no GPU wakes them. */
START_TEST(a_host_that_waits_for_a_gpu_learns_that_the_daemon_has_gone)
{
	const char *had = getenv("GPUSHM_RECONNECT_MS");
	_cleanup_(free_ptr) char *before = had ? strdup(had) : NULL;
	struct gpushm_frame *f = NULL;

	make("pinned", 2);
	r = follow(GPUSHM_EVERY, 1);
	cu_work(one);
	for (unsigned i = 1; i <= 2; i++)
		produce_on(one, i);
	supervisor_end(&k, SIGKILL);
	setenv("GPUSHM_RECONNECT_MS", "20", 1);
	ck_assert_int_eq(gpushm_frame_next(r, GPUSHM_ON_HOST, 30000, &f), -ECONNRESET);
	ck_assert_int_eq(gpushm_frame_begin(p, GPUSHM_ON_HOST, 30000, &f), -ECONNRESET);
	supervisor_start(&k);
	if (before)
		setenv("GPUSHM_RECONNECT_MS", before, 1);
	else
		unsetenv("GPUSHM_RECONNECT_MS");
	cu_gate_open = true;
	ck_assert_int_eq(gpushm_frame_next(r, GPUSHM_ON_HOST, 10000, &f), 0);
	ck_assert_uint_eq(gpushm_frame_seq(f), 1);
	release_on(GPUSHM_ON_HOST, f);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("stream_pools"), *kept = tcase_create("kept");

	if (!fake_is_here())
		return 0;
	tcase_add_checked_fixture(t, setup, end);
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(kept, setup_kept, end_kept);
	tcase_set_timeout(kept, 120);
	tcase_add_test(kept, a_host_that_waits_for_a_gpu_learns_that_the_daemon_has_gone);
	tcase_add_loop_test(t, a_readers_gpu_waits_for_the_producers_work, 0, 2);
	tcase_add_test(t, a_producers_gpu_waits_for_the_readers_work);
	tcase_add_test(t, the_host_waits_for_a_gpus_release);
	tcase_add_loop_test(t, the_host_gets_a_frame_when_the_gpu_has_finished_it, 0, 2);
	tcase_add_test(t, a_close_waits_for_the_gpu);
	tcase_add_test(t, readers_of_one_seat_follow_each_other);
	tcase_add_test(t, a_mempool_has_no_streams);
	tcase_add_test(t, a_close_of_a_stream_is_not_deferred);
	return suite_run("stream_pools", t, kept, NULL);
}
