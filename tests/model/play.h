/* SPDX-License-Identifier: MIT
 *
 * A daemon and its model, played side by side: each operation goes to both, and what the daemon
 * answers must be what the model says. An operation is four numbers; what they mean depends on what
 * there is just then, and where they mean nothing, nothing is done. So any part of a sequence is a
 * sequence, and a failing one can be made shorter by leaving operations out.
 *
 * Failures end the process, by play_fail().
 */
#ifndef GPUSHM_TESTS_MODEL_PLAY_H
#define GPUSHM_TESTS_MODEL_PLAY_H

#include "tests/lib/actor.h"
#include "tests/lib/keeper.h"
#include "tests/lib/raw.h"
#include "tests/model/model.h"

#define ACTORS 5
#define CONNECTIONS (2 * ACTORS) /* two connections for each actor */

struct op {
	uint32_t what, who, which, how;
};

struct connection {
	struct raw raw;
	struct model_session *session; /* NULL: not connected */
};

struct play {
	struct keeper keeper;
	struct model model;
	struct raw eye; /* a connection of our own, which looks at everything */
	struct model_process *self;
	struct model_session *eye_session;
	struct actor actors[ACTORS];
	struct model_process *processes[ACTORS]; /* NULL: there is none yet */
	struct connection connections[CONNECTIONS];
	uint64_t last_buffer, last_lease; /* ids that were told before this step */
	uint64_t max_buffer, max_lease;
	uint32_t fds;	 /* enough for a daemon that has nothing */
	uint32_t theme;	 /* of the sequence: which pool is used most */
	bool alone;	 /* not root: everybody is one user, and an administrator */
	bool tells;	 /* each operation is printed */
	int deadline_ms; /* how long the daemon has to notice something; for failing only */
};

struct counts {
	unsigned sequences, steps, restarts, deaths;
	unsigned codes[CODE_COUNT];
};

/* What a failing process leaves to its parent, in memory that they share. */
struct outcome {
	struct counts counts;
	unsigned sequence, step; /* under way */
	uint64_t began_ns;	 /* the sequence: CLOCK_MONOTONIC */
	bool disturbed;		 /* it took so long that the daemon's clock has had its say */
	char text[2048], folder[64];
};
extern struct outcome *outcome;

void play_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

void play_begin(struct play *p);
/* Counts the fds of a daemon that has nothing, and has used each pool once. */
void play_measure(struct play *p);
/* It has no more than that. */
void play_check_fds(struct play *p);
void play_end(struct play *p);

/* One operation, in both. */
void play_step(struct play *p, const struct op *op);

/* Removes what a sequence has left; then nothing must be left, in either. */
void play_tidy(struct play *p);

/* ---- between its files ---- */

/* Receives what the model says is due, on all connections, and checks it. */
void play_collect(struct play *p);
/* Waits until the daemon has noticed what only it can notice; then everything it counts must be
 * what the model counts. */
void play_await(struct play *p);
/* All buffers, with their holders, all pools, and what is kept for the next daemon. */
void play_compare_all(struct play *p);
/* later: it was told before the others' answers of this step, and who had it then is not known. */
void play_check_buffer(struct play *p, const Gpushm__Proto__Buffer *told, struct model_buffer *b,
		       const struct model_process *viewer, bool later);
void play_check_attach(struct play *p, struct raw *raw, struct model_session *s);
/* Pools as the daemon that has just begun tells them. */
void play_learn_pools(struct play *p);
void play_greet(struct play *p);
/* What it is called in a complaint. */
const char *play_name_of(const struct model_buffer *b);
void play_same(uint64_t told, uint64_t expected, const char *what, const char *whose);
void play_release(struct connection *conn);
void play_flush_vague(struct play *p);
void play_tell(const struct play *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One that is connected and waits for nothing, or NULL. */
struct connection *play_pick_connection(struct play *p, uint32_t who);
unsigned play_number(const struct play *p, const struct connection *conn);
void play_send(struct connection *conn, const Gpushm__Proto__Request *q);

/* The daemon ends by that signal and comes again; dies: an actor that dies in between. */
void play_crash(struct play *p, int signal, unsigned *dies);

/* The operations. */
void play_connect(struct play *p, const struct op *op);
void play_disconnect(struct play *p, const struct op *op);
void play_die(struct play *p, const struct op *op);
void play_restart(struct play *p, const struct op *op);
void play_create(struct play *p, const struct op *op);
void play_describe(struct play *p, const struct op *op);
void play_publish(struct play *p, const struct op *op);
void play_open(struct play *p, const struct op *op);
void play_stat(struct play *p, const struct op *op);
void play_close(struct play *p, const struct op *op);
void play_unlink(struct play *p, const struct op *op);
void play_clean(struct play *p, const struct op *op);
void play_flush(struct play *p, const struct op *op);
void play_list(struct play *p, const struct op *op);
void play_compare(struct play *p, const struct op *op);
void play_reclaim(struct play *p, const struct op *op);

uint64_t play_now_ns(void); /* CLOCK_MONOTONIC */

/* What answers of the eye are due to it. */
int play_look(struct play *p, const Gpushm__Proto__Request *q);

#endif
