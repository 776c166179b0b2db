/* SPDX-License-Identifier: MIT
 *
 * How a thread of the model runs. Each phase of a thread is a function that is run from its start
 * for each of its steps: the results of the steps before come from a log, one step is done, and at
 * the next one the function is left. What a phase changes beside the words is kept when the phase
 * ends. So a thread is what it knows at the start of its phase, and the log.
 */
#pragma once

#include "tests/model/streams/steps.h"
#include "tests/model/streams/world.h"

/* Runs a thread for one step, and up to the next one. */
void machine_run(enum thread_id id, void (*phase)(void));
/* Runs up to the first step. */
void machine_start(enum thread_id id, void (*phase)(void));
/* Whether it may be run. */
bool machine_is_enabled(enum thread_id id);

/* In a phase: a step that is not one on a word of the pages. */
void machine_point(void);
/* Waits until the thread is enabled. */
void machine_wait(enum block why);
/* It has nothing to do. */
void machine_stop(enum block why);
/* The phase is over. */
void machine_next(uint32_t phase);
/* Operations are no steps until `off` is false again. */
void machine_at_once(bool on);

/* A futex is woken. */
void machine_wake(const _Atomic uint32_t *word);
/* In a phase. A thread that may die is woken by it in a step of its own. */
void machine_call_wake(const _Atomic uint32_t *word);

enum thread_id machine_thread(void);

/* Of a futex's number nothing counts but whether a thread that has read it would sleep: so it is 0,
 * and what threads have read is 0 or STALE. */
#define STALE UINT32_MAX
void machine_settle(void);

/* The last step, for people. */
struct machine_note {
	const char *text; /* NULL: a step */
	enum step_kind kind;
	enum word word;
	uint32_t index;
	uint64_t value, result;
};
struct machine_note machine_note(void);
void machine_say(const char *text);

/* What is wrong; the first time counts. NULL: nothing. */
extern const char *violation;
void violate(const char *what);
