/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl top`: pools, buffers, the processes that hold them, and users, and how fast they
 * change: on a screen, once as text, or as a line of JSON for each sample.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/top/columns.h"
#include "client/ctl/top/screen.h"
#include "client/ctl/top/view.h"
#include "client/ctl/transfer.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

#define VIEWS "buffers|processes|users|pools|events"
#define SORTS "size|rate|holders|name|age|user"

struct options {
	bool once, reverse, wide;
	uint64_t delay, count;
	const char *view, *sort, *user;
};

/* ---- JSON ---- */

static void rate_json(struct json *j, const char *key, double rate)
{
	if (isnan(rate))
		json_null(j, key);
	else
		json_value(j, key, "%.3f", rate);
}

static void daemon_json(struct json *j, const struct model *m)
{
	const struct sample *s = m->sample;

	json_time(j, "time", s->time_ns);
	rate_json(j, "seconds", m->seconds);
	json_open(j, "daemon", '{');
	status_json_members(j, s->status);
	rate_json(j, "requests_per_second", m->requests);
	rate_json(j, "refused_per_second", m->refused);
	rate_json(j, "creates_per_second", m->creates);
	rate_json(j, "opens_per_second", m->opens);
	rate_json(j, "cpu_percent", m->cpu);
	if (s->memory_bytes)
		json_uint(j, "memory_bytes", s->memory_bytes);
	else
		json_null(j, "memory_bytes");
	json_close(j, '}');
}

static void pool_json(struct json *j, const struct model *m, size_t at)
{
	pool_json_members(j, m->pools[at].pool);
	rate_json(j, "bytes_per_second", m->pools[at].bytes);
}

static void user_json(struct json *j, const struct model *m, size_t at)
{
	usage_json_members(j, m->users[at].usage);
	rate_json(j, "bytes_per_second", m->users[at].bytes);
}

static void buffer_json(struct json *j, const struct model *m, size_t at)
{
	stat_json_members(j, m->buffers[at].stat, true);
	rate_json(j, "opens_per_second", m->buffers[at].opens);
}

static void process_json(struct json *j, const struct model *m, size_t at)
{
	const struct top_process *p = &m->processes[at];

	json_int(j, "pid", p->pid);
	json_uint(j, "uid", p->uid);
	json_string(j, "user", output_user(p->uid));
	json_string(j, "command", p->command);
	json_bool(j, "ending", p->ending);
	json_uint(j, "buffers", p->buffers);
	json_uint(j, "writes", p->writes);
	json_uint(j, "bytes", p->bytes);
	json_time(j, "since", p->since_ns);
}

static void event_json(struct json *j, const struct model *m, size_t at)
{
	event_json_members(j, m->events[at]);
}

static int rows_json(struct json *j, const struct model *m, const struct choice *c,
		     enum top_view view, const char *key,
		     void (*row)(struct json *j, const struct model *m, size_t at))
{
	struct choice own = *c;
	struct rows rows;

	own.view = view;
	if (model_choose(m, &own, &rows) < 0)
		return -ENOMEM;
	json_open(j, key, '[');
	for (size_t i = 0; i < rows.n; i++) {
		json_open(j, NULL, '{');
		row(j, m, rows.at[i]);
		json_close(j, '}');
	}
	json_close(j, ']');
	free(rows.at);
	return 0;
}

static int print_json(struct json *j, const struct model *m, const struct choice *c)
{
	int r;

	json_open(j, NULL, '{');
	daemon_json(j, m);
	r = rows_json(j, m, c, TOP_POOLS, "pools", pool_json);
	r |= rows_json(j, m, c, TOP_USERS, "users", user_json);
	r |= rows_json(j, m, c, TOP_PROCESSES, "processes", process_json);
	r |= rows_json(j, m, c, TOP_EVENTS, "events", event_json);
	r |= rows_json(j, m, c, TOP_BUFFERS, "buffers", buffer_json);
	json_close(j, '}');
	return r;
}

/* ---- text ---- */

static size_t line_width(const struct ctl *ctl)
{
	struct winsize w;

	if (ctl->wide || !isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0)
		return 0;
	return w.ws_col;
}

static int print_text(const struct ctl *ctl, const struct model *m, const struct state *s)
{
	struct page page;
	struct rows rows;
	int r = model_choose(m, &s->choice, &rows);

	if (r < 0)
		return r;
	page_init(&page, line_width(ctl));
	view_once(m, &rows, s, &page);
	free(rows.at);
	r = page.failed ? -ENOMEM : 0;
	if (r == 0)
		page_print(&page, ctl->colour, stdout);
	page_done(&page);
	return r;
}

/* ---- one sample after the other ---- */

/* The reader waits for these lines. */
static int flush(void)
{
	if (fflush(stdout) == 0)
		return CTL_OK;
	if (errno == EPIPE)
		return CTL_FAILED;
	clearerr(stdout);
	return ctl_error(CTL_FAILED, "standard output: %s", strerror(errno));
}

static int print(struct ctl *ctl, const struct sample *before, const struct sample *now,
		 const struct state *s)
{
	struct json j;
	struct model m;
	int r = model_make(before, now, &now->events, &m);

	if (r == 0 && ctl_json(ctl, &j))
		r = print_json(&j, &m, &s->choice);
	else if (r == 0)
		r = print_text(ctl, &m, s);
	model_done(&m);
	return r < 0 ? ctl_error(CTL_FAILED, "out of memory") : flush();
}

static void sleep_until_due(const struct sample *last, uint64_t period)
{
	uint64_t ended = last->taken_ns / 1000000, now = clock_monotonic_ms();
	uint64_t due = sample_due((last->taken_ns - last->cost_ns) / 1000000, ended, period);

	if (now < due)
		poll(NULL, 0, (int)(due - now));
}

static int next_sample(struct ctl *ctl, const struct state *s, struct sample **before,
		       struct sample **now)
{
	uint64_t after = (*now)->last_event;
	int r;

	sample_free(*before);
	*before = *now;
	*now = NULL;
	sleep_until_due(*before, s->delay_ms);
	r = sample_take(ctl->connection, s->choice.word, after, now);
	return r < 0 ? ctl_refused(r) : CTL_OK;
}

/* Rates need two samples: the first one is not printed, unless it is the only one. */
static int print_samples(struct ctl *ctl, const struct state *s, uint64_t count,
			 struct sample *first)
{
	struct sample *before = NULL, *now = first;
	int r = CTL_OK;

	for (uint64_t n = 0; r == CTL_OK && (!count || n < count); n++) {
		if (n || s->delay_ms)
			r = next_sample(ctl, s, &before, &now);
		/* What had happened before the first look is in the first line, too. */
		if (r == CTL_OK && n == 0 && before)
			history_prepend(&now->events, &before->events);
		if (r == CTL_OK)
			r = print(ctl, before, now, s);
	}
	sample_free(before);
	sample_free(now);
	return r;
}

/* ---- the command ---- */

/* The place of a word in a list like "a|b|c". */
static unsigned index_of(const char *words, const char *word)
{
	unsigned n = 0;

	for (const char *w = words; strncmp(w, word, strlen(word)) != 0; n++)
		w += strcspn(w, "|") + 1;
	return n;
}

static int read_options(const struct ctl *ctl, const struct options *o, const char *word,
			struct state *ret)
{
	bool single = o->once || o->count == 1;

	state_init(ret);
	ret->exact = ctl->bytes;
	ret->delay_ms = o->delay;
	ret->choice.word = word;
	ret->choice.reversed = o->reverse;
	if (o->view)
		ret->choice.view = (enum top_view)index_of(VIEWS, o->view);
	if (o->sort)
		ret->choice.sort = (enum top_sort)index_of(SORTS, o->sort);
	if (o->delay > TOP_DELAY_MAX_MS ||
	    (o->delay < TOP_DELAY_MIN_MS && !(o->delay == 0 && single)))
		return ctl_error(CTL_USAGE, "top: --delay: write 0.1 to 3600 seconds, or 0 with "
					    "--once for no rates");
	ret->choice.by_user = o->user != NULL;
	if (o->user && !output_find_user(o->user, &ret->choice.user))
		return ctl_error(CTL_USAGE, "top: --user=%s: there is no user of that name",
				 o->user);
	return CTL_OK;
}

static int run_screen(struct ctl *ctl, struct state *s, uint64_t count, struct sample *first)
{
	/* The screen says that the daemon has gone while it connects again and again. */
	setenv("GPUSHM_RECONNECT_MS", "0", false);
	return screen_run(ctl, s, count, first);
}

static int run(struct ctl *ctl, const void *options, size_t n_words, char **words)
{
	const struct options *o = options;
	bool lines = o->once || ctl->json;
	struct sample *first = NULL;
	struct state s;
	int r = read_options(ctl, o, n_words ? words[0] : NULL, &s);

	ctl->wide = o->wide;
	if (r == CTL_OK && !lines && !(isatty(STDIN_FILENO) && output_terminal(STDOUT_FILENO)))
		r = ctl_error(CTL_USAGE, "top: this is no terminal that can show a screen; use "
					 "--once or --json");
	if (r == CTL_OK && !lines)
		r = screen_check();
	if (r == CTL_OK)
		r = ctl_connect(ctl);
	if (r == CTL_OK)
		r = ctl_result(sample_take(ctl->connection, s.choice.word, 0, &first));
	if (r)
		return r;
	return lines ? print_samples(ctl, &s, o->once ? 1 : o->count, first)
		     : run_screen(ctl, &s, o->count, first);
}

const struct command command_top = {
	.name = "top",
	.synopsis = "[--once] [--delay=TIME] [--count=N] [--view=VIEW] [--sort=ORDER] [--reverse] "
		    "[--user=USER] [--wide] [PREFIX|PATTERN]",
	.about = "show pools, buffers, processes, users and events as they change",
	.more = "On a terminal it is a screen, and h lists its keys. With --json it prints a line\n"
		"for each sample. Rates are those since the sample before: so --once waits for\n"
		"one period, unless it is 0.",
	.args = ARGS({ "once", ARG_FLAG, 0, NULL, "print it once as text, or as one line of JSON",
		       offsetof(struct options, once) },
		     { "delay", ARG_TIME, 'd', "TIME", "the period; the default is one second",
		       offsetof(struct options, delay) },
		     { "count", ARG_COUNT, 'c', "N", "end after this number of samples",
		       offsetof(struct options, count) },
		     { "view", ARG_CHOICE, 0, VIEWS, "the list that is shown first",
		       offsetof(struct options, view) },
		     { "sort", ARG_CHOICE, 'S', SORTS, "its order",
		       offsetof(struct options, sort) },
		     { "reverse", ARG_FLAG, 'r', NULL, "the other way round",
		       offsetof(struct options, reverse) },
		     { "user", ARG_TEXT, 'u', "USER", "only what belongs to this user",
		       offsetof(struct options, user) },
		     ARG_WIDE(struct options)),
	.options_size = sizeof(struct options),
	.defaults = &(const struct options){ .delay = 1000 },
	.max_words = 1,
	.connects_itself = true,
	.run = run,
};
