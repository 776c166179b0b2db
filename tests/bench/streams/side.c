/* SPDX-License-Identifier: MIT
 *
 * The processes of the comparison, as they run: they wait for a byte, do the job that is on the
 * board, and send a byte back. One that fails ends, which the parent sees.
 */
#include "tests/bench/streams/side.h"

#include "client/gpushm_stream.h"
#include "tests/bench/streams/gpu.h"
#include "tests/bench/streams/victim.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct side side;

void side_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (side.board && atomic_exchange(&side.board->failed, 1) == 0)
		vsnprintf(side.board->error, sizeof(side.board->error), format, args);
	va_end(args);
	_exit(1);
}

void side_must(int r, const char *what)
{
	if (r < 0)
		side_fail("%s: %s (%s)", what, gpushm_error(), strerror(-r));
}

/* ---- work ---- */

void work_fill(uintptr_t frame, unsigned value)
{
	const struct job *job = &side.board->job;

	if (job->gpu)
		GPU_MUST(gpu.call.memset_d32_async(frame, value, job->work / 4, gpu.stream));
	else
		memset((void *)frame, (int)value, job->work);
}

/* All of a large frame is copied; of a small one a piece of scratch memory is written, as the
 * smallest kernel would do. */
void work_read(uintptr_t frame)
{
	const struct job *job = &side.board->job;

	if (!job->gpu)
		memcpy(side.scratch, (void *)frame, job->work);
	else if (job->work == job->bytes)
		GPU_MUST(gpu.call.memcpy_dtod_async(gpu.scratch, frame, job->work, gpu.stream));
	else
		GPU_MUST(gpu.call.memset_d32_async(gpu.scratch, 1, job->work / 4, gpu.stream));
}

void work_copy(uintptr_t to, uintptr_t from)
{
	const struct job *job = &side.board->job;

	if (job->gpu)
		GPU_MUST(gpu.call.memcpy_dtod_async(to, from, job->work, gpu.stream));
	else
		memcpy((void *)to, (void *)from, job->work);
}

void work_wait(void)
{
	if (side.board->job.gpu)
		GPU_MUST(gpu.call.stream_synchronize(gpu.stream));
}

void *work_stream(void)
{
	return side.board->job.gpu ? gpu.stream : GPUSHM_ON_HOST;
}

/* ---- the process ---- */

static void do_job(void)
{
	static void (*const jobs[])(void) = {
		[JOB_HOP] = job_hop,
		[JOB_WAKE] = job_wake,
		[JOB_FRAME] = job_frame,
		[JOB_FLOW] = job_flow,
		[JOB_COST] = job_cost,
		[JOB_PAUSE] = job_pause,
		[JOB_COST_WAITS] = job_cost_waits,
	};

	jobs[side.board->job.kind]();
}

static void start(const char *socket, const char *memory)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	side.board = board_map(BOARD_FD);
	side.scratch = malloc(GPU_SCRATCH);
	side.has_gpu = strcmp(memory, "gpu") == 0;
	memset(side.scratch, 1, GPU_SCRATCH);
	if (side.has_gpu)
		gpu_start(side.board->words, sizeof(side.board->words));
	side_must(gpushm_connect(socket, &side.c), "connecting");
}

static void say(void)
{
	if (write(CONTROL_FD, "", 1) != 1)
		_exit(0);
}

_Noreturn static void work_for_ever(void)
{
	char byte;

	say();
	while (read(CONTROL_FD, &byte, 1) == 1) {
		do_job();
		say();
	}
	gpushm_disconnect(side.c);
	_exit(0);
}

void side_dispatch(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "--side") == 0) {
		side.index = (unsigned)atoi(argv[2]);
		start(argv[3], argv[4]);
		work_for_ever();
	}
	if (argc == 5 && strcmp(argv[1], "--victim") == 0) {
		start(argv[2], argv[3]);
		victim_run(argv[4]);
	}
}
