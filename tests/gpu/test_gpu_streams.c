/* SPDX-License-Identifier: MIT
 *
 * Streams whose frames are on a GPU: deaths in mid-kernel, waits on the GPU, graphs.
 *
 * Readers are killed while a kernel of theirs reads a frame without end and notes each word that is
 * not the frame's, while another reader checks each byte of the frames that it holds. Then the same
 * with a daemon that takes a closed socket for the end of the process: there the dead readers'
 * kernels must see their frames overwritten, otherwise the test could never fail.
 *
 * Environment: STREAM_KILLS, STREAM_SECONDS (at most that long, with whatever number of kills).
 */
#include "client/gpushm_stream.h"
#include "proto/base/own.h"
#include "tests/gpu/fixture.h"
#include "tests/gpu/hunt.h"
#include "tests/gpu/stream_roles.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define POOLS                                    \
	"[pool vmm]\nkind=vmm\nsize=64M\n"       \
	"[pool pinned]\nkind=pinned\nsize=64M\n" \
	"[pool host]\nkind=host\nsize=16M\n"
#define TRUST "[daemon]\nunwatched-clients=trust\n"

static void begin_test(const char *config, const char *program)
{
	const struct daemon_options o = { .program = program };

	fake = gpu_is_fake();
	daemon_start_with(&d, config, &o);
	ck_assert(driver_open(&gpu, 0) && kernels_load(&gpu));
	ck_assert_int_eq(gpu.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

static void end_test(void)
{
	c = gpushm_disconnect(c);
	gpu.stream_destroy(stream);
	driver_close(&gpu, 0);
	daemon_stop(&d);
}

static unsigned env_number(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);

	return text ? (unsigned)atoi(text) : otherwise;
}

/* ---- readers that are killed ---- */

START_TEST(a_frame_stays_whole_while_a_dead_readers_kernel_reads_it)
{
	_cleanup_(free_ptr) struct hunt *h = calloc(1, sizeof(*h));
	struct role_process checker;
	unsigned long frames, bad;
	char line[64];

	begin_test(POOLS, NULL);
	h->follow = "latest";
	h->releases = true;
	hunt_begin(h, "hunted", env_number("STREAM_KILLS", fake ? 6 : 1000));
	role_start(&checker, "checker", (const char *[]){ d.socket, "hunted", "every", "0", NULL });
	role_read_line(&checker, line, sizeof(line));
	hunt(h, "hunted", env_number("STREAM_SECONDS", 100));
	role_write_line(&checker, "stop");
	role_read_line(&checker, line, sizeof(line));
	ck_assert_int_eq(sscanf(line, "%lu %lu", &frames, &bad), 2);
	role_finish(&checker);
	hunt_end(h);
	snprintf(line, sizeof(line), "%lu, %lu", frames, bad);
	hunt_report(h, "pidfd", line);
	ck_assert_uint_eq(h->overwritten, 0);
	ck_assert_uint_eq(bad, 0);
	ck_assert_uint_gt(frames, 0);
	ck_assert_uint_gt(h->kills, 0);
	end_test();
}
END_TEST

START_TEST(the_hunt_finds_overwritten_frames_where_the_rule_is_off)
{
	_cleanup_(free_ptr) struct hunt *h = calloc(1, sizeof(*h));

	begin_test(TRUST POOLS, "tests/gpushmd-nopidfd");
	h->follow = "latest";
	hunt_begin(h, "hunted", fake ? 3 : 30);
	hunt(h, "hunted", 20);
	hunt_end(h);
	hunt_report(h, "its socket", "-");
	ck_assert_msg(h->overwritten > 0, "no frame was overwritten where the rule is off: the "
					  "hunt proves nothing");
	end_test();
}
END_TEST

/* ---- how long a producer pauses ---- */

struct end {
	int pidfd;
	_Atomic double gone; /* us */
	pthread_t thread;
};

static void *await_end(void *argument)
{
	struct end *e = argument;
	struct pollfd p = { .fd = e->pidfd, .events = POLLIN };

	poll(&p, 1, -1);
	e->gone = now_us();
	return NULL;
}

/* A reader that holds a frame behind an endless kernel, one for all the tests below. */
static void hold_one(struct hunt *h, const char *name, bool release)
{
	struct victim *v = &h->victims[0];

	hunt_open_page(h);
	h->n_victims = 1;
	h->started = h->releases = release;
	victim_start(h, v, name);
	victim_expect(v, "ready");
}

static void let_hold(struct hunt *h)
{
	struct victim *v = &h->victims[0];

	role_write_line(&v->process, "take");
	victim_expect(v, "holding");
	client_await(v->witness->started);
}

static void kill_holder(struct hunt *h, struct end *e)
{
	e->pidfd = h->victims[0].pidfd;
	ck_assert_int_eq(pthread_create(&e->thread, NULL, await_end, e), 0);
	ck_assert_int_eq(kill(h->victims[0].process.pid, SIGKILL), 0);
}

static void end_holder(struct hunt *h, struct end *e)
{
	pthread_join(e->thread, NULL);
	victim_end(&h->victims[0]);
	hunt_close_page(h);
}

/* Both slots are the reader's: the one that it holds, and the newest frame that it has not taken.
 * Returns how long after the process's end the producer went on, in ms. */
static double pause_without_spare_slots(unsigned round)
{
	struct hunt h = { .follow = "every" };
	struct gpushm_frame *f = NULL;
	struct gpushm_stream *s;
	struct end e;
	char name[32];
	double went_on;

	snprintf(name, sizeof(name), "tight/%u", round);
	s = make(name, "vmm", 2);
	hold_one(&h, name, false);
	put(s, stream);
	let_hold(&h);
	put(s, stream);
	ck_assert_int_eq(gpushm_frame_begin(s, stream, 0, &f), -EAGAIN);
	kill_holder(&h, &e);
	ok(gpushm_frame_begin(s, stream, 10000, &f));
	went_on = now_us();
	ck_assert_msg(victim_is_gone(&h.victims[0]), "the slot is reused, the reader is not gone");
	fill_and_publish(f, stream);
	end_holder(&h, &e);
	gpushm_stream_close(s);
	return (went_on - e.gone) / 1e3;
}

/* The longest begin() until the process is gone, in ms. */
static double pause_with_spare_slots(unsigned round)
{
	struct hunt h = { .follow = "latest" };
	struct gpushm_stream *s;
	double longest = 0;
	struct end e = { 0 };
	char name[32];

	snprintf(name, sizeof(name), "spare/%u", round);
	s = make(name, "vmm", 4);
	hold_one(&h, name, false);
	put(s, stream);
	let_hold(&h);
	kill_holder(&h, &e);
	while (e.gone == 0) {
		struct gpushm_frame *f = NULL;
		double before = now_us();

		ok(gpushm_frame_begin(s, stream, 10000, &f));
		if (now_us() - before > longest)
			longest = now_us() - before;
		fill_and_publish(f, stream);
		gpu.stream_synchronize(stream);
	}
	end_holder(&h, &e);
	gpushm_stream_close(s);
	return longest / 1e3;
}

START_TEST(a_producer_goes_on_when_a_killed_reader_is_gone)
{
	unsigned rounds = gpu_is_fake() ? 2 : 10;
	double tight[20], spare[20];

	begin_test(POOLS, NULL);
	for (unsigned i = 0; i < rounds; i++) {
		tight[i] = pause_without_spare_slots(i);
		spare[i] = pause_with_spare_slots(i);
	}
	qsort(tight, rounds, sizeof(*tight), by_size);
	qsort(spare, rounds, sizeof(*spare), by_size);
	puts("figure: | a reader killed in mid-kernel | times | the producer's pause, ms: median, "
	     "most |");
	printf("figure: | no spare slot: after the process's end | %u | %.2f, %.2f |\n", rounds,
	       tight[rounds / 2], tight[rounds - 1]);
	printf("figure: | spare slots: the longest begin() | %u | %.3f, %.3f |\n", rounds,
	       spare[rounds / 2], spare[rounds - 1]);
	end_test();
}
END_TEST

/* The release is queued behind the reader's kernel, so that the producer's GPU waits for it. */
START_TEST(a_gpu_stops_waiting_for_a_dead_reader)
{
	struct hunt h = { .follow = "every" };
	struct gpushm_stream *s;
	struct end e;
	double killed;

	begin_test(POOLS, NULL);
	s = make("tight", "vmm", 2);
	hold_one(&h, "tight", true);
	put(s, stream);
	let_hold(&h);
	put(s, stream);
	ck_assert_int_eq(gpu.stream_synchronize(stream), CUDA_SUCCESS);
	put(s, stream); /* at once: into the slot that the reader's GPU is still to release */
	ck_assert_int_eq(gpu.stream_query(stream), CUDA_ERROR_NOT_READY);
	kill_holder(&h, &e);
	killed = now_us();
	ck_assert_int_eq(gpu.stream_synchronize(stream), CUDA_SUCCESS);
	printf("figure: | a GPU that waits for a reader goes on %.1f ms after its kill |\n",
	       (now_us() - killed) / 1e3);
	ck_assert(h.witnesses[0].seen == 0);
	end_holder(&h, &e);
	gpushm_stream_close(s);
	end_test();
}
END_TEST

/* ---- a producer that is killed ---- */

static unsigned *copy_of(CUdeviceptr words)
{
	unsigned *copy = malloc(FRAME_BYTES);

	ck_assert_int_eq(gpu.memcpy_dtoh_async(copy, words, FRAME_BYTES, stream), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.stream_synchronize(stream), CUDA_SUCCESS);
	return copy;
}

START_TEST(an_unfinished_frame_of_a_dead_producer_is_reported_broken)
{
	struct gpushm_frame *good = NULL, *broken = NULL, *none = NULL;
	struct gpushm_stream *s = NULL;
	struct role_process producer;
	unsigned *copy;
	char line[64];

	begin_test(POOLS, NULL);
	role_start(&producer, "dying_producer", (const char *[]){ d.socket, "short", "vmm", NULL });
	role_read_line(&producer, line, sizeof(line));
	ok(gpushm_stream_open(c, "short", GPUSHM_LATEST, 2, 5000, NULL, &s));
	ok(gpushm_frame_next(s, stream, 5000, &good));
	role_write_line(&producer, "go on");
	role_read_line(&producer, line, sizeof(line));
	ok(gpushm_frame_next(s, stream, 5000, &broken));
	ck_assert_int_eq(gpu.stream_query(stream), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(kill(producer.pid, SIGKILL), 0);
	ck_assert_int_eq(gpu.stream_synchronize(stream), CUDA_SUCCESS);
	ck_assert_int_eq(gpushm_frame_ok(broken), -EPIPE);
	ck_assert_int_eq(gpushm_frame_ok(good), 0);
	copy = copy_of(frame_words(good));
	for (size_t i = 0; i < FRAME_WORDS; i++)
		ck_assert_uint_eq(copy[i], 1);
	free(copy);
	ck_assert_int_eq(gpushm_frame_next(s, stream, 5000, &none), -ENOBUFS);
	ck_assert_int_eq(gpushm_frame_release(broken, stream), -EPIPE);
	ok(gpushm_frame_release(good, stream));
	ck_assert_int_eq(gpushm_frame_next(s, stream, 5000, &none), -EOWNERDEAD);
	role_wait(&producer);
	gpushm_stream_close(s);
	end_test();
}
END_TEST

/* ---- order ---- */

static void check_with(const char *name, const char *follow, bool on_host,
		       void (*produce)(struct gpushm_stream *s), struct gpushm_stream *s)
{
	struct role_process checker;
	unsigned long frames, bad;
	char line[64];

	role_start(&checker, "checker",
		   (const char *[]){ d.socket, name, follow, on_host ? "1" : "0", NULL });
	role_read_line(&checker, line, sizeof(line));
	produce(s);
	gpushm_stream_close(s);
	role_read_line(&checker, line, sizeof(line));
	ck_assert_int_eq(sscanf(line, "%lu %lu", &frames, &bad), 2);
	role_finish(&checker);
	ck_assert_uint_eq(bad, 0);
	if (strcmp(follow, "every") == 0)
		ck_assert_uint_eq(frames, 200);
}

static void produce_by_cpu(struct gpushm_stream *s)
{
	for (int i = 0; i < 200; i++) {
		struct gpushm_frame *f = NULL;
		struct gpushm_array *a = NULL;
		uint32_t *words;
		uint64_t seq;

		ok(gpushm_frame_begin(s, GPUSHM_ON_HOST, 10000, &f));
		ok(gpushm_frame_array(f, "words", &a));
		words = gpushm_array_host_ptr(a);
		seq = gpushm_frame_seq(f);
		for (size_t n = 0; n < FRAME_WORDS; n++)
			words[n] = (uint32_t)seq;
		gpushm_array_free(a);
		ok(gpushm_frame_publish(f, GPUSHM_ON_HOST, &seq, sizeof(seq)));
	}
}

static void produce_by_gpu(struct gpushm_stream *s)
{
	for (int i = 0; i < 200; i++)
		put(s, stream);
	ck_assert_int_eq(gpu.stream_synchronize(stream), CUDA_SUCCESS);
}

START_TEST(a_cpu_and_a_gpu_exchange_whole_frames)
{
	begin_test(POOLS, NULL);
	check_with("cpu-gpu", "every", false, produce_by_cpu, make("cpu-gpu", "pinned", 4));
	check_with("gpu-cpu", "every", true, produce_by_gpu, make("gpu-cpu", "pinned", 4));
	check_with("gpu-gpu", "every", false, produce_by_gpu, make("gpu-gpu", "vmm", 3));
	check_with("gpu-latest", "latest", false, produce_by_gpu, make("gpu-latest", "vmm", 5));
	end_test();
}
END_TEST

/* A word that a CUDA stream waits for, to hold it up. */
static _Atomic uint64_t *gate;
static CUdeviceptr gate_address;

static void gate_open(void)
{
	gate = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_int_eq(gpu.mem_host_register((void *)gate, 4096, 0), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.host_pointer(&gate_address, (void *)gate, 0), CUDA_SUCCESS);
}

static void gate_close(void)
{
	gpu.mem_host_unregister((void *)gate);
	munmap((void *)gate, 4096);
}

/* Until gate_let_pass(). */
static void gate_hold(CUstream it)
{
	ck_assert_int_eq(gpu.wait_value(it, gate_address, *gate + 1, 0), CUDA_SUCCESS);
}

static void gate_let_pass(void)
{
	++*gate;
}

/* The first of two CUDA streams of a producer is held up; the second one comes to the same slot. */
START_TEST(a_second_cuda_stream_waits_for_the_first_in_a_slot)
{
	struct gpushm_frame *f[3] = { NULL };
	struct gpushm_stream *s;
	CUdeviceptr slot;
	unsigned *copy;
	CUstream other;

	begin_test(POOLS, NULL);
	ck_assert_int_eq(gpu.stream_create(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	gate_open();
	s = make("two", "vmm", 2);
	ok(gpushm_frame_begin(s, stream, 1000, &f[0]));
	slot = frame_words(f[0]);
	gate_hold(stream);
	fill_and_publish(f[0], stream);
	put(s, other);
	ck_assert_int_eq(gpu.stream_synchronize(other), CUDA_SUCCESS);
	ok(gpushm_frame_begin(s, other, 1000, &f[2]));
	ck_assert_uint_eq(frame_words(f[2]), slot);
	fill_and_publish(f[2], other);
	ck_assert_int_eq(gpu.stream_query(other), CUDA_ERROR_NOT_READY);
	gate_let_pass();
	ck_assert_int_eq(gpu.stream_synchronize(other), CUDA_SUCCESS);
	copy = copy_of(slot);
	ck_assert_uint_eq(copy[0], 3);
	ck_assert_uint_eq(copy[FRAME_WORDS - 1], 3);
	free(copy);
	gpushm_stream_close(s);
	gate_close();
	gpu.stream_destroy(other);
	end_test();
}
END_TEST

/* ---- graphs ---- */

#define GRAPH_WORDS 1024

/* One side's captured graph. */
struct stage {
	struct gpushm_stream *s;
	struct gpushm_graph_frame *frame;
	CUdeviceptr state; /* struct graph_state */
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;
};

typedef CUresult graph_work_fn(const struct driver *d, CUstream stream, CUdeviceptr state);

static void stage_begin(struct stage *g, struct gpushm_stream *s, graph_work_fn *work)
{
	const struct graph_state state = { .words = GRAPH_WORDS };
	uint64_t offset;

	g->s = s;
	ck_assert_int_eq(gpu.stream_create(&g->stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.mem_alloc(&g->state, sizeof(state)), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.memcpy_htod(g->state, &state, sizeof(state)), CUDA_SUCCESS);
	ok(gpushm_graph_offset(s, "words", &offset));
	ck_assert_uint_eq(offset, 0);
	ck_assert_int_eq(gpu.begin_capture(g->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
			 CUDA_SUCCESS);
	ok(gpushm_graph_acquire(s, g->stream, (void *)(uintptr_t)g->state, &g->frame));
	ck_assert_int_eq(work(&gpu, g->stream, g->state), CUDA_SUCCESS);
	ok(gpushm_graph_release(g->frame, g->stream));
	ck_assert_int_eq(gpu.end_capture(g->stream, &g->graph), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.graph_instantiate(&g->exec, g->graph, 0), CUDA_SUCCESS);
}

static struct gpushm_frame *stage_launch(struct stage *g)
{
	struct gpushm_frame *f = NULL;

	ok(gpushm_graph_next(g->frame, g->exec, 10000, &f));
	ck_assert_int_eq(gpu.graph_launch(g->exec, g->stream), CUDA_SUCCESS);
	return f;
}

/* Returns the state as the graph's work has left it. */
static struct graph_state stage_end(struct stage *g)
{
	struct graph_state state;

	ck_assert_int_eq(gpu.stream_synchronize(g->stream), CUDA_SUCCESS);
	ck_assert_int_eq(gpu.memcpy_dtoh(&state, g->state, sizeof(state)), CUDA_SUCCESS);
	gpu.graph_exec_destroy(g->exec);
	gpu.graph_destroy(g->graph);
	g->frame = gpushm_graph_free(g->frame);
	g->s = gpushm_stream_close(g->s);
	gpu.mem_free(g->state);
	gpu.stream_destroy(g->stream);
	return state;
}

static void launch_producer(struct stage *g, unsigned expected)
{
	struct gpushm_frame *f = stage_launch(g);
	uint64_t seq = gpushm_frame_seq(f);

	ck_assert_uint_eq(seq, expected);
	ok(gpushm_frame_publish(f, g->stream, &seq, sizeof(seq)));
}

static void launch_consumer(struct stage *g, unsigned expected)
{
	struct gpushm_frame *f = stage_launch(g);

	ck_assert_uint_eq(gpushm_frame_seq(f), expected);
	ok(gpushm_frame_release(f, g->stream));
}

struct pipeline {
	struct stage produce, consume;
};

static void pipeline_begin(struct pipeline *p)
{
	struct gpushm_stream *s, *r = NULL;

	begin_test(POOLS, NULL);
	gate_open();
	s = make("graphs", "vmm", 3);
	ok(gpushm_stream_open(c, "graphs", GPUSHM_EVERY, 1, 1000, NULL, &r));
	stage_begin(&p->produce, s, kernel_fill_at);
	stage_begin(&p->consume, r, kernel_check_at);
}

static void pipeline_end(struct pipeline *p, unsigned launches)
{
	struct graph_state state = stage_end(&p->consume);

	ck_assert_uint_eq(state.launches, launches);
	ck_assert_uint_eq(state.bad, 0);
	stage_end(&p->produce);
	gate_close();
	end_test();
}

START_TEST(each_launch_of_a_graph_reads_the_next_frame)
{
	unsigned launches = gpu_is_fake() ? 50 : 2000;
	struct pipeline p = { 0 };
	double before;

	pipeline_begin(&p);
	before = now_us();
	for (unsigned i = 1; i <= launches; i++) {
		launch_producer(&p.produce, i);
		launch_consumer(&p.consume, i);
	}
	ck_assert_int_eq(gpu.stream_synchronize(p.consume.stream), CUDA_SUCCESS);
	printf("figure: | %u frames handed over by two graphs of one process, each with its "
	       "acquire and release inside | %.1f us a frame |\n",
	       launches, (now_us() - before) / launches);
	pipeline_end(&p, launches);
}
END_TEST

START_TEST(a_graph_waits_until_its_frame_is_ready_or_free)
{
	struct pipeline p = { 0 };

	pipeline_begin(&p);
	gate_hold(p.produce.stream);
	launch_producer(&p.produce, 1);
	launch_consumer(&p.consume, 1);
	ck_assert_int_eq(gpu.stream_query(p.consume.stream), CUDA_ERROR_NOT_READY);
	gate_let_pass();
	ck_assert_int_eq(gpu.stream_synchronize(p.consume.stream), CUDA_SUCCESS);
	launch_producer(&p.produce, 2);
	gate_hold(p.consume.stream);
	launch_consumer(&p.consume, 2);
	launch_producer(&p.produce, 3);
	launch_producer(&p.produce, 4);
	ck_assert_int_eq(gpu.stream_synchronize(p.produce.stream), CUDA_SUCCESS);
	launch_consumer(&p.consume, 3);
	launch_producer(&p.produce, 5); /* into a slot of which a graph is to read still */
	ck_assert_int_eq(gpu.stream_query(p.produce.stream), CUDA_ERROR_NOT_READY);
	gate_let_pass();
	launch_consumer(&p.consume, 4);
	launch_consumer(&p.consume, 5);
	pipeline_end(&p, 5);
}
END_TEST

START_TEST(a_wrongly_captured_graph_is_refused)
{
	struct gpushm_graph_frame *g = NULL;
	struct gpushm_stream *s, *on_host = NULL;
	struct gpushm_frame *f = NULL;
	uint64_t offset;
	CUgraph graph;

	begin_test(POOLS, NULL);
	s = make("graphs", "vmm", 3);
	on_host = make("host", "host", 3);
	ck_assert_int_eq(gpushm_graph_acquire(on_host, stream, NULL, &g), -ENOTSUP);
	ck_assert_int_eq(gpushm_graph_acquire(s, stream, NULL, &g), -EINVAL);
	ck_assert_int_eq(gpushm_graph_offset(s, "nothing", &offset), -ENOENT);
	ck_assert_int_eq(gpu.begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
	ok(gpushm_graph_acquire(s, stream, NULL, &g));
	ck_assert_int_eq(gpu.end_capture(stream, &graph), CUDA_SUCCESS);
	ck_assert_int_eq(gpushm_graph_release(g, stream), -EINVAL);
	ck_assert_int_eq(gpushm_graph_next(g, NULL, 0, &f), -EINVAL);
	gpu.graph_destroy(graph);
	gpushm_graph_free(g);
	put(s, stream);
	gpushm_stream_close(on_host);
	gpushm_stream_close(s);
	end_test();
}
END_TEST

/* With what "make gpu-bundle" has built. */
START_TEST(the_example_of_a_graph_runs)
{
	const char *example = build_path("examples/graph_stage");

	if (gpu_is_fake() || access(example, X_OK) < 0) {
		puts("skipped: examples/graph_stage needs a GPU, and is built by make gpu-bundle");
		return;
	}
	daemon_start(&d, "[daemon]\ndefault-pool=vmm\n" POOLS, NULL);
	setenv("GPUSHM_SOCKET", d.socket, 1);
	ck_assert_int_eq(system(example), 0);
	daemon_stop(&d);
}
END_TEST

static const struct role roles[] = { { "victim", victim_role },
				     { "checker", checker_role },
				     { "dying_producer", dying_producer_role } };

int main(int argc, char **argv)
{
	const TTest *const tests[] = {
		a_cpu_and_a_gpu_exchange_whole_frames,
		a_second_cuda_stream_waits_for_the_first_in_a_slot,
		each_launch_of_a_graph_reads_the_next_frame,
		a_graph_waits_until_its_frame_is_ready_or_free,
		a_wrongly_captured_graph_is_refused,
		the_example_of_a_graph_runs,
		a_gpu_stops_waiting_for_a_dead_reader,
		an_unfinished_frame_of_a_dead_producer_is_reported_broken,
		a_producer_goes_on_when_a_killed_reader_is_gone,
		the_hunt_finds_overwritten_frames_where_the_rule_is_off,
		a_frame_stays_whole_while_a_dead_readers_kernel_reads_it,
	};

	return gpu_main_bare(argc, argv, "gpu_streams", roles, array_size(roles), tests,
			     array_size(tests));
}
