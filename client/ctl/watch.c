/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl watch NAME...`: a line for each thing that happens to these names, as it happens,
 * until it is interrupted. Scripts read the lines; the daemon may be restarted meanwhile.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/output.h"
#include "proto/base/own.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct options {
	uint64_t count; /* 0: without an end */
	uint64_t timeout;
};

static const char *word_of(enum gpushm_event_kind what)
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
	json_string(j, "event", word_of(e->what));
	if (e->buffer) {
		json_string(j, "name", e->name);
		json_id(j, "id", e->buffer);
	}
	json_close(j, '}');
}

static int print(const struct ctl *ctl, const struct gpushm_event *e)
{
	_cleanup_(free_ptr) char *name = output_escape(e->name, strlen(e->name));
	struct json j;

	if (ctl->quiet)
		return CTL_OK;
	if (ctl_json(ctl, &j))
		print_json(&j, e);
	else if (e->buffer)
		printf("%s %s %" PRIu64 "\n", word_of(e->what), name ? name : "?", e->buffer);
	else
		printf("%s\n", word_of(e->what));
	/* Whoever reads the lines is waiting for them. */
	if (fflush(stdout) == 0)
		return CTL_OK;
	clearerr(stdout);
	return ctl_error(CTL_FAILED, "standard output: %s", strerror(errno));
}

static int follow(const struct ctl *ctl, const struct options *o, struct gpushm_watch *w)
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

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	struct gpushm_watch *w = NULL;
	int r = ctl_connect(ctl);

	if (r)
		return r;
	r = gpushm_watch_new(ctl->connection, &w);
	for (size_t i = 0; i < n && r == 0; i++)
		r = gpushm_watch_name(w, words[i]);
	r = r < 0 ? ctl_refused(r) : follow(ctl, options, w);
	gpushm_watch_free(w);
	return r;
}

const struct command command_watch = {
	.name = "watch",
	.synopsis = "[--count=N] [--timeout=TIME] NAME...",
	.about = "tell what happens to names, as it happens",
	.more = "A line for each event: published, dirty, clean or unlinked, the name, and the "
		"buffer's id;\nor \"restarted\", when the daemon was. Names that are published "
		"already are told first.",
	.args =
		(const struct arg[]){
			{ "count", ARG_COUNT, 'c', "N", "end after so many events",
			  offsetof(struct options, count) },
			{ "timeout", ARG_TIME, 't', "TIME",
			  "give up after so long without one, with exit code 5",
			  offsetof(struct options, timeout) },
			{ .name = NULL },
		},
	.options_size = sizeof(struct options),
	.defaults = &(const struct options){ .timeout = GPUSHM_WAIT_FOREVER },
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run,
};
