/* SPDX-License-Identifier: MIT
 *
 * One classify process: what it was asked, and what it said.
 */
#ifndef GPUSHM_EXAMPLES_DEMO_WORKER_H
#define GPUSHM_EXAMPLES_DEMO_WORKER_H

#include <stdint.h>
#include <sys/types.h>

struct worker {
	pid_t pid;   /* 0: has ended */
	int in, out; /* our ends of its input and output */
	long first, count;

	uint64_t buffer; /* id of the model that it attached to */
	double start_us, attach_us;
	long right;
	char where[32];
};

/* Starts `program` for samples first to first + count - 1 with the daemon at `socket`. 0, -errno.
 */
int worker_start(const char *program, const char *socket, long first, long count,
		 struct worker **ret);

/* Waits until it has opened its first buffer, and so started CUDA where that is needed. 0;
 * -ETIMEDOUT, -EINTR; -EPROTO (it said something else, or died; what it had to say is on stderr).
 */
int worker_ready(struct worker *w, int64_t deadline);

/* Lets it attach to the model, and waits until it has. */
int worker_attach(struct worker *w, int64_t deadline);

/* Lets it compute. 0 or -errno. */
int worker_go(struct worker *w);

/* Waits for its result and its end. Errors as above; -EIO if it ended with another status than 0.
 */
int worker_done(struct worker *w, int64_t deadline);

/* Kills it if it still runs. NULL is allowed. Returns NULL. */
struct worker *worker_free(struct worker *w);

#endif
