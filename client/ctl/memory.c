/* SPDX-License-Identifier: MIT
 *
 * The commands for memory that comes and goes: `demote` makes a twin and gives the memory back,
 * `evict` only that, `promote` makes it again, `keep` says how long it stays, and `wanted` shows
 * who is asked to let go.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/output.h"
#include "client/ctl/pattern.h"
#include "client/gpushm_memory.h"
#include "proto/base/args.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Does it to each of the names. Returns the first error. */
static int for_each(struct ctl *ctl, size_t n, char **names,
		    int (*act)(struct ctl *ctl, const char *name, const void *options),
		    const void *options)
{
	int first = CTL_OK;

	for (size_t i = 0; i < n; i++) {
		int r = ctl_result(act(ctl, names[i], options));

		if (!first)
			first = r;
	}
	return first;
}

static int evict(struct ctl *ctl, const char *name, const void *options)
{
	return gpushm_evict(ctl->connection, name);
}

static int run_evict(struct ctl *ctl, const void *options, size_t n, char **words)
{
	return for_each(ctl, n, words, evict, options);
}

const struct command command_evict = {
	.name = "evict",
	.synopsis = "NAME...",
	.about = "give the memory of buffers back that have a twin and are not used",
	.more = "The name stays. The next process of the owner that opens or resumes the buffer\n"
		"makes its memory again, of the twin's bytes.",
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run_evict,
};

struct demote_options {
	const char *pool;
};

/* A buffer that somebody uses has a twin then, and keeps its memory until it is needed. */
static int demote(struct ctl *ctl, const char *name, const void *options)
{
	const struct demote_options *o = options;
	int r = gpushm_make_twin(ctl->connection, name, o->pool);

	if (r < 0 && r != -EEXIST)
		return r;
	r = gpushm_evict(ctl->connection, name);
	return r == -EBUSY ? 0 : r;
}

static int run_demote(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct demote_options *o = options;

	if (!o->pool)
		return ctl_error(CTL_USAGE, "demote: --pool names a host or pinned pool, which "
					    "the bytes move to");
	return for_each(ctl, n, words, demote, options);
}

const struct command command_demote = {
	.name = "demote",
	.synopsis = "--pool POOL NAME...",
	.about = "move the bytes of buffers to a pool of the host's memory",
	.more = "Makes a twin of each buffer in POOL, unless it has one, and then does as evict. "
		"A\n"
		"buffer that a process uses stays where it is, and from now on its memory can be\n"
		"evicted.",
	.args = ARGS({ "pool", ARG_TEXT, 0, "POOL", "a host or pinned pool",
		       offsetof(struct demote_options, pool) }),
	.options_size = sizeof(struct demote_options),
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run_demote,
};

static int promote(struct ctl *ctl, const char *name, const void *options)
{
	struct gpushm_buffer *b = NULL;
	int r = gpushm_open(ctl->connection, name, GPUSHM_READ, GPUSHM_WAIT_FOREVER, NULL, &b);

	return r < 0 ? r : gpushm_close(b);
}

static int run_promote(struct ctl *ctl, const void *options, size_t n, char **words)
{
	return for_each(ctl, n, words, promote, options);
}

const struct command command_promote = {
	.name = "promote",
	.synopsis = "NAME...",
	.about = "make the memory of evicted buffers again",
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run_promote,
};

struct keep_options {
	const char *priority;
};

static int run_keep(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct keep_options *o = options;
	uint64_t ms;
	int priority = 0, end = 0;

	if (strcmp(words[1], "forever") == 0)
		ms = GPUSHM_WAIT_FOREVER;
	else if (args_parse_time(words[1], &ms) < 0)
		return ctl_error(CTL_USAGE,
				 "keep: \"%s\" is not a time; write 0, 300, 5m or forever",
				 words[1]);
	if (o->priority && (sscanf(o->priority, "%d%n", &priority, &end) != 1 || o->priority[end]))
		return ctl_error(CTL_USAGE, "keep: \"%s\" is not a whole number", o->priority);
	return ctl_result(gpushm_set_keep(ctl->connection, words[0], ms, priority));
}

const struct command command_keep = {
	.name = "keep",
	.synopsis = "[--priority N] NAME TIME|forever",
	.about = "say how long the memory of a buffer stays after its last use",
	.more = "For buffers that have a twin: the memory of others always stays. 0: it goes when\n"
		"its owner needs memory in that pool. Those of a lower priority are asked for\n"
		"first.",
	.args = ARGS({ "priority", ARG_TEXT, 0, "N", "a whole number; 0 without it",
		       offsetof(struct keep_options, priority) }),
	.options_size = sizeof(struct keep_options),
	.min_words = 2,
	.max_words = 2,
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
	struct gpushm_stat **stats = NULL;
	size_t found;
	int r = pattern_list(ctl->connection, n ? words[0] : "*", GPUSHM_HOLDERS, &stats, &found);

	if (r < 0)
		return ctl_refused(r);
	for (size_t i = 0; i < found; i++)
		if (stats[i]->wanted && (n == 0 || pattern_matches(words[0], stats[i]->name)))
			tell_wanted(stats[i]);
	gpushm_free(stats);
	return CTL_OK;
}

const struct command command_wanted = {
	.name = "wanted",
	.synopsis = "[PATTERN]",
	.about = "show who was asked to let go of memory that is needed, and has not",
	.max_words = 1,
	.run = run_wanted,
};
