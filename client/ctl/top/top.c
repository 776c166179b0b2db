/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl top`: pools, buffers, the processes that hold them, and users, and how fast they
 * change: as text or as a line of JSON for each sample, or once.
 */
#include "client/ctl/top/top.h"
#include "client/ctl/ctl.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

#define VIEWS "buffers|processes|users|pools"
#define DELAY_MIN_MS 100u
#define DELAY_MAX_MS 3600000u

#define CLEAR "\033[H\033[2J"

struct options {
	bool once, wide;
	uint64_t delay, count;
	const char *view, *user;
};

/* What is shown. */
struct shown {
	struct choice choice;
	enum top_view view;
	bool live; /* a page of a terminal takes the place of the one before */
};

/* ---- JSON ---- */

static void daemon_json(struct json *j, const struct model *m)
{
	const struct sample *s = m->sample;

	json_time(j, "time", s->time_ns);
	json_real_if(j, "seconds", !isnan(m->seconds), m->seconds);
	json_open(j, "daemon", '{');
	status_json_members(j, s->status);
	json_real_if(j, "requests_per_second", !isnan(m->requests), m->requests);
	json_real_if(j, "refused_per_second", !isnan(m->refused), m->refused);
	json_real_if(j, "creates_per_second", !isnan(m->creates), m->creates);
	json_real_if(j, "opens_per_second", !isnan(m->opens), m->opens);
	json_close(j, '}');
}

static void buffer_json(struct json *j, const struct top_row *row)
{
	stat_json_members(j, row->buffer, true);
	json_real_if(j, "opens_per_second", !isnan(row->rate), row->rate);
	if (row->buffer->stream)
		json_real_if(j, "frames_per_second", !isnan(row->frames), row->frames);
}

static void process_json(struct json *j, const struct top_row *row)
{
	const struct top_process *p = row->process;

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

static void user_json(struct json *j, const struct top_row *row)
{
	usage_json_members(j, row->user);
	json_real_if(j, "bytes_per_second", !isnan(row->rate), row->rate);
}

static void pool_json(struct json *j, const struct top_row *row)
{
	pool_json_members(j, row->pool);
	json_real_if(j, "bytes_per_second", !isnan(row->rate), row->rate);
}

static void rows_json(struct json *j, const struct model *m, enum top_view view, const char *key,
		      void (*members)(struct json *j, const struct top_row *row))
{
	json_open(j, key, '[');
	for (size_t i = 0; i < m->lists[view].n; i++) {
		json_open(j, NULL, '{');
		members(j, &m->lists[view].rows[i]);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void print_json(struct json *j, const struct model *m)
{
	json_open(j, NULL, '{');
	daemon_json(j, m);
	rows_json(j, m, TOP_POOLS, "pools", pool_json);
	rows_json(j, m, TOP_USERS, "users", user_json);
	rows_json(j, m, TOP_PROCESSES, "processes", process_json);
	rows_json(j, m, TOP_BUFFERS, "buffers", buffer_json);
	json_close(j, '}');
}

/* ---- one sample after the other ---- */

static int print_text(const struct ctl *ctl, const struct model *m, const struct shown *s)
{
	struct page p = { .out = stdout,
			  .flags = (ctl->colour ? TABLE_COLOUR : 0) | (ctl->wide ? TABLE_WIDE : 0),
			  .exact = ctl->bytes,
			  .m = m };
	struct winsize size;

	if (s->live) {
		fputs(CLEAR, stdout);
		p.lines = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
	}
	return view_print(&p, s->view);
}

static int print(struct ctl *ctl, const struct sample *before, const struct sample *now,
		 const struct shown *s)
{
	struct json j;
	struct model m;
	int r = model_make(before, now, &s->choice, &m);

	if (r == 0 && ctl_json(ctl, &j))
		print_json(&j, &m);
	else if (r == 0)
		r = print_text(ctl, &m, s);
	model_done(&m);
	return r < 0 ? ctl_error(CTL_FAILED, "out of memory") : ctl_flush();
}

static void sleep_until_due(const struct sample *last, uint64_t period)
{
	uint64_t ended = last->taken_ns / 1000000, now = clock_monotonic_ms();
	uint64_t due = sample_due((last->taken_ns - last->cost_ns) / 1000000, ended, period);

	if (now < due)
		poll(NULL, 0, (int)(due - now));
}

static int take(struct ctl *ctl, const struct shown *s, struct sample **ret)
{
	int code = CTL_OK, r;

	do {
		r = sample_take(ctl->connection, s->choice.word, ret);
		if (r == -ECONNRESET)
			code = ctl_connect_again(ctl);
	} while (r == -ECONNRESET && code == CTL_OK);
	return code ? code : ctl_result(r);
}

/* Rates need two samples: the first one is not printed, unless it is the only one. */
static int print_samples(struct ctl *ctl, const struct shown *s, const struct options *o)
{
	uint64_t count = o->once ? 1 : o->count;
	struct sample *before = NULL, *now = NULL;
	int r = take(ctl, s, &now);

	for (uint64_t n = 0; r == CTL_OK && (!count || n < count); n++) {
		if (o->delay) {
			sample_free(before);
			before = take_ptr(now);
			sleep_until_due(before, o->delay);
			r = take(ctl, s, &now);
		}
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
			struct shown *ret)
{
	bool single = o->once || o->count == 1;

	*ret = (struct shown){ .choice = { .word = word } };
	if (o->view)
		ret->view = (enum top_view)index_of(VIEWS, o->view);
	if (o->delay > DELAY_MAX_MS || (o->delay < DELAY_MIN_MS && !(o->delay == 0 && single)))
		return ctl_error(CTL_USAGE, "top: --delay: write 0.1 to 3600 seconds, or 0 with "
					    "--once for no rates");
	ret->choice.by_user = o->user != NULL;
	if (o->user && !output_find_user(o->user, &ret->choice.user))
		return ctl_error(CTL_USAGE, "top: --user=%s: there is no user of that name",
				 o->user);
	ret->live = !o->once && !ctl->json && output_terminal(STDOUT_FILENO);
	return CTL_OK;
}

static int run(struct ctl *ctl, const void *options, size_t n_words, char **words)
{
	const struct options *o = options;
	struct shown s;
	int r = read_options(ctl, o, n_words ? words[0] : NULL, &s);

	ctl->wide = o->wide;
	if (r == CTL_OK)
		r = ctl_connect(ctl);
	return r ? r : print_samples(ctl, &s, o);
}

const struct command command_top = {
	.name = "top",
	.synopsis = "[--once] [--delay=TIME] [--count=N] [--view=VIEW] [--user=USER] [--wide] "
		    "[PREFIX|PATTERN]",
	.about = "show pools, buffers, processes and users as they change",
	.more = "It prints them again after each period, in place of the page before on a\n"
		"terminal, and Ctrl-C ends it. With --json it prints a line for each sample.\n"
		"Rates are those since the sample before: so the first page and --once wait\n"
		"for one period, unless it is 0.",
	OPTIONS(options, FLAG(options, once, "once", 0, "print one page, or one line of JSON"),
		ARG(options, delay, "delay", ARG_TIME, 'd', "TIME",
		    "the period; the default is one second"),
		ARG(options, count, "count", ARG_COUNT, 'c', "N",
		    "end after this number of samples"),
		ARG(options, view, "view", ARG_CHOICE, 0, VIEWS, "the list below pools and users"),
		ARG(options, user, "user", ARG_TEXT, 'u', "USER", "only what belongs to this user"),
		ARG_WIDE(options)),
	.defaults = &(const struct options){ .delay = 1000 },
	.words = { 0, 1 },
	.connects_itself = true,
	.run = run,
};
