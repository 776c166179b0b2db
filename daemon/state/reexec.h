/* SPDX-License-Identifier: MIT
 *
 * A planned restart: the program that now lies where the daemon was started from replaces the
 * daemon in this process, after a check that it can.
 */
#pragma once

#include "proto/base/list.h"
#include "proto/code.h"

#include <stdbool.h>
#include <uv.h>

/* A request for a restart; a member of the object that asks. */
struct restarter {
	struct list link; /* reexec::asked; after list_drop() on_refused() is not called */
	void (*on_refused)(struct restarter *r, const struct fault *f);
};

struct reexec {
	uv_loop_t *loop;
	char *program;	    /* owned; NULL: not known */
	char *const *argv;  /* borrowed */
	struct list asked;  /* struct restarter::link */
	uv_process_t check; /* the new program with --check-restart */
	uv_timer_t limit;
	bool checking, ended;
	uint32_t version;   /* of the journal, which the check was told */
	struct fault fault; /* why there is no restart; code 0 so far */
	const struct reexec_calls *calls;
	void *arg;
};

struct reexec_calls {
	/* Execs the program, and returns only if that fails, with *f filled in. */
	int (*go)(struct fault *f, void *arg);
	/* As handover_version(). */
	uint32_t (*version)(void *arg, char *ret_why, size_t size);
};

/* argv is main()'s; calls are borrowed. */
void reexec_init(struct reexec *r, uv_loop_t *loop, char *const *argv,
		 const struct reexec_calls *calls, void *arg);
void reexec_done(struct reexec *r); /* the loop must run once more */

/* Begins a restart; who may be NULL. -EINPROGRESS: either the process becomes another program, or
 * on_refused() is called later. Else it is refused now. Each refusal is a line in the log. */
int reexec_ask(struct reexec *r, struct restarter *who, struct fault *f);

/* Blocks the signals that the daemon handles: they wait in the kernel, also across an exec. Each of
 * them would kill a program that has not installed its handlers yet. */
void reexec_hold_signals(bool hold);
