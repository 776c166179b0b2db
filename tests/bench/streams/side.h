/* SPDX-License-Identifier: MIT
 *
 * One process of the comparison: a producer, a reader or a stage between them. It has its
 * connection and its context from the start, and does one job after the other.
 */
#pragma once

#include "client/gpushm.h"
#include "tests/bench/streams/board.h"

struct side {
	unsigned index;
	struct gpushm *c;
	struct board *board;
	char *scratch; /* of the host: work_read()'s copy */
	bool has_gpu;
};
extern struct side side;

/* For main(): "--side INDEX SOCKET gpu|host" and "--victim SOCKET gpu|host FOLLOW". Never returns
 * if it is one of them. */
void side_dispatch(int argc, char **argv);

/* Writes the reason to the board, and ends the process. */
_Noreturn void side_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the process with gpushm_error() if r is negative. */
void side_must(int r, const char *what);

/* ---- work on frames, on the GPU of a job with one, else by the CPU ---- */

void work_fill(uintptr_t frame, unsigned value);
void work_read(uintptr_t frame);
void work_copy(uintptr_t to, uintptr_t from);
/* Waits until the GPU has done all of it. */
void work_wait(void);
/* The stream to pass to gpushm. */
void *work_stream(void);

/* ---- the jobs ---- */

void job_hop(void);
void job_wake(void);
void job_frame(void);
void job_flow(void);
void job_cost(void);
void job_cost_waits(void);
void job_pause(void);
