/* SPDX-License-Identifier: MIT
 *
 * The time comes from the caller, so that a loader can count from its first byte. The rate is that
 * of all bytes so far, and the time left follows from it. A step that is not due costs a
 * comparison.
 */
#include "client/ctl/model/progress.h"

#include "client/ctl/json.h"
#include "client/ctl/output.h"
#include "proto/base/own.h"
#include "proto/base/size.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SECOND 1000000000u
#define COLUMNS_MAX 160

/* When the first one is printed, and how long after that the next one. A command that ends within a
 * second needs no bar. */
static const struct {
	uint64_t first, interval;
} times[] = {
	[PROGRESS_NONE] = { UINT64_MAX, 0 },
	[PROGRESS_BAR] = { SECOND, SECOND / 10 },
	[PROGRESS_LINES] = { 2ull * SECOND, 2ull * SECOND },
	[PROGRESS_JSON] = { 0, SECOND / 20 },
};

void progress_begin(struct progress *p, const char *asked, bool quiet, const char *label,
		    uint64_t total)
{
	bool terminal = output_terminal(STDERR_FILENO), always = asked && !strcmp(asked, "always");
	enum progress_form form = PROGRESS_NONE;

	if (asked && !strcmp(asked, "json"))
		form = PROGRESS_JSON;
	else if (always)
		form = terminal ? PROGRESS_BAR : PROGRESS_LINES;
	else if (terminal && !quiet && !(asked && !strcmp(asked, "never")))
		form = PROGRESS_BAR;
	*p = (struct progress){ .form = form,
				.label = label,
				.total = total,
				.next = times[form].first,
				.interval = times[form].interval };
	if (always && form == PROGRESS_BAR)
		p->next = 0;
}

struct pace {
	int percent;
	uint64_t rate; /* bytes per second */
	bool known;    /* time_left is */
	uint64_t left; /* s */
};

static struct pace pace_of(const struct progress *p)
{
	double elapsed = (double)p->elapsed / SECOND;
	double rate = elapsed > 0 ? (double)p->done / elapsed : 0;
	struct pace pace = { .percent = 100, .rate = (uint64_t)rate, .known = rate >= 1 };

	if (p->total)
		pace.percent = (int)(100 * ((double)p->done / (double)p->total));
	if (pace.known)
		pace.left = (uint64_t)((double)(p->total - p->done) / rate);
	return pace;
}

static struct output_text format_left(const struct pace *pace)
{
	struct output_text t = { "-:--" };

	if (pace->known)
		snprintf(t.text, sizeof(t.text), "%" PRIu64 ":%02" PRIu64, pace->left / 60,
			 pace->left % 60);
	return t;
}

void progress_format_bar(const struct progress *p, size_t columns, char *buf, size_t size)
{
	struct pace pace = pace_of(p);
	_cleanup_(free_ptr) char *safe = output_escape(p->label, strlen(p->label));
	size_t label_columns = columns / 4 + 1;
	_cleanup_(free_ptr) char *label = safe ? output_shorten(safe, label_columns) : NULL;
	int pad = label ? (int)(label_columns - output_columns(label)) : 0, width;
	char tail[112];

	snprintf(tail, sizeof(tail), "] %3d%% %s of %s, %s/s, %s", pace.percent,
		 size_format(p->done).text, size_format(p->total).text, size_format(pace.rate).text,
		 format_left(&pace).text);
	width = (int)columns - (int)label_columns - (int)strlen(tail) - 3;
	if (width < 5 || !label) {
		snprintf(buf, size, "%.*s", (int)columns - 1, tail + 2);
		return;
	}
	snprintf(buf, size, "%s%*s [%-*.*s%s", label, pad, "", width, width * pace.percent / 100,
		 "################################################"
		 "################################################",
		 tail);
}

void progress_format_line(const struct progress *p, char *buf, size_t size)
{
	struct pace pace = pace_of(p);

	snprintf(buf, size, "%s: %d%%, %s of %s, %s/s, %s left", p->label, pace.percent,
		 size_format(p->done).text, size_format(p->total).text, size_format(pace.rate).text,
		 format_left(&pace).text);
}

/* The terminal's width is asked for each time, because it may change. */
static void draw_bar(struct progress *p)
{
	struct winsize w;
	char line[4 * COLUMNS_MAX];
	size_t columns = 80;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col)
		columns = w.ws_col < COLUMNS_MAX ? w.ws_col : COLUMNS_MAX;
	progress_format_bar(p, columns, line, sizeof(line));
	fprintf(stderr, "\r%s\033[K", line);
	p->shown = true;
}

static void print_json(const struct progress *p)
{
	struct pace pace = pace_of(p);
	struct json j;

	json_init(&j, stderr, false);
	json_open(&j, NULL, '{');
	json_string(&j, "event", "progress");
	json_string(&j, "name", p->label);
	json_uint(&j, "bytes", p->done);
	json_uint(&j, "total", p->total);
	json_value(&j, "seconds", "%.3f", (double)p->elapsed / SECOND);
	json_uint(&j, "rate", pace.rate);
	json_uint_if(&j, "left", pace.known, pace.left);
	json_string(&j, "file", p->file);
	json_close(&j, '}');
}

static void print(struct progress *p)
{
	char line[512];

	if (p->form == PROGRESS_BAR)
		draw_bar(p);
	else if (p->form == PROGRESS_JSON)
		print_json(p);
	else {
		progress_format_line(p, line, sizeof(line));
		output_line(stderr, "gpushmctl: %s", line);
	}
	fflush(stderr);
}

/* The last line of a log is that of the end, however fast it came. */
void progress_step(struct progress *p, uint64_t done, uint64_t elapsed_ns)
{
	bool last = done == p->total && !p->complete && p->form != PROGRESS_BAR;

	p->done = done;
	p->elapsed = elapsed_ns;
	if (p->form == PROGRESS_NONE || p->complete || (elapsed_ns < p->next && !last))
		return;
	p->complete = last;
	p->next = elapsed_ns + p->interval;
	print(p);
}

void progress_end(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = false;
	p->form = PROGRESS_NONE;
}
