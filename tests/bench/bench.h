/* SPDX-License-Identifier: MIT
 *
 * The environment of every family of operations: a daemon as systemd runs it, with an fd store and
 * a journal; a connection; the floor; and the rows of the result.
 */
#pragma once

#include "client/gpushm.h"
#include "proto/words.h"
#include "tests/bench/floor.h"
#include "tests/bench/options.h"
#include "tests/bench/race.h"
#include "tests/bench/row.h"
#include "tests/lib/raw.h"
#include "tests/lib/supervisor.h"

#include <stdio.h>

struct bench {
	struct options o;
	struct rows rows;
	struct supervisor supervisor;
	struct gpushm *c; /* the product's library ... */
	struct raw raw;	  /* ... and its protocol alone */
	struct floor floor;
	bool gpu;			       /* vmm and mempool pools are there */
	struct trip stat, open, close, create; /* the sizes of their datagrams */
};

void bench_begin(struct bench *b);
void bench_end(struct bench *b);

/* Fails with gpushm_error() unless r is 0. */
void bench_ok(int r, const char *what);

/* Whether the options select this kind of pool, and the machine has it. */
bool bench_has(const struct bench *b, enum gpushm_kind kind);

/* Publishes a buffer of n arrays and closes it. */
void bench_publish(struct gpushm *c, const char *name, enum gpushm_kind kind, uint64_t bytes,
		   unsigned arrays);

/* One request of the raw connection, which must succeed. */
void bench_call(struct raw *r, const Gpushm__Proto__Request *q);

/* The families. */
void ask_run(struct bench *b);	  /* STAT */
void count_run(struct bench *b);  /* what the daemon counts of it */
void attach_run(struct bench *b); /* OPEN and CLOSE */
void create_run(struct bench *b);
void rate_run(struct bench *b);	  /* many clients at the same time */
void kernel_run(struct bench *b); /* work on shared memory */
void death_run(struct bench *b);  /* a client is killed */
void start_run(struct bench *b);  /* the daemon starts, and starts again */
void scale_run(struct bench *b);  /* many buffers, many clients, and their memory */

/* The process that death_run() kills. */
extern const struct role holder_role;

/* The forms of the result. */
void text_write(const struct bench *b, FILE *f);
void json_write(const struct bench *b, FILE *f);
