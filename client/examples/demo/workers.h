/* SPDX-License-Identifier: MIT
 *
 * Eight classify processes that do a part each. Functions return 0, or -errno with the reason on
 * stderr.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#define WORKERS 8

struct worker {
	pid_t pid;   /* 0: it has ended */
	int in, out; /* our ends of its input and output; owned */
	long first, count;

	uint64_t buffer; /* id of the model that it attached to */
	double start_us, attach_us;
	long right;
	char where[32];
};

/* Starts the processes for the samples first to first + count - 1, with the daemon at `socket`.
 * After an error, too, workers_clear() must follow. */
int workers_start(struct worker *w, const char *program, const char *socket, long first,
		  long count);

/* Lets each worker attach to the model, one after the other, when CUDA has started in all. */
int workers_attach(struct worker *w);

/* Lets all workers compute, and waits until all have ended. */
int workers_compute(struct worker *w);

/* Prints what the workers reported as a table; returns how many samples they had right. */
long workers_print(const struct worker *w);

/* Kills the workers that still run. */
void workers_clear(struct worker *w);
