/* SPDX-License-Identifier: MIT
 *
 * The jobs that pass frames through lanes.
 */
#include "tests/bench/streams/lane.h"

#include <stdatomic.h>
#include <unistd.h>

#define WARM 64u /* frames that are not measured */
#define SLEEP_US 250u

static void sleep_until(uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* ---- hop ---- */

static void hop(struct lane *out, struct lane *in, uint64_t i)
{
	if (side.index == 0) {
		out->ops->begin(out, i);
		out->ops->publish(out, i);
		in->ops->next(in, i);
		in->ops->release(in, i);
	} else {
		in->ops->next(in, i);
		in->ops->release(in, i);
		out->ops->begin(out, i);
		out->ops->publish(out, i);
	}
}

/* Half of a round trip, so that no clock is read twice in it. */
void job_hop(void)
{
	const unsigned used = 1u << 0 | 1u << 2;
	struct lane lanes[LANES];
	struct lane *out = &lanes[side.index ? 2 : 0], *in = &lanes[side.index ? 0 : 2];

	lanes_open(lanes, used);
	for (uint64_t i = 1; i <= side.board->job.frames + WARM; i++) {
		uint64_t start = now_ns();

		hop(out, in, i);
		if (side.index == 0 && i > WARM)
			board_add(side.board, (double)(now_ns() - start) / 2e3);
	}
	lanes_close(lanes, used);
}

/* ---- one frame at a time ---- */

static void begin_one(struct lane *l, uint64_t i, bool fill)
{
	uintptr_t frame;

	board_await(side.board, i - 1);
	usleep(SLEEP_US);
	atomic_store(&side.board->begun_ns[i % FRAMES_MAX], now_ns());
	frame = l->ops->begin(l, i);
	if (fill)
		work_fill(frame, (unsigned)i);
	l->ops->publish(l, i);
}

static void end_one(uint64_t i)
{
	uint64_t end = now_ns(), begun = atomic_load(&side.board->begun_ns[i % FRAMES_MAX]);

	if (i > 3)
		board_add(side.board, (double)(end - begun) / 1e3);
}

/* The pause before each frame is long enough for the reader to fall asleep. */
void job_wake(void)
{
	struct lane lanes[LANES];
	struct lane *l = &lanes[0];

	lanes_open(lanes, 1u << 0);
	for (uint64_t i = 1; i <= side.board->job.frames + 3; i++) {
		if (side.index == 0) {
			begin_one(l, i, false);
			continue;
		}
		l->ops->next(l, i);
		end_one(i);
		l->ops->release(l, i);
		atomic_store(&side.board->done, i);
	}
	lanes_close(lanes, 1u << 0);
}

/* Four bytes of the frame come to the host (without a GPU one); they must be those of this frame.
 */
static void read_one(struct lane *l, uint64_t i)
{
	bool on_gpu = side.board->job.gpu;
	uintptr_t frame = l->ops->next(l, i);
	unsigned got;

	if (on_gpu)
		GPU_MUST(gpu.call.memcpy_dtoh_async(gpu.result, frame, sizeof(*gpu.result),
						    gpu.stream));
	work_wait();
	got = on_gpu ? *gpu.result : *(unsigned char *)frame;
	if (got != (unsigned)(on_gpu ? i : i & 0xff))
		side_fail("frame %llu has the contents of frame %u", (unsigned long long)i, got);
}

void job_frame(void)
{
	struct lane lanes[LANES];
	struct lane *l = &lanes[0];

	lanes_open(lanes, 1u << 0);
	for (uint64_t i = 1; i <= side.board->job.frames + 3; i++) {
		if (side.index == 0) {
			begin_one(l, i, true);
			continue;
		}
		read_one(l, i);
		end_one(i);
		l->ops->release(l, i);
		atomic_store(&side.board->done, i);
	}
	lanes_close(lanes, 1u << 0);
}

/* ---- many frames ---- */

/* The last process of a paced flow: the frame's time, from its begin in the first. */
static void end_frame(uint64_t i)
{
	uint64_t end;

	work_wait();
	end = now_ns();
	if (i > WARM)
		board_add(side.board,
			  (double)(end - atomic_load(&side.board->begun_ns[i % FRAMES_MAX])) / 1e3);
}

/* One frame through this process. out, in: NULL in the last and the first one. */
static void pass(struct lane *out, struct lane *in, uint64_t i)
{
	uintptr_t from = in ? in->ops->next(in, i) : 0;
	uintptr_t to = out ? out->ops->begin(out, i) : 0;

	if (out && in)
		work_copy(to, from);
	else if (out)
		work_fill(to, (unsigned)i);
	else
		work_read(from);
	if (out)
		out->ops->publish(out, i);
	else if (side.board->job.per_second > 0)
		end_frame(i);
	if (in)
		in->ops->release(in, i);
}

/* The first process: paces the frames, and writes down when it began each. */
static void begin_frame(uint64_t i, uint64_t start)
{
	double per_second = side.board->job.per_second;

	if (per_second > 0)
		sleep_until(start + (uint64_t)((double)i * 1e9 / per_second));
	if (i == WARM + 1)
		atomic_store(&side.board->began_ns, now_ns());
	atomic_store(&side.board->begun_ns[i % FRAMES_MAX], now_ns());
}

/* Through all processes of the job: frames a second, or the time of each frame from its begin to
 * its end in the last process. */
void job_flow(void)
{
	const struct job *job = &side.board->job;
	const unsigned used = (1u << (job->sides - 1)) - 1;
	struct lane lanes[LANES];
	struct lane *out = side.index + 1 < job->sides ? &lanes[side.index] : NULL;
	struct lane *in = side.index > 0 ? &lanes[side.index - 1] : NULL;
	uint64_t start;

	lanes_open(lanes, used);
	start = now_ns();
	for (uint64_t i = 1; i <= job->frames + WARM; i++) {
		if (!in)
			begin_frame(i, start);
		pass(out, in, i);
	}
	work_wait();
	if (!out && job->per_second <= 0)
		board_add(side.board,
			  job->frames * 1e9 /
				  (double)(now_ns() - atomic_load(&side.board->began_ns)));
	lanes_close(lanes, used);
}
