/* SPDX-License-Identifier: MIT
 *
 * The commands for memory that comes and goes: `demote` makes a twin and gives the memory back,
 * `evict` only that, `promote` makes it again, `keep` says how long it stays, `suspend` asks all
 * processes to let go and `resume` takes that back, and `wanted` shows who is asked.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/model/model.h"
#include "client/ctl/output.h"
#include "client/ctl/pattern.h"
#include "client/gpushm_memory.h"
#include "proto/base/args.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static int evict(struct ctl *ctl, const void *options, const char *name)
{
	return ctl_result(gpushm_evict(ctl->connection, name));
}

const struct command command_evict = {
	.name = "evict",
	.synopsis = "NAME...",
	.about = "give the memory of buffers back that are not used",
	.more = "For buffers that have a twin, or were loaded from a file or URL that is still\n"
		"there. The name stays. The next process of the owner that opens or resumes the\n"
		"buffer makes its memory again: of the twin's bytes, or by loading them again.",
	.words = { 1, SIZE_MAX },
	.loads = true,
	.each = evict,
};

struct demote_options {
	const char *pool;
};

/* A buffer that somebody uses has a twin then, and keeps its memory until it is needed. */
static int demote(struct ctl *ctl, const void *options, const char *name)
{
	const struct demote_options *o = options;
	int r = gpushm_make_twin(ctl->connection, name, o->pool);

	if (r < 0 && r != -EEXIST)
		return ctl_result(r);
	r = gpushm_evict(ctl->connection, name);
	return ctl_result(r == -EBUSY ? 0 : r);
}

static int run_demote(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct demote_options *o = options;

	if (!o->pool)
		return ctl_error(CTL_USAGE, "demote: --pool names a host or pinned pool, which "
					    "the bytes move to");
	return ctl_each(ctl, options, n, words, demote);
}

const struct command command_demote = {
	.name = "demote",
	.synopsis = "--pool=POOL NAME...",
	.about = "move the bytes of buffers to a pool of the host's memory",
	.more = "Makes a twin of each buffer in POOL, unless it has one, and then does as evict.\n"
		"A buffer that a process uses stays where it is, and from now on its memory can\n"
		"be evicted.",
	OPTIONS(demote_options,
		ARG(demote_options, pool, "pool", ARG_TEXT, 0, "POOL", "a host or pinned pool")),
	.words = { 1, SIZE_MAX },
	.loads = true,
	.run = run_demote,
};

static int promote(struct ctl *ctl, const void *options, const char *name)
{
	struct gpushm_buffer *b = NULL;
	int r = gpushm_open(ctl->connection, name, GPUSHM_READ, GPUSHM_WAIT_FOREVER, NULL, &b);

	return ctl_result(r < 0 ? r : gpushm_close(b));
}

const struct command command_promote = {
	.name = "promote",
	.synopsis = "NAME...",
	.about = "make the memory of evicted buffers again",
	.words = { 1, SIZE_MAX },
	.loads = true,
	.each = promote,
};

struct keep_options {
	const char *priority;
};

int ctl_keep_time(const char *command, const char *text, uint64_t *ret_ms)
{
	if (strcmp(text, "forever") == 0)
		*ret_ms = GPUSHM_WAIT_FOREVER;
	else if (args_parse_time(text, ret_ms) < 0)
		return ctl_error(CTL_USAGE, "%s: \"%s\" is not a time; write 0, 300, 5m or forever",
				 command, text);
	return CTL_OK;
}

static int run_keep(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct keep_options *o = options;
	uint64_t ms;
	int priority = 0, end = 0, r = ctl_keep_time("keep", words[1], &ms);

	if (r)
		return r;
	if (o->priority && (sscanf(o->priority, "%d%n", &priority, &end) != 1 || o->priority[end]))
		return ctl_error(CTL_USAGE, "keep: \"%s\" is not a whole number", o->priority);
	return ctl_result(gpushm_set_keep(ctl->connection, words[0], ms, priority));
}

const struct command command_keep = {
	.name = "keep",
	.synopsis = "[--priority=N] NAME TIME|forever",
	.about = "say how long the memory of a buffer stays after its last use",
	.more = "For buffers that have a twin, or were loaded from a file or URL that is still\n"
		"there: the memory of others always stays. 0: it goes when its owner needs\n"
		"memory in that pool. Those of a lower priority are asked for first.",
	OPTIONS(keep_options, ARG(keep_options, priority, "priority", ARG_TEXT, 0, "N",
				  "a whole number; 0 without it")),
	.words = { 2, 2 },
	.loads = true,
	.run = run_keep,
};

static void tell_wanted(const struct gpushm_stat *s)
{
	for (size_t i = 0; i < s->n_holders; i++)
		if (!s->holders[i]->away)
			output_line(stdout, "%s: process %d (%s) of %s has not suspended it",
				    s->name, s->holders[i]->pid, s->holders[i]->command,
				    output_user(s->holders[i]->uid));
}

static int run_wanted(struct ctl *ctl, const void *options, size_t n, char **words)
{
	_cleanup_(free_result) struct gpushm_stat **stats = NULL;
	struct json j;
	bool json = ctl_json(ctl, &j);
	size_t found;
	int r = pattern_list(ctl->connection, n ? words[0] : "*", GPUSHM_HOLDERS, &stats, &found);

	if (r < 0)
		return ctl_refused(r);
	if (json)
		json_open(&j, NULL, '[');
	for (size_t i = 0; i < found; i++) {
		if (!stats[i]->wanted || (n > 0 && !pattern_matches(words[0], stats[i]->name)))
			continue;
		if (json)
			stat_json(&j, NULL, stats[i], true);
		else
			tell_wanted(stats[i]);
	}
	if (json)
		json_close(&j, ']');
	return CTL_OK;
}

const struct command command_wanted = {
	.name = "wanted",
	.synopsis = "[PATTERN]",
	.about = "show who was asked to let go of memory that is needed, and has not",
	.words = { 0, 1 },
	.run = run_wanted,
};

/* ---- what cooperating processes hold ---- */

#define YIELD_TIMEOUT (UINT64_MAX - 1) /* without --timeout */
#define LOOK_MS 20

struct suspend_options {
	uint64_t timeout; /* ms */
};

static int ask_suspend(struct ctl *ctl, const void *options, const char *name)
{
	uint64_t *const *yield_ms = options;

	return ctl_result(gpushm_ask_suspend(ctl->connection, name, *yield_ms));
}

/* Returns how many have it mapped still, or an error. */
static int look(struct ctl *ctl, const char *name, bool tell)
{
	_cleanup_(free_result) struct gpushm_stat *s = NULL;
	int mapped = 0, r = gpushm_stat(ctl->connection, name, 0, GPUSHM_HOLDERS, &s);

	if (r < 0)
		return r;
	for (size_t i = 0; i < s->n_holders; i++) {
		const struct gpushm_holder *h = s->holders[i];

		mapped += !h->away;
		if (tell && !h->away)
			ctl_error(CTL_TIMED_OUT, "%s: process %d (%s) of %s has not suspended it",
				  name, h->pid, h->command, output_user(h->uid));
	}
	return mapped;
}

static int await_away(struct ctl *ctl, const void *options, const char *name)
{
	const uint64_t *deadline = options;
	int r;

	while ((r = look(ctl, name, clock_left_ms(*deadline) == 0)) > 0) {
		if (clock_left_ms(*deadline) == 0)
			return CTL_TIMED_OUT;
		poll(NULL, 0, LOOK_MS);
	}
	return ctl_result(r);
}

static int run_suspend(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct suspend_options *o = options;
	uint64_t yield_ms = 0, deadline, *asked = &yield_ms;
	int r = ctl_each(ctl, &asked, n, words, ask_suspend);

	if (r)
		return r;
	deadline = clock_deadline(o->timeout == YIELD_TIMEOUT ? yield_ms : o->timeout);
	return ctl_each(ctl, &deadline, n, words, await_away);
}

const struct command command_suspend = {
	.name = "suspend",
	.synopsis = "[--timeout=TIME] NAME...",
	.about = "ask all processes to suspend buffers",
	.more = "Waits until they have, and names those that have not; it forces none. The\n"
		"buffers keep their memory. They stay asked until `resume`, or until the daemon\n"
		"is started again.",
	OPTIONS(suspend_options,
		ARG(suspend_options, timeout, "timeout", ARG_TIME, 't', "TIME",
		    "wait up to this time; without it, yield-timeout of gpushmd.conf")),
	.defaults = &(const struct suspend_options){ .timeout = YIELD_TIMEOUT },
	.words = { 1, SIZE_MAX },
	.run = run_suspend,
};

static int ask_resume(struct ctl *ctl, const void *options, const char *name)
{
	return ctl_result(gpushm_ask_resume(ctl->connection, name));
}

const struct command command_resume = {
	.name = "resume",
	.synopsis = "NAME...",
	.about = "ask nobody any more to suspend these buffers",
	.words = { 1, SIZE_MAX },
	.each = ask_resume,
};
