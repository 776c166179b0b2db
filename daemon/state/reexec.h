/* SPDX-License-Identifier: MIT
 *
 * A planned restart: the program that the daemon was started from, or what lies in that place by
 * now, takes over in this process. First it is asked whether it can.
 */
#ifndef GPUSHM_DAEMON_STATE_REEXEC_H
#define GPUSHM_DAEMON_STATE_REEXEC_H

#include "proto/base/list.h"
#include "proto/fault.h"

#include <stdbool.h>
#include <uv.h>

/* Somebody who is told if there is no restart; a member of whoever that is. */
struct restarter {
	struct list link; /* restart::asked; list_drop() calls it off */
	void (*on_refused)(struct restarter *r, const struct fault *f);
};

struct reexec {
	uv_loop_t *loop;
	char *program;	    /* owned; NULL: not known */
	char *const *argv;  /* borrowed */
	struct list asked;  /* struct restarter::link */
	uv_process_t check; /* the new program, while it is asked */
	uv_timer_t limit;
	bool checking, ended;
	struct fault fault; /* why not; code 0 so far */
	int (*go)(struct fault *f, void *arg);
	void *arg;
};

/* go: execs the program; it returns only where that fails, with *f filled in. argv is main()'s. */
void reexec_init(struct reexec *r, uv_loop_t *loop, char *const *argv,
		 int (*go)(struct fault *f, void *arg), void *arg);
void reexec_done(struct reexec *r); /* the loop must run once more */

/* Begins one; who may be NULL. -EINPROGRESS: the process is another program soon, or who is told
 * why not, later. Else refused. Each refusal is a line in the log. */
int reexec_ask(struct reexec *r, struct restarter *who, struct fault *f);

/* While they are held the signals that the daemon knows wait in the kernel, which keeps them across
 * an exec; to a program without its handlers each of them would be the end. */
void reexec_hold_signals(bool hold);

#endif
