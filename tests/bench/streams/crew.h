/* SPDX-License-Identifier: MIT
 *
 * The parent's view of the processes of the comparison, and of the Python programs beside them.
 */
#pragma once

#include "tests/bench/sample.h"
#include "tests/bench/streams/board.h"

#include <sys/types.h>

struct crew {
	const char *socket; /* the daemon's */
	const char *memory; /* "gpu" or "host" */
	struct board *board;
	int board_fd;
	pid_t pids[SIDES];
	int control[SIDES], lanes[2 * LANES];
	unsigned serial;
	char error[512]; /* of the last job that failed */
};

/* Starts the processes. False, with the error set: they do not start. */
bool crew_start(struct crew *c, const char *socket, const char *memory);
void crew_stop(struct crew *c);

/* Lets them do a job and adds its samples. False: one failed; all are started anew. */
bool crew_run(struct crew *c, const struct job *job, struct sample *ret);

/* One reader that is killed while it holds a frame; the producer of `job` works on. In ms: from the
 * signal to the process's end, from there to the end of the producer's longest wait, and how long
 * that was. Adds nothing to after_end if the producer did not wait. */
bool crew_kill_reader(struct crew *c, const struct job *job, const char *follow,
		      struct sample *gone, struct sample *after_end, struct sample *longest);

/* ---- a Python program that replies to lines with numbers ---- */

struct helper {
	pid_t pid;
	int to, from;
	char error[256];
};
void helper_start(struct helper *h, const char *script, const char *socket, const char *memory);
/* Sends a line, and adds the numbers of the reply. False, with the error set: it failed. */
bool helper_ask(struct helper *h, const char *line, struct sample *ret);
void helper_stop(struct helper *h);
