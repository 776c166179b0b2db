/* SPDX-License-Identifier: MIT
 *
 * A reader is killed with a frame in its hands: its process, and the producer that notes how long
 * it had to wait.
 */
#include "tests/bench/streams/lane.h"
#include "tests/bench/streams/victim.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS 20000

/* ---- the victim ---- */

/* A word that stays 0: the GPU waits for it as long as the process lives. */
static void hang(void)
{
	gpu_wait(gpu.board + LANES * WORDS_BYTES + 8192, 1);
}

_Noreturn void victim_run(const char *follow)
{
	struct lane l = { .index = 0 };
	struct gpushm_stream *s;
	struct gpushm_frame *f;
	char byte;

	if (write(CONTROL_FD, "", 1) != 1 || read(CONTROL_FD, &byte, 1) != 1)
		_exit(0);
	side_must(gpushm_stream_open(side.c, lane_label(&l),
				     strcmp(follow, "every") == 0 ? GPUSHM_EVERY : GPUSHM_LATEST, 1,
				     TIMEOUT_MS, NULL, &s),
		  "joining a stream");
	side_must(gpushm_frame_next(s, work_stream(), TIMEOUT_MS, &f), "next");
	if (side.board->job.gpu) {
		hang();
		side_must(gpushm_frame_release(f, work_stream()), "release");
	}
	if (write(CONTROL_FD, "", 1) != 1)
		_exit(0);
	for (;;)
		pause();
}

/* ---- the producer ---- */

static void note_wait(uint64_t start)
{
	uint64_t end = now_ns();

	if (end - start <= atomic_load(&side.board->longest_ns))
		return;
	atomic_store(&side.board->longest_ns, end - start);
	atomic_store(&side.board->longest_end_ns, end);
}

/* Makes frames until the board says stop. */
void job_pause(void)
{
	const struct job *job = &side.board->job;
	const unsigned pause_us = (unsigned)(1e6 / job->per_second);
	struct lane lanes[LANES];
	struct lane *l = &lanes[0];

	lanes_open(lanes, 1u << 0);
	for (uint64_t i = 1; !atomic_load(&side.board->stop); i++) {
		uint64_t start = now_ns();
		uintptr_t frame = l->ops->begin(l, i);

		note_wait(start);
		work_fill(frame, (unsigned)i);
		l->ops->publish(l, i);
		atomic_store(&side.board->done, i);
		usleep(pause_us);
	}
	lanes_close(lanes, 1u << 0);
}
