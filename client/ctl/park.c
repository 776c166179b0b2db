/* SPDX-License-Identifier: MIT
 *
 * `park` and `unpark`: processes that take no memory of a GPU for a while.
 */
#include "client/ctl/ctl.h"
#include "client/gpushm_memory.h"
#include "proto/base/own.h"

#include <errno.h>
#include <stdlib.h>

#define PARK_MS 10000u

typedef int park_function(struct gpushm *c, pid_t pid, uint64_t timeout_ms, uint32_t flags);

struct park_options {
	uint64_t timeout; /* ms */
	bool kill_stuck;
};

struct parking {
	const struct park_options *options;
	park_function *call;
};

static int park_one(struct ctl *ctl, const struct parking *p, pid_t pid)
{
	return ctl_result(p->call(ctl->connection, pid, p->options->timeout,
				  p->options->kill_stuck ? GPUSHM_KILL_STUCK : 0));
}

/* A process that has it open twice is parked once. */
static int park_holders(struct ctl *ctl, const struct parking *p, const char *name)
{
	_cleanup_(free_result) struct gpushm_stat *s = NULL;
	int first = CTL_OK, r = gpushm_stat(ctl->connection, name, 0, GPUSHM_HOLDERS, &s);

	if (r < 0)
		return ctl_refused(r);
	for (size_t i = 0; i < s->n_holders; i++) {
		bool again = false;

		for (size_t k = 0; k < i; k++)
			again |= s->holders[k]->pid == s->holders[i]->pid;
		r = again ? CTL_OK : park_one(ctl, p, s->holders[i]->pid);
		first = first ? first : r;
	}
	return first;
}

static int park_word(struct ctl *ctl, const void *options, const char *word)
{
	char *end;
	long pid = strtol(word, &end, 10);

	return pid > 0 && !*end ? park_one(ctl, options, (pid_t)pid)
				: park_holders(ctl, options, word);
}

static int run(struct ctl *ctl, const struct park_options *o, size_t n, char **words,
	       park_function *call)
{
	const struct parking p = { o, call };

	setenv("GPUSHMCTL", "/proc/self/exe", 0);
	return ctl_each(ctl, &p, n, words, park_word);
}

static int run_park(struct ctl *ctl, const void *options, size_t n, char **words)
{
	return run(ctl, options, n, words, gpushm_park);
}

static int run_unpark(struct ctl *ctl, const void *options, size_t n, char **words)
{
	return run(ctl, options, n, words, gpushm_unpark);
}

#define PARK_OPTIONS                                                                         \
	.args = ARGS({ "timeout", ARG_TIME, 't', "TIME", "for each process; 10s without it", \
		       offsetof(struct park_options, timeout) },                             \
		     { "kill-stuck", ARG_FLAG, 0, NULL,                                      \
		       "kill a process with which the driver does not come back",            \
		       offsetof(struct park_options, kill_stuck) }),                         \
	.options_size = sizeof(struct park_options),                                         \
	.defaults = &(const struct park_options){ .timeout = PARK_MS }, .min_words = 1,      \
	.max_words = SIZE_MAX

const struct command command_park = {
	.name = "park",
	.synopsis = "[-t TIME] [--kill-stuck] PID|NAME...",
	.about = "freeze idle processes, which take no memory of a GPU then",
	.more = "NAME: all processes that have this buffer open. Asks each to suspend all that it "
		"has\n"
		"open, and has the driver freeze it: gpushm-memory(7) says what that takes. What "
		"is\n"
		"refused leaves the process as it was.",
	PARK_OPTIONS,
	.run = run_park,
};

const struct command command_unpark = {
	.name = "unpark",
	.synopsis = "[-t TIME] [--kill-stuck] PID|NAME...",
	.about = "let processes run again that were parked",
	PARK_OPTIONS,
	.run = run_unpark,
};
