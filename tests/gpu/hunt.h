/* SPDX-License-Identifier: MIT
 *
 * A test's own stream, of which it is the producer, and readers of it that are killed while a
 * kernel of theirs reads a frame. Failures end the Check test.
 */
#pragma once

#include "tests/gpu/fixture.h"
#include "tests/gpu/stream_roles.h"

#define READY_MAX 16 /* readers that are alive */
#define DYING_MAX 4  /* and killed, but not gone */
#define HUNT_SLOTS (DYING_MAX + 6)
#define KILLS_MAX 4096

/* The test process's own access to the GPU. */
extern struct driver gpu;
extern CUstream stream;
extern bool fake;

#define ok(call) ck_assert_msg((call) == 0, #call ": %s", gpushm_error())

struct gpushm_stream *make(const char *name, const char *pool, uint32_t slots);
void fill_and_publish(struct gpushm_frame *f, CUstream on);
void put(struct gpushm_stream *s, CUstream on);

/* ---- readers that are killed ---- */

enum victim_state { NONE, PREPARING, READY, TAKING, HOLDING, DYING };

struct victim {
	enum victim_state state;
	struct role_process process;
	int pidfd;
	bool release; /* its release is queued behind its kernel */
	struct witness *witness;
	unsigned at;  /* frames that were published when the state began */
	double since; /* us: of the state */
	bool noticed; /* fake: the daemon has noticed the closed socket, since then */
};

struct hunt {
	const char *follow;
	struct gpushm_stream *s;
	struct witness *witnesses; /* a page of them, by victim */
	int page;		   /* its fd */
	bool releases;		   /* every other victim queues its release */
	unsigned wanted, started, kills, gone, overwritten, published;
	struct victim victims[READY_MAX];
	unsigned n_victims, dying_max;
	double gone_ms[KILLS_MAX]; /* from the kill until the process was gone */
};

/* The victims' page. */
void hunt_open_page(struct hunt *h);
void hunt_close_page(struct hunt *h);

void victim_start(struct hunt *h, struct victim *v, const char *name);
/* Reads the line that it prints next. */
void victim_expect(struct victim *v, const char *line);
/* Returns true when its process is gone. */
bool victim_is_gone(const struct victim *v);
void victim_end(struct victim *v);

/* Makes a stream of that name; publishes frames and kills `wanted` readers, or as many as it can
 * within that time; ends all. */
void hunt_begin(struct hunt *h, const char *name, unsigned wanted);
void hunt(struct hunt *h, const char *name, double seconds);
void hunt_end(struct hunt *h);

/* Prints a line of figures; checked: what another reader found. */
void hunt_report(struct hunt *h, const char *rule, const char *checked);

/* Sorts numbers of type double: for qsort(). */
int by_size(const void *a, const void *b);
