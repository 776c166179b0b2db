/* SPDX-License-Identifier: MIT
 *
 * What begin() and publish() take of a producer's time, with many readers. All readers are in one
 * process: to the producer they are as many as in many. Beside it, the driver's calls alone that a
 * program makes by hand: one write, and a wait for each reader.
 */
#include "tests/bench/streams/lane.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define SLOTS 4u
#define TIMEOUT_MS 20000

/* Polls, so that the caches of a program at work are compared, not those of one that has slept. */
static void await(uint64_t frame)
{
	while (atomic_load(&side.board->done) < frame)
		continue;
}

/* ---- the producer ---- */

static struct gpushm_stream *make_stream(void)
{
	const int64_t shape[] = { 4096 };
	const struct gpushm_array_spec array = { .struct_size = sizeof(array),
						 .name = "frame",
						 .dtype = { 1, 8, 1, 0 },
						 .ndim = 1,
						 .shape = shape };
	const struct gpushm_stream_spec spec = { .struct_size = sizeof(spec),
						 .arrays = &array,
						 .n_arrays = 1,
						 .slots = SLOTS,
						 .readers = READERS_MAX };
	const struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = lane_pool() };
	struct lane l = { .index = 0 };
	struct gpushm_stream *s;

	side_must(gpushm_stream_create(side.c, lane_label(&l), &spec, &o, &s), "a stream");
	return s;
}

/* One frame: the two calls are timed, not the work. */
static double produce(struct gpushm_stream *s, unsigned i)
{
	struct gpushm_frame *f;
	struct gpushm_array *a;
	uint64_t start, begun, filled, end;

	start = now_ns();
	side_must(gpushm_frame_begin(s, work_stream(), TIMEOUT_MS, &f), "begin");
	begun = now_ns();
	side_must(gpushm_frame_array(f, "frame", &a), "a frame's array");
	work_fill((uintptr_t)(side.board->job.gpu ? gpushm_array_device_ptr(a)
						  : gpushm_array_host_ptr(a)),
		  i);
	gpushm_array_free(a);
	filled = now_ns();
	side_must(gpushm_frame_publish(f, work_stream(), NULL, 0), "publish");
	end = now_ns();
	return (double)(begun - start + end - filled) / 1e3;
}

/* ---- the readers ---- */

static void join_all(struct gpushm_stream **readers)
{
	struct lane l = { .index = 0 };

	for (unsigned i = 0; i < side.board->job.readers; i++)
		side_must(gpushm_stream_open(side.c, lane_label(&l), GPUSHM_EVERY, SLOTS - 1,
					     TIMEOUT_MS, NULL, &readers[i]),
			  "joining a stream");
}

static void leave_all(struct gpushm_stream **readers)
{
	for (unsigned i = 0; i < side.board->job.readers; i++)
		gpushm_stream_close(readers[i]);
}

/* Polls: to wake a reader that sleeps is a system call, which the row "wake" has. */
static struct gpushm_frame *next_frame(struct gpushm_stream *s)
{
	struct gpushm_frame *f;
	int r;

	do
		r = gpushm_frame_next(s, work_stream(), 0, &f);
	while (r == -EAGAIN);
	side_must(r, "next");
	return f;
}

/* The gate, if there is one, is a word for which the readers' GPU waits before it releases. */
static void read_all(struct gpushm_stream **readers, uint64_t gate)
{
	struct gpushm_frame *frames[READERS_MAX];

	for (unsigned i = 0; i < side.board->job.readers; i++)
		frames[i] = next_frame(readers[i]);
	if (gate)
		gpu_wait(gpu.board + LANES * WORDS_BYTES, gate);
	for (unsigned i = 0; i < side.board->job.readers; i++)
		side_must(gpushm_frame_release(frames[i], work_stream()), "release");
}

/* ---- gpushm's cost ---- */

static void run_producer(void (*round)(struct gpushm_stream *s, unsigned i))
{
	struct gpushm_stream *s = make_stream();

	board_meet(side.board);
	board_meet(side.board);
	for (unsigned i = 1; i <= side.board->job.frames; i++)
		round(s, i);
	board_meet(side.board);
	board_meet(side.board);
	gpushm_stream_close(s);
}

static void run_readers(void (*round)(struct gpushm_stream **readers, unsigned i))
{
	struct gpushm_stream *readers[READERS_MAX];

	board_meet(side.board);
	join_all(readers);
	board_meet(side.board);
	for (unsigned i = 1; i <= side.board->job.frames; i++)
		round(readers, i);
	work_wait();
	board_meet(side.board);
	leave_all(readers);
	board_meet(side.board);
}

/* All readers have released all frames. */
static void produce_round(struct gpushm_stream *s, unsigned i)
{
	double us;

	await(i - 1);
	us = produce(s, i);
	if (i > 8)
		board_add(side.board, us);
}

static void read_round(struct gpushm_stream **readers, unsigned i)
{
	read_all(readers, 0);
	work_wait();
	atomic_store(&side.board->done, i);
}

/* The driver's calls alone. */
static void words_round(unsigned i)
{
	static CUstreamBatchMemOpParams ops[READERS_MAX];
	uint64_t start;

	for (unsigned k = 0; k < side.board->job.readers; k++) {
		ops[k].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
		ops[k].waitValue.address = gpu.board + WORDS_BYTES + 64ul * k;
		ops[k].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
	}
	start = now_ns();
	GPU_MUST(gpu.call.batch(gpu.stream, side.board->job.readers, ops, 0));
	gpu_write(gpu.board, i);
	board_add(side.board, (double)(now_ns() - start) / 1e3);
	work_wait();
}

static void run_words(void)
{
	if (!gpu.words)
		side_fail("the driver has no stream memory operations");
	for (unsigned i = 1; side.index == 0 && i <= side.board->job.frames; i++)
		words_round(i);
}

void job_cost(void)
{
	if (side.board->job.lane == LANE_WORDS)
		run_words();
	else if (side.index == 0)
		run_producer(produce_round);
	else
		run_readers(read_round);
}

/* ---- the same while all slots wait for all readers ---- */

/* The readers have been through all slots, and the gate keeps all of their GPU's releases. */
static void produce_waiting(struct gpushm_stream *s, unsigned i)
{
	_Atomic uint64_t *gate = (_Atomic uint64_t *)side.board->words[LANES];
	uint64_t before = (uint64_t)(i - 1) * (SLOTS + 1);
	double us;

	for (unsigned k = 0; k < SLOTS; k++) {
		await(before + k);
		produce(s, k);
	}
	await(before + SLOTS);
	us = produce(s, i);
	if (i > 8)
		board_add(side.board, us);
	atomic_store(gate, i);
}

static void read_waiting(struct gpushm_stream **readers, unsigned i)
{
	uint64_t before = (uint64_t)(i - 1) * (SLOTS + 1);

	for (unsigned k = 0; k <= SLOTS; k++) {
		read_all(readers, k == 0 ? i : 0);
		if (k == SLOTS)
			work_wait();
		atomic_store(&side.board->done, before + k + 1);
	}
}

void job_cost_waits(void)
{
	if (!gpu.words)
		side_fail("the driver has no stream memory operations");
	if (side.index == 0)
		run_producer(produce_waiting);
	else
		run_readers(read_waiting);
}
