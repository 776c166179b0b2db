/* SPDX-License-Identifier: MIT
 *
 * The n-th driver call fails, for every n of the life of a stream on a GPU: its producer, a reader
 * and their CUDA graphs, in one process. Each time the error names the call, nothing leaks, and the
 * next stream works. Over the fake driver only.
 */
#include "client/gpushm_stream.h"
#include "proto/base/own.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/gpu/fixture.h"
#include "tests/gpu/stream_roles.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define POOLS "[pool vmm]\nkind=vmm\nsize=64M\n"
#define CALLS_MAX 400 /* more than a life has */

static struct driver gpu;

struct life {
	struct gpushm_stream *s, *r; /* the producer's, the reader's */
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;
	struct gpushm_graph_frame *in_graph;
	bool own; /* the call that failed is this test's own */
};

static void *symbol(const char *name)
{
	void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);

	ck_assert_ptr_nonnull(found);
	return found;
}

static unsigned long calls_so_far(void)
{
	return ((fakecuda_calls_fn *)symbol("fakecuda_calls"))(NULL);
}

static unsigned long handed_out(void)
{
	return ((fakecuda_handed_out_fn *)symbol("fakecuda_handed_out"))();
}

static void fail_at(unsigned long n)
{
	((fakecuda_reset_fail_fn *)symbol("fakecuda_reset_fail"))(n);
}

static int own(struct life *l, CUresult result)
{
	l->own = result != CUDA_SUCCESS;
	return l->own ? -1 : 0;
}

static int produce(struct life *l)
{
	struct gpushm_frame *f;
	uint64_t seq = 0;
	int r = gpushm_frame_begin(l->s, l->stream, 1000, &f);

	return r < 0 ? r : gpushm_frame_publish(f, l->stream, &seq, sizeof(seq));
}

static int consume(struct life *l)
{
	struct gpushm_frame *f;
	int r = gpushm_frame_next(l->r, l->stream, 1000, &f);

	return r < 0 ? r : gpushm_frame_release(f, l->stream);
}

static int hand_over(struct life *l)
{
	int r = 0;

	for (int i = 0; i < 4 && r == 0; i++) {
		r = produce(l);
		if (r == 0)
			r = consume(l);
	}
	return r;
}

static int capture(struct life *l)
{
	int r = own(l, gpu.begin_capture(l->stream, CU_STREAM_CAPTURE_MODE_GLOBAL)), end;

	if (r < 0)
		return r;
	r = gpushm_graph_acquire(l->r, l->stream, NULL, &l->in_graph);
	if (r == 0)
		r = gpushm_graph_release(l->in_graph, l->stream);
	end = own(l, gpu.end_capture(l->stream, &l->graph));
	if (end < 0 && !l->graph)
		gpu.end_capture(l->stream, &l->graph);
	/* A capture that the library's call has ended is not this test's own failure. */
	l->own = r == 0 && l->own;
	return r < 0 ? r : end;
}

static int launch(struct life *l)
{
	struct gpushm_frame *f;
	int r = own(l, gpu.graph_instantiate(&l->exec, l->graph, 0));

	for (int i = 0; i < 2 && r == 0; i++) {
		r = produce(l);
		if (r == 0)
			r = gpushm_graph_next(l->in_graph, l->exec, 1000, &f);
		if (r < 0)
			return r;
		r = own(l, gpu.graph_launch(l->exec, l->stream));
		if (r == 0)
			r = gpushm_frame_release(f, l->stream);
		else
			gpushm_frame_cancel(f);
	}
	return r;
}

static int live(struct life *l)
{
	int r = own(l, gpu.stream_create(&l->stream, CU_STREAM_NON_BLOCKING));

	if (r == 0)
		r = stream_make(c, "s", "vmm", 3, &l->s);
	if (r == 0)
		r = gpushm_stream_open(c, "s", GPUSHM_EVERY, 2, 1000, NULL, &l->r);
	if (r == 0)
		r = hand_over(l);
	if (r == 0)
		r = capture(l);
	return r < 0 ? r : launch(l);
}

static void end(struct life *l)
{
	if (l->exec)
		gpu.graph_exec_destroy(l->exec);
	gpushm_stream_close(l->r);
	gpushm_stream_close(l->s);
	gpushm_graph_free(l->in_graph);
	if (l->graph)
		gpu.graph_destroy(l->graph);
	if (l->stream)
		gpu.stream_destroy(l->stream);
}

static void expect_call_in(const char *text, unsigned long n)
{
	ck_assert_msg(strstr(text, "CUDA_ERROR_") != NULL, "call %lu: \"%s\"", n, text);
}

/* Returns false if fewer than n calls were made. */
static bool try_life(unsigned long n)
{
	struct life l = { 0 };
	unsigned long before, out;
	char text[512] = "";
	int r;

	out = handed_out();
	before = calls_so_far();
	fail_at(n);
	r = live(&l);
	if (r < 0)
		snprintf(text, sizeof(text), "%s", gpushm_error());
	end(&l);
	if (r < 0 && !l.own)
		expect_call_in(text, n);
	r = calls_so_far() - before >= n;
	fail_at(0);
	if (!l.own)
		ck_assert_msg(handed_out() == out, "call %lu: %lu objects were handed out, %lu are",
			      n, out, handed_out());
	return r;
}

START_TEST(a_failed_driver_call_of_a_stream_is_named_and_leaks_nothing)
{
	unsigned long n = 1;

	if (!gpu_is_fake()) {
		puts("skipped: the driver is a real one");
		return;
	}
	daemon_start(&d, POOLS, NULL);
	ck_assert(driver_open(&gpu, 0));
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	while (n < CALLS_MAX && try_life(n))
		n++;
	ck_assert_uint_lt(n, CALLS_MAX);
	ck_assert_uint_gt(n, 40);
	printf("%lu driver calls, each of which failed once\n", n - 1);
	c = gpushm_disconnect(c);
	driver_close(&gpu, 0);
	daemon_stop(&d);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {
		a_failed_driver_call_of_a_stream_is_named_and_leaks_nothing
	};

	return gpu_main_bare(argc, argv, "gpu_stream_failures", NULL, 0, tests, 1);
}
