/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl wait NAME...` returns when all buffers are published. `gpushmctl watch NAME...` prints
 * a line for each event of these names, as soon as it happens, for scripts to read; the daemon may
 * restart meanwhile. Names that match a pattern are looked for again and again.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/pattern.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/words.h"

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
				  "give up after this time, with exit code 5")),
	.defaults = &(const struct wait_options){ .timeout = GPUSHM_WAIT_FOREVER },
	.words = { 1, SIZE_MAX },
	.run = run_wait,
};

#define LOOK_MS 500u /* between two looks for names that match a pattern */

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

/* What there is at a look. */
struct sight {
	struct gpushm_stat **all; /* owned; ids grow */
	size_t n;
};

/* The watch of a command. Words that are patterns are looked up twice a second, because the daemon
 * watches names only; seen is what the last look found. */
struct follower {
	struct ctl *ctl;
	const struct watch_options *options;
	struct gpushm_watch *watch; /* owned; also of the patterns, as names */
	char *const *words;
	size_t n_words;
	bool has_patterns;
	struct sight seen;
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

static int tell(struct follower *f, enum gpushm_event_kind what, const char *name, uint64_t id)
{
	return tell_line(f, &(struct line){ what_word(what), name, id, 0 });
}

/* The name has gone from one buffer to another; the line "published" follows. */
static int tell_replaced(struct follower *f, const char *name, uint64_t id, uint64_t previous)
{
	return tell_line(f, &(struct line){ "replaced", name, id, previous });
}

/* ---- patterns ---- */

/* Whether a pattern means this name, and no word names it. */
static bool is_matched(const struct follower *f, const char *name)
{
	bool matched = false;

	for (size_t i = 0; i < f->n_words; i++) {
		if (!strcmp(f->words[i], name))
			return false;
		matched |= pattern_is(f->words[i]) && pattern_matches(f->words[i], name);
	}
	return matched;
}

static bool is_published(const struct gpushm_stat *s)
{
	return s && s->name[0] && s->state != GPUSHM_FILLING;
}

/* then, now: the same buffer at two looks; NULL: it was not there. Returns the name that a pattern
 * means and that it had then, but has not now. */
static const char *lost_name(const struct follower *f, const struct gpushm_stat *then,
			     const struct gpushm_stat *now)
{
	return is_published(then) && is_matched(f, then->name) &&
			       (!is_published(now) || strcmp(then->name, now->name) != 0)
		       ? then->name
		       : NULL;
}

static const struct gpushm_stat *find_name(const struct sight *s, const char *name)
{
	for (size_t i = 0; i < s->n; i++)
		if (is_published(s->all[i]) && !strcmp(s->all[i]->name, name))
			return s->all[i];
	return NULL;
}

static int compare_end(struct follower *f, const struct gpushm_stat *then,
		       const struct gpushm_stat *now, const struct sight *all)
{
	const char *name = lost_name(f, then, now);
	const struct gpushm_stat *next = name ? find_name(all, name) : NULL;

	if (!name)
		return CTL_OK;
	return next ? tell_replaced(f, name, next->id, then->id)
		    : tell(f, GPUSHM_EVENT_UNLINKED, name, then->id);
}

static int compare_begin(struct follower *f, const struct gpushm_stat *then,
			 const struct gpushm_stat *now, const struct sight *all)
{
	bool had = now && !lost_name(f, now, then);
	int r = CTL_OK;

	if (!is_published(now) || !is_matched(f, now->name))
		return CTL_OK;
	if (!had)
		r = tell(f, GPUSHM_EVENT_PUBLISHED, now->name, now->id);
	if (r == CTL_OK && now->dirty != (had && then->dirty))
		r = tell(f, now->dirty ? GPUSHM_EVENT_DIRTY : GPUSHM_EVENT_CLEAN, now->name,
			 now->id);
	return r;
}

static int by_id(const struct gpushm_stat *x, const struct gpushm_stat *y)
{
	return (x->id > y->id) - (x->id < y->id);
}

/* Calls compare() for each buffer of two looks. */
static int compare_all(struct follower *f, const struct sight *now,
		       int (*compare)(struct follower *f, const struct gpushm_stat *then,
				      const struct gpushm_stat *now, const struct sight *all))
{
	const struct sight *seen = &f->seen;
	size_t i = 0, k = 0;
	int r = CTL_OK;

	while (r == CTL_OK && (i < seen->n || k < now->n)) {
		int order = i == seen->n ? 1 : k == now->n ? -1 : by_id(seen->all[i], now->all[k]);

		r = compare(f, order <= 0 ? seen->all[i] : NULL, order >= 0 ? now->all[k] : NULL,
			    now);
		i += order <= 0;
		k += order >= 0;
	}
	return r;
}

static int look(struct follower *f)
{
	struct sight now = { 0 };
	int r = f->n_words == 1 ? pattern_list(f->ctl->connection, f->words[0], 0, &now.all, &now.n)
				: gpushm_list(f->ctl->connection, NULL, 0, &now.all, &now.n);

	if (r < 0)
		return ctl_refused(r);
	r = compare_all(f, &now, compare_end);
	if (r == CTL_OK)
		r = compare_all(f, &now, compare_begin);
	gpushm_free(f->seen.all);
	f->seen = now;
	return r;
}

/* ---- names ---- */

static int tell_event(struct follower *f, const struct gpushm_event *e)
{
	return tell(f, e->what, e->name, e->buffer);
}

/* A name that is another buffer's now has two events, one behind the other. */
static int tell_unlinked(struct follower *f, const struct gpushm_event *e)
{
	struct gpushm_event next = { .struct_size = sizeof(next) };
	int found = gpushm_watch_next(f->watch, 0, &next), r;

	if (found == 0 && next.previous == e->buffer && !strcmp(next.name, e->name))
		r = tell_replaced(f, e->name, next.buffer, e->buffer);
	else
		r = tell_event(f, e);
	if (r == CTL_OK && found == 0)
		r = tell_event(f, &next);
	return r == CTL_OK && found < 0 && found != -ETIMEDOUT ? ctl_refused(found) : r;
}

/* The time until the next look, or until the command gives up; *ret_last: it is the latter. */
static uint64_t time_left(const struct follower *f, bool *ret_last)
{
	uint64_t left = clock_left_ms(f->deadline);

	*ret_last = !f->has_patterns || left <= LOOK_MS;
	return *ret_last ? left : LOOK_MS;
}

static int follow(struct follower *f)
{
	struct gpushm_event e = { .struct_size = sizeof(e) };
	bool last = false;
	int r = CTL_OK;

	f->deadline = clock_deadline(f->options->timeout);
	while (!is_done(f)) {
		if (f->has_patterns)
			r = look(f);
		if (r || is_done(f))
			return r;
		r = gpushm_watch_next(f->watch, time_left(f, &last), &e);
		if (r == -ETIMEDOUT && !last)
			continue;
		if (r < 0)
			return ctl_refused(r);
		r = e.what == GPUSHM_EVENT_UNLINKED ? tell_unlinked(f, &e) : tell_event(f, &e);
		if (r)
			return r;
	}
	return CTL_OK;
}

/* A pattern is watched as a name, too, because a buffer may have it. */
static int watch_word(struct follower *f, const char *word)
{
	_cleanup_(free_ptr) char *name = NULL;

	f->has_patterns |= pattern_is(word);
	if (asprintf(&name, "%s%s", word, pattern_is_folder(word) ? "*" : "") < 0)
		return -ENOMEM;
	return gpushm_watch_name(f->watch, name);
}

static int run_watch(struct ctl *ctl, const void *options, size_t n, char **words)
{
	struct follower f = { .ctl = ctl, .options = options, .words = words, .n_words = n };
	int r = gpushm_watch_new(ctl->connection, &f.watch);

	for (size_t i = 0; i < n && r == 0; i++)
		r = watch_word(&f, words[i]);
	r = r < 0 ? ctl_refused(r) : follow(&f);
	gpushm_watch_free(f.watch);
	gpushm_free(f.seen.all);
	return r;
}

const struct command command_watch = {
	.name = "watch",
	.synopsis = "[--count=N] [--timeout=TIME] NAME|PATTERN...",
	.about = "print the events of buffers as they happen",
	.more = "Prints a line for each event: published, dirty, clean or unlinked, the name and\n"
		"the buffer's id; or \"restarted\" after a restart of the daemon. Where a name\n"
		"goes from one buffer to another, \"replaced\" with the new and the old id\n"
		"stands in place of unlinked, and published follows. It starts with the buffers\n"
		"that are already published. A PATTERN, in quotes, has *, ? or [; model/ stands\n"
		"for all names below it. Names that match are looked for twice a second.",
	OPTIONS(watch_options,
		ARG(watch_options, count, "count", ARG_COUNT, 'c', "N",
		    "end after this number of events"),
		ARG(watch_options, timeout, "timeout", ARG_TIME, 't', "TIME",
		    "give up after this time without an event, with exit code 5")),
	.defaults = &(const struct watch_options){ .timeout = GPUSHM_WAIT_FOREVER },
	.words = { 1, SIZE_MAX },
	.run = run_watch,
};
