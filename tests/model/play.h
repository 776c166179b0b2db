/* SPDX-License-Identifier: MIT
 *
 * A daemon and its model, played side by side: each operation goes to both, and the daemon's reply
 * must be the model's. An operation is four numbers. Their meaning depends on the present state; if
 * they have none, nothing is done. So any part of a sequence is a sequence, and a failing one can
 * be made shorter by leaving operations out.
 *
 * Failures end the process by play_fail().
 */
#pragma once

#include "tests/lib/actor.h"
#include "tests/lib/raw.h"
#include "tests/lib/supervisor.h"
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
	struct supervisor supervisor;
	struct model model;
	struct raw eye; /* our own connection, which compares everything */
	struct model_process *self;
	struct model_session *eye_session;
	struct actor actors[ACTORS];
	struct model_process *processes[ACTORS]; /* NULL: none yet */
	struct connection connections[CONNECTIONS];
	uint64_t last_buffer, last_lease; /* the highest ids before this step */
	uint64_t max_buffer, max_lease;
	uint64_t copied; /* the contents of the next buffer; 0: others than all before */
	uint32_t fds;	 /* what an empty daemon needs at most */
	uint32_t theme;	 /* of the sequence: the pool that is used most, and what it is about */
	bool alone;	 /* not root: all are one user, and an administrator */
	bool tells;	 /* each operation is printed */
	int deadline_ms; /* how long the daemon may take to notice something */
};

struct counts {
	unsigned sequences, steps, restarts, deaths;
	unsigned suspends, twins, restores, evictions, asked, crowds;
	unsigned codes[CODE_COUNT];
};

/* What a failing process reports to its parent, in shared memory. */
struct outcome {
	struct counts counts;
	unsigned sequence, step; /* the current ones */
	uint64_t began_ns;	 /* the sequence: CLOCK_MONOTONIC */
	bool disturbed;		 /* it took so long that the daemon's timers have run */
	char text[2048], folder[64];
};
extern struct outcome *outcome;

void play_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

void play_begin(struct play *p);
/* Counts the fds of an empty daemon that has used each pool once. */
void play_measure(struct play *p);
/* Fails if the empty daemon has more fds than that. */
void play_check_fds(struct play *p);
void play_end(struct play *p);

bool play_is_about_memory(const struct play *p); /* this sequence */

/* Plays one operation in both. */
void play_step(struct play *p, const struct op *op);

/* Removes what a sequence has left; then both must be empty. */
void play_tidy(struct play *p);

/* ---- shared by the files of play ---- */

/* Receives and checks, on all connections, the replies that are due in the model. */
void play_collect(struct play *p);
/* Waits until the daemon has noticed what it must find out by itself; then all its counts must be
 * the model's. */
void play_await(struct play *p);
/* Compares all buffers with their holders, all pools, and all stored fds. */
void play_compare_all(struct play *p);
/* later: the reply was sent before the other replies of this step; who held the buffer then is
 * unknown. */
void play_check_buffer(struct play *p, const Gpushm__Proto__Buffer *told, struct model_buffer *b,
		       const struct model_process *viewer, bool later);
void play_check_attach(struct play *p, struct raw *raw, struct model_session *s);
/* Learns the pools from the daemon that has just started. */
void play_learn_pools(struct play *p);
void play_greet(struct play *p);
/* Its name in a message. */
const char *play_name_of(const struct model_buffer *b);
void play_same(uint64_t told, uint64_t expected, const char *what, const char *whose);
void play_release(struct connection *conn);
void play_flush_vague(struct play *p);
void play_tell(const struct play *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A connected client that waits for nothing, or NULL. */
struct connection *play_pick_connection(struct play *p, uint32_t who);
unsigned play_number(const struct play *p, const struct connection *conn);
void play_send(struct connection *conn, const Gpushm__Proto__Request *q);
/* Mostly the name of a buffer. */
void play_pick_name(struct play *p, uint32_t n, char ret[MODEL_NAME_MAX]);
/* A lease that a client can name now, mostly of an unpublished buffer if `filling`, and its client:
 * *ret. Sometimes another client, which has no right to it. */
struct model_lease *play_pick_lease(struct play *p, const struct op *op, bool filling,
				    struct connection **ret);
uint64_t play_lease_id(const struct model_lease *l); /* NULL: of one that never existed */
uint64_t play_id_for(struct play *p, const struct model_session *s, const char *name, uint32_t how,
		     bool *ret_other);

/* Ends the daemon by this signal and starts the next; dies: an actor that dies in between. */
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
void play_suspend(struct play *p, const struct op *op);
void play_copy(struct play *p, const struct op *op);
void play_hand_over(struct play *p, const struct op *op);
void play_open_twin(struct play *p, const struct op *op);
void play_crowd(struct play *p, const struct op *op);
void play_evict(struct play *p, const struct op *op);
void play_keep(struct play *p, const struct op *op);
void play_stat(struct play *p, const struct op *op);
void play_close(struct play *p, const struct op *op);
void play_unlink(struct play *p, const struct op *op);
void play_rename(struct play *p, const struct op *op);
void play_clean(struct play *p, const struct op *op);
void play_flush(struct play *p, const struct op *op);
void play_list(struct play *p, const struct op *op);
void play_compare(struct play *p, const struct op *op);
void play_reclaim(struct play *p, const struct op *op);

uint64_t play_now_ns(void); /* CLOCK_MONOTONIC */

/* Sends a request on our own connection; returns the code of the reply. */
int play_look(struct play *p, const Gpushm__Proto__Request *q);
