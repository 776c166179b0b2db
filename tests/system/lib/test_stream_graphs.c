/* SPDX-License-Identifier: MIT
 *
 * Frames inside captured graphs, over the fake driver: a producer's graph and a reader's, and what
 * happens to a frame when a call fails or a graph's frame is given back. tests/gpu has the same on
 * a real GPU.
 */
#include "tests/lib/cu.h"
#include "tests/lib/fake.h"
#include "tests/system/lib/stream_fixture.h"

/* One side's graph: acquire, a host function, release. */
struct stage {
	struct gpushm_graph_frame *frame;
	void *stream, *graph, *exec;
	_Atomic int runs;
	bool is_whole;
};

static void *one;
static struct stage produces, reads;

static void make(uint32_t slots)
{
	ck_assert_msg(create_in("gpu0", slots) == 0, "%s", gpushm_error());
	r = follow(GPUSHM_EVERY, 1);
}

static void count_run(void *stage)
{
	((struct stage *)stage)->runs++;
}

static void capture(struct stage *g, struct gpushm_stream *s, bool ends_frame)
{
	*g = (struct stage){ .is_whole = true };
	ck_assert_int_eq(cu.create(&g->stream, 1), 0);
	ck_assert_int_eq(cu.begin_capture(g->stream, 1), 0);
	ck_assert_msg(gpushm_graph_acquire(s, g->stream, NULL, &g->frame) == 0, "%s",
		      gpushm_error());
	ck_assert_int_eq(cu.host_function(g->stream, count_run, g), 0);
	if (ends_frame)
		ck_assert_int_eq(gpushm_graph_release(g->frame, g->stream), 0);
	ck_assert_int_eq(cu.end_capture(g->stream, &g->graph), 0);
	ck_assert_int_eq(cu.instantiate(&g->exec, g->graph, 0), 0);
}

static void stage_end(struct stage *g)
{
	if (!g->is_whole)
		return;
	cu.synchronize(g->stream);
	ck_assert_int_eq(cu.exec_destroy(g->exec), 0);
	ck_assert_int_eq(cu.graph_destroy(g->graph), 0);
	ck_assert_int_eq(cu.destroy(g->stream), 0);
	g->frame = gpushm_graph_free(g->frame);
	g->is_whole = false;
}

static void setup(void)
{
	cu_load();
	client_setup();
	cu_enter();
	ck_assert_int_eq(cu.create(&one, 1), 0);
}

static void end(void)
{
	cu_gate_open = true;
	stage_end(&produces);
	stage_end(&reads);
	r = gpushm_stream_close(r);
	p = gpushm_stream_close(p);
	ck_assert_int_eq(cu.destroy(one), 0);
	cu_leave();
	client_teardown();
}

static struct gpushm_frame *launch(struct stage *g)
{
	struct gpushm_frame *f = NULL;

	ck_assert_msg(gpushm_graph_next(g->frame, g->exec, 10000, &f) == 0, "%s", gpushm_error());
	ck_assert_int_eq(cu.launch(g->exec, g->stream), 0);
	return f;
}

START_TEST(each_launch_of_a_graph_has_the_next_frame)
{
	make(3);
	capture(&produces, p, true);
	capture(&reads, r, true);
	for (uint64_t seq = 1; seq <= 20; seq++) {
		struct gpushm_frame *f = launch(&produces);

		ck_assert_uint_eq(gpushm_frame_seq(f), seq);
		ck_assert_int_eq(gpushm_frame_publish(f, produces.stream, NULL, 0), 0);
		f = launch(&reads);
		ck_assert_uint_eq(gpushm_frame_seq(f), seq);
		ck_assert_int_eq(gpushm_frame_release(f, reads.stream), 0);
	}
	ck_assert_int_eq(cu.synchronize(reads.stream), 0);
	ck_assert_int_eq(produces.runs, 20);
	ck_assert_int_eq(reads.runs, 20);
}
END_TEST

START_TEST(a_graph_waits_until_its_frame_is_ready)
{
	struct gpushm_frame *f = NULL;

	make(3);
	capture(&reads, r, true);
	ck_assert_int_eq(gpushm_frame_begin(p, one, 0, &f), 0);
	cu_work(one);
	ck_assert_int_eq(gpushm_frame_publish(f, one, NULL, 0), 0);
	f = launch(&reads);
	ck_assert_int_eq(gpushm_frame_release(f, reads.stream), 0);
	ck_assert_int_ne(cu.query(reads.stream), 0);
	ck_assert_int_eq(reads.runs, 0);
	cu_gate_open = true;
	ck_assert_int_eq(cu.synchronize(reads.stream), 0);
	ck_assert_int_eq(reads.runs, 1);
}
END_TEST

/* The graph has written that the frame is finished. */
START_TEST(a_frame_after_one_given_back_waits_for_its_own_work)
{
	struct gpushm_frame *f = NULL;

	make(3);
	capture(&produces, p, true);
	ck_assert_ptr_null(gpushm_frame_cancel(launch(&produces)));
	ck_assert_int_eq(gpushm_frame_begin(p, one, 0, &f), 0);
	ck_assert_uint_eq(gpushm_frame_seq(f), 1);
	cu_work(one);
	ck_assert_int_eq(gpushm_frame_publish(f, one, NULL, 0), 0);
	ck_assert_int_eq(gpushm_frame_next(r, GPUSHM_ON_HOST, 20, &f), -ETIMEDOUT);
	cu_gate_open = true;
	ck_assert_int_eq(gpushm_frame_next(r, GPUSHM_ON_HOST, 10000, &f), 0);
	ck_assert_int_eq(gpushm_frame_release(f, GPUSHM_ON_HOST), 0);
}
END_TEST

/* The GPU has not finished the frame that the slot had. */
START_TEST(a_failed_call_gives_no_slot_back_in_mid_work)
{
	struct gpushm_frame *f = NULL;
	pthread_t thread;
	void *graph;

	make(2);
	r = gpushm_stream_close(r);
	client_status();
	capture(&produces, p, true);
	capture(&reads, p, true); /* the other graph's nodes are not this one's */
	graph = produces.exec;
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(gpushm_frame_begin(p, one, 0, &f), 0);
		if (i == 0)
			cu_work(one);
		ck_assert_int_eq(gpushm_frame_publish(f, one, NULL, 0), 0);
	}
	thread = cu_open_gate_later();
	ck_assert_int_eq(gpushm_graph_next(reads.frame, graph, 0, &f), -EIO);
	if (gpushm_frame_begin(p, GPUSHM_ON_HOST, 0, &f) == 0) {
		ck_assert(cu_gate_open);
		gpushm_frame_cancel(f);
	}
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_wrong_capture_is_refused_and_named)
{
	struct gpushm_graph_frame *g = NULL;
	struct gpushm_frame *f = NULL;
	uint64_t offset = 7;

	make(3);
	ck_assert_int_eq(gpushm_graph_acquire(p, one, NULL, &g), -EINVAL);
	says("does not capture");
	ck_assert_int_eq(gpushm_graph_offset(p, "nothing", &offset), -ENOENT);
	ck_assert_uint_eq(offset, 7);
	ck_assert_int_eq(gpushm_graph_offset(p, "words", &offset), 0);
	capture(&produces, p, false);
	ck_assert_int_eq(gpushm_graph_release(produces.frame, one), -EINVAL);
	ck_assert_int_eq(gpushm_graph_next(produces.frame, produces.exec, 0, &f), -EINVAL);
	says("gpushm_graph_release()");
}
END_TEST

/* Where the first argument is right. */
START_TEST(a_null_is_refused)
{
	struct gpushm_graph_frame *g = NULL;
	struct gpushm_frame *f = NULL;
	uint64_t offset;

	make(3);
	ck_assert_int_eq(gpushm_graph_offset(p, NULL, &offset), -EINVAL);
	says("needs a name");
	ck_assert_int_eq(gpushm_graph_acquire(p, NULL, NULL, &g), -EINVAL);
	capture(&produces, p, true);
	ck_assert_int_eq(gpushm_graph_next(produces.frame, NULL, 0, &f), -EINVAL);
	says("is NULL");
	/* No slot was taken for it. */
	ck_assert_int_eq(gpushm_frame_begin(p, one, 0, &f), 0);
	ck_assert_int_eq(gpushm_frame_array(f, NULL, NULL), -EINVAL);
	says("needs a name");
	gpushm_frame_cancel(f);
	ck_assert_int_eq(gpushm_stream_stats(p, NULL), -EINVAL);
	says("is NULL");
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("stream_graphs");

	if (!fake_is_here())
		return 0;
	tcase_add_checked_fixture(t, setup, end);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, each_launch_of_a_graph_has_the_next_frame);
	tcase_add_test(t, a_graph_waits_until_its_frame_is_ready);
	tcase_add_test(t, a_frame_after_one_given_back_waits_for_its_own_work);
	tcase_add_test(t, a_failed_call_gives_no_slot_back_in_mid_work);
	tcase_add_test(t, a_wrong_capture_is_refused_and_named);
	tcase_add_test(t, a_null_is_refused);
	return suite_run("stream_graphs", t, NULL);
}
