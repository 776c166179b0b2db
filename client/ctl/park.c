/* SPDX-License-Identifier: MIT
 *
 * `park` and `unpark`: processes that take no memory of a GPU for a while.
 */
#include "client/ctl/ctl.h"
#include "client/gpushm_memory.h"
#include "proto/base/own.h"

#include <stdlib.h>

#define PARK_MS 10000u

typedef int park_function(struct gpushm *c, pid_t pid, uint64_t timeout_ms, uint32_t flags);

struct options {
	uint64_t timeout; /* ms */
	bool kill_stuck;
	park_function *call;
};

static int park_one(struct ctl *ctl, const struct options *o, pid_t pid)
{
	return ctl_result(
		o->call(ctl->connection, pid, o->timeout, o->kill_stuck ? GPUSHM_KILL_STUCK : 0));
}

/* One that has it open twice stays as it is the second time. */
static int park_word(struct ctl *ctl, const void *options, const char *word)
{
	_cleanup_(free_result) struct gpushm_stat *s = NULL;
	char *end;
	long pid = strtol(word, &end, 10);
	int first = CTL_OK, r;

	if (pid > 0 && !*end)
		return park_one(ctl, options, (pid_t)pid);
	r = gpushm_stat(ctl->connection, word, 0, GPUSHM_HOLDERS, &s);
	if (r < 0)
		return ctl_refused(r);
	for (size_t i = 0; i < s->n_holders; i++) {
		r = park_one(ctl, options, s->holders[i]->pid);
		first = first ? first : r;
	}
	return first;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	setenv("GPUSHMCTL", "/proc/self/exe", 0);
	return ctl_each(ctl, options, n, words, park_word);
}

#define PARK_OPTIONS(function)                                                                 \
	OPTIONS(options,                                                                       \
		ARG(options, timeout, "timeout", ARG_TIME, 't', "TIME",                        \
		    "for each process; 10s without it"),                                       \
		FLAG(options, kill_stuck, "kill-stuck", 0,                                     \
		     "kill a process with which the driver does not come back")),              \
		.defaults = &(const struct options){ .timeout = PARK_MS, .call = (function) }, \
		.words = { 1, SIZE_MAX }

const struct command command_park = {
	.name = "park",
	.synopsis = "[--timeout=TIME] [--kill-stuck] PID|NAME...",
	.about = "freeze idle processes, which take no memory of a GPU then",
	.more = "NAME: all processes that have this buffer open. Asks each to suspend all that\n"
		"it has open, and has the driver freeze it: gpushm-memory(7) says what that\n"
		"takes. What is refused leaves the process as it was.",
	PARK_OPTIONS(gpushm_park),
	.run = run,
};

const struct command command_unpark = {
	.name = "unpark",
	.synopsis = "[--timeout=TIME] [--kill-stuck] PID|NAME...",
	.about = "let processes run again that were parked",
	PARK_OPTIONS(gpushm_unpark),
	.run = run,
};
