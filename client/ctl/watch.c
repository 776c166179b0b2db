/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl wait NAME...` returns when all buffers are published. `gpushmctl watch NAME...` prints
 * a line for each event of these names, as soon as it happens, for scripts to read; the daemon may
 * restart meanwhile.
 */
#include "client/ctl/ctl.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <string.h>

struct wait_options {
	uint64_t timeout; /* ms, for all names together */
};

static int run_wait(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct wait_options *o = options;
	uint64_t deadline;

	if (__builtin_add_overflow(clock_monotonic_ms(), o->timeout, &deadline))
		deadline = UINT64_MAX;
	for (size_t i = 0; i < n; i++) {
		uint64_t now = clock_monotonic_ms();
		uint64_t left = deadline == UINT64_MAX ? UINT64_MAX
				: now < deadline       ? deadline - now
						       : 0;
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
	.args = ARGS({ "timeout", ARG_TIME, 't', "TIME",
		       "give up after this time, with exit code 5",
		       offsetof(struct wait_options, timeout) }),
	.options_size = sizeof(struct wait_options),
	.defaults = &(const struct wait_options){ .timeout = GPUSHM_WAIT_FOREVER },
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run_wait,
};

struct watch_options {
	uint64_t count; /* 0: no limit */
	uint64_t timeout;
};

static const char *event_word(enum gpushm_event_kind what)
{
	static const char *const words[] = {
		[GPUSHM_EVENT_PUBLISHED] = "published", [GPUSHM_EVENT_DIRTY] = "dirty",
		[GPUSHM_EVENT_CLEAN] = "clean",		[GPUSHM_EVENT_UNLINKED] = "unlinked",
		[GPUSHM_EVENT_GONE] = "gone",		[GPUSHM_EVENT_RESTARTED] = "restarted",
	};

	return what < array_size(words) && words[what] ? words[what] : "unknown";
}

static void print_json(struct json *j, const struct gpushm_event *e)
{
	json_open(j, NULL, '{');
	json_string(j, "event", event_word(e->what));
	if (e->buffer) {
		json_string(j, "name", e->name);
		json_id(j, "id", e->buffer);
	}
	json_close(j, '}');
}

static int print(const struct ctl *ctl, const struct gpushm_event *e)
{
	struct json j;

	if (ctl->quiet)
		return CTL_OK;
	if (ctl_json(ctl, &j))
		print_json(&j, e);
	else if (e->buffer)
		output_line(stdout, "%s %s %" PRIu64, event_word(e->what), e->name, e->buffer);
	else
		output_line(stdout, "%s", event_word(e->what));
	/* The reader waits for this line. */
	if (fflush(stdout) == 0)
		return CTL_OK;
	clearerr(stdout);
	return ctl_error(CTL_FAILED, "standard output: %s", strerror(errno));
}

static int follow(const struct ctl *ctl, const struct watch_options *o, struct gpushm_watch *w)
{
	struct gpushm_event e;
	int r;

	for (uint64_t n = 0; o->count == 0 || n < o->count; n++) {
		r = gpushm_watch_next(w, o->timeout, &e);
		if (r < 0)
			return ctl_refused(r);
		r = print(ctl, &e);
		if (r)
			return r;
	}
	return CTL_OK;
}

static int run_watch(struct ctl *ctl, const void *options, size_t n, char **words)
{
	struct gpushm_watch *w = NULL;
	int r = gpushm_watch_new(ctl->connection, &w);

	for (size_t i = 0; i < n && r == 0; i++)
		r = gpushm_watch_name(w, words[i]);
	r = r < 0 ? ctl_refused(r) : follow(ctl, options, w);
	gpushm_watch_free(w);
	return r;
}

const struct command command_watch = {
	.name = "watch",
	.synopsis = "[--count=N] [--timeout=TIME] NAME...",
	.about = "print the events of buffers as they happen",
	.more = "Prints a line for each event: published, dirty, clean or unlinked, the name and "
		"the\n"
		"buffer's id; or \"restarted\" after a restart of the daemon. It starts with the\n"
		"buffers that are already published.",
	.args = ARGS({ "count", ARG_COUNT, 'c', "N", "end after this number of events",
		       offsetof(struct watch_options, count) },
		     { "timeout", ARG_TIME, 't', "TIME",
		       "give up after this time without an event, with exit code 5",
		       offsetof(struct watch_options, timeout) }),
	.options_size = sizeof(struct watch_options),
	.defaults = &(const struct watch_options){ .timeout = GPUSHM_WAIT_FOREVER },
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run_watch,
};
