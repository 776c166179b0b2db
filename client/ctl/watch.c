/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl wait NAME...` returns when all buffers are published. `gpushmctl watch NAME...` prints
 * a line for each event of these names, as soon as it happens, for scripts to read; the daemon may
 * restart meanwhile. The daemon watches names only: `gpushmctl events` takes patterns.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/pattern.h"
#include "proto/base/clock.h"
#include "proto/words.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct wait_options {
	uint64_t timeout; /* ms, for all names together */
};

static int run_wait(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct wait_options *o = options;
	uint64_t deadline = clock_deadline(o->timeout);

	for (size_t i = 0; i < n; i++) {
		uint64_t left = clock_left_ms(deadline);
		int r = gpushm_wait(ctl->connection, words[i], left);

		/* At the end of the time the owner gets -EAGAIN: the buffer is being filled. */
		if (r == -EAGAIN || (!left && r == -ENOENT))
			return ctl_error(CTL_TIMED_OUT, "%s", gpushm_error());
		if (r < 0)
			return ctl_refused(r);
	}
	return CTL_OK;
}

const struct command command_wait = {
	.name = "wait",
	.synopsis = "[--timeout=TIME] NAME...",
	.about = "wait until buffers are published",
	OPTIONS(wait_options, ARG(wait_options, timeout, "timeout", ARG_TIME, 't', "TIME",
				  "give up after this time, with exit status 5")),
	.defaults = &(const struct wait_options){ .timeout = GPUSHM_WAIT_FOREVER },
	.words = { 1, SIZE_MAX },
	.run = run_wait,
};

struct watch_options {
	uint64_t count; /* 0: no limit */
	uint64_t timeout;
};

/* A line of output. */
struct line {
	const char *word, *name;
	uint64_t id, previous; /* 0: the line has none */
};

static void print_json(struct json *j, const struct line *l)
{
	json_open(j, NULL, '{');
	json_string(j, "event", l->word);
	if (l->id) {
		json_string(j, "name", l->name);
		json_id(j, "id", l->id);
	}
	if (l->previous)
		json_id(j, "previous", l->previous);
	json_close(j, '}');
}

static int print(const struct ctl *ctl, const struct line *l)
{
	struct json j;

	if (ctl->quiet)
		return CTL_OK;
	if (ctl_json(ctl, &j))
		print_json(&j, l);
	else if (l->previous)
		output_line(stdout, "%s %s %" PRIu64 " %" PRIu64, l->word, l->name, l->id,
			    l->previous);
	else if (l->id)
		output_line(stdout, "%s %s %" PRIu64, l->word, l->name, l->id);
	else
		output_line(stdout, "%s", l->word);
	return ctl_flush();
}

/* The watch of a command. */
struct follower {
	struct ctl *ctl;
	const struct watch_options *options;
	struct gpushm_watch *watch; /* owned */
	uint64_t printed, deadline; /* events; of the next one: clock_deadline() */
};

static bool is_done(const struct follower *f)
{
	return f->options->count && f->printed == f->options->count;
}

static int tell_line(struct follower *f, const struct line *l)
{
	if (is_done(f))
		return CTL_OK;
	f->printed++;
	f->deadline = clock_deadline(f->options->timeout);
	return print(f->ctl, l);
}

static int tell_event(struct follower *f, const struct gpushm_event *e)
{
	return tell_line(f, &(struct line){ what_word(e->what), e->name, e->buffer, 0 });
}

/* A name that is another buffer's now has two events, one behind the other. */
static int tell_unlinked(struct follower *f, const struct gpushm_event *e)
{
	struct gpushm_event next = { .struct_size = sizeof(next) };
	int found = gpushm_watch_next(f->watch, 0, &next), r;

	if (found == 0 && next.previous == e->buffer && !strcmp(next.name, e->name))
		/* The line "published" follows. */
		r = tell_line(f, &(struct line){ "replaced", e->name, next.buffer, e->buffer });
	else
		r = tell_event(f, e);
	if (r == CTL_OK && found == 0)
		r = tell_event(f, &next);
	return r == CTL_OK && found < 0 && found != -ETIMEDOUT ? ctl_refused(found) : r;
}

static int follow(struct follower *f)
{
	struct gpushm_event e = { .struct_size = sizeof(e) };
	int r = CTL_OK;

	f->deadline = clock_deadline(f->options->timeout);
	while (r == CTL_OK && !is_done(f)) {
		r = gpushm_watch_next(f->watch, clock_left_ms(f->deadline), &e);
		if (r < 0)
			return ctl_refused(r);
		r = e.what == GPUSHM_EVENT_UNLINKED ? tell_unlinked(f, &e) : tell_event(f, &e);
	}
	return r;
}

static int watch_word(struct follower *f, const char *word)
{
	if (pattern_is(word))
		return ctl_error(CTL_USAGE,
				 "watch: \"%s\" is a pattern and no name; gpushmctl events prints "
				 "what happens to buffers that match it",
				 word);
	return ctl_result(gpushm_watch_name(f->watch, word));
}

static int run_watch(struct ctl *ctl, const void *options, size_t n, char **words)
{
	struct follower f = { .ctl = ctl, .options = options };
	int r = ctl_result(gpushm_watch_new(ctl->connection, &f.watch));

	for (size_t i = 0; i < n && r == CTL_OK; i++)
		r = watch_word(&f, words[i]);
	if (r == CTL_OK)
		r = follow(&f);
	gpushm_watch_free(f.watch);
	return r;
}

const struct command command_watch = {
	.name = "watch",
	.synopsis = "[--count=N] [--timeout=TIME] NAME...",
	.about = "print the events of buffers as they happen",
	.more = "Prints a line for each event: published, dirty, clean or unlinked, the name and\n"
		"the buffer's id; or \"restarted\" after a restart of the daemon. Where a name\n"
		"goes from one buffer to another, \"replaced\" with the new and the old id\n"
		"stands in place of unlinked, and published follows. It starts with the buffers\n"
		"that are already published. For names that match a pattern there is\n"
		"`gpushmctl events`.",
	OPTIONS(watch_options,
		ARG(watch_options, count, "count", ARG_COUNT, 'c', "N",
		    "end after this number of events"),
		ARG(watch_options, timeout, "timeout", ARG_TIME, 't', "TIME",
		    "give up after this time without an event, with exit status 5")),
	.defaults = &(const struct watch_options){ .timeout = GPUSHM_WAIT_FOREVER },
	.words = { 1, SIZE_MAX },
	.run = run_watch,
};
