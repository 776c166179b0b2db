/* SPDX-License-Identifier: MIT
 *
 * From top to bottom: the daemon, its pools, the list of the chosen view, and the keys. On a screen
 * with few lines the list keeps half of them, and pools are left out first. A table is made of the
 * rows that are shown only, so that 10,000 buffers cost no more than a screen of them.
 */
#include "client/ctl/top/view.h"

#include "client/ctl/ctl.h"
#include "proto/base/own.h"
#include "proto/base/size.h"
#include "proto/words.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define POOL_NAME_SHOWN 16
#define POOL_OTHERS 47u	      /* columns of a pool's line beside its name and its bar */
#define POOL_OTHERS_EXACT 56u /* the same, for sizes in bytes */
#define HOLDERS_WIDE 120u     /* columns that have space for three holders */
#define BAR_MIN 5u
#define BAR_MAX 60u
#define BAR_ONCE 30u /* where lines have no limit */

/* Where a page goes, and what is on it. */
struct page {
	FILE *out;
	unsigned flags; /* of table_print() */
	size_t width;	/* columns; 0: no limit */
	const struct model *m;
	const struct state *state;
};

#define add(page, style, ...) table_text((page)->out, (page)->flags, style, __VA_ARGS__)

static void end_line(const struct page *p)
{
	putc('\n', p->out);
}

/* "12.3", "1234", "1.2 M" a second; "-" if it is not known. */
static struct output_text rate_text(double rate)
{
	struct output_text t = { "-" };

	if (isnan(rate))
		return t;
	if (rate < 10 && rate > 0)
		snprintf(t.text, sizeof(t.text), "%.1f", rate);
	else if (rate < 1e6)
		snprintf(t.text, sizeof(t.text), "%.0f", rate);
	else
		snprintf(t.text, sizeof(t.text), "%.1f M", rate / 1e6);
	return t;
}

/* "+1.2 GiB/s"; "-": not known, or nothing changed. */
static struct output_text change_text(double rate)
{
	struct output_text t = { "-" };

	if (fabs(rate) >= 1)
		snprintf(t.text, sizeof(t.text), "%c%s/s", rate < 0 ? '-' : '+',
			 size_format((uint64_t)fabs(rate)).text);
	return t;
}

/* ---- the daemon ---- */

static void add_first_line(const struct page *p)
{
	const struct gpushm_status *d = p->m->sample->status;
	const struct state *s = p->state;
	time_t now = (time_t)(p->m->sample->time_ns / 1000000000u);
	char clock[16] = "";
	struct tm tm;

	if (s->error[0]) {
		add(p, TABLE_BAD, "%s; trying again", s->error);
	} else {
		if (localtime_r(&now, &tm))
			strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
		add(p, TABLE_BOLD, "%s", d->software);
		add(p, TABLE_PLAIN, ", pid %d, up %s  %s", d->pid,
		    output_age(d->uptime_ms * 1000000).text, clock);
		if (!isnan(p->m->seconds))
			add(p, TABLE_PLAIN, "  every %.1f s", p->m->seconds);
	}
	end_line(p);
}

static void add_counts(const struct page *p)
{
	const struct gpushm_status *d = p->m->sample->status;

	add(p, TABLE_PLAIN, "%u %s, %u %s, %u %s, %u waiting; %u of %u descriptors",
	    OUTPUT_COUNT(d->buffers, "buffer"), OUTPUT_COUNT(d->leases, "lease"),
	    OUTPUT_COUNT(d->peers, "connection"), d->waiting, d->fds, d->fds_max);
	if (d->suspects)
		add(p, TABLE_WARN, "; %u ending", d->suspects);
	if (d->retained)
		add(p, TABLE_PLAIN, "; %u freed of %s still mapped", d->retained,
		    output_size(d->retained_bytes, false).text);
	end_line(p);
}

static void add_rates(const struct page *p)
{
	const struct model *m = p->m;

	add(p, TABLE_PLAIN, "requests %s/s, ", rate_text(m->requests).text);
	add(p, m->refused > 0 ? TABLE_WARN : TABLE_PLAIN, "refused %s/s",
	    rate_text(m->refused).text);
	add(p, TABLE_PLAIN, ", creates %s/s, opens %s/s", rate_text(m->creates).text,
	    rate_text(m->opens).text);
	if (!isnan(m->cpu))
		add(p, TABLE_PLAIN, "; daemon: %.1f %% CPU, %s", m->cpu,
		    output_size(m->sample->memory_bytes, false).text);
	end_line(p);
}

/* ---- pools ---- */

/* As many columns of the bar as are due to the bytes. */
static size_t part_of(uint64_t bytes, const struct gpushm_pool *p, size_t width)
{
	double part = p->bytes ? (double)bytes / (double)p->bytes : 0;
	size_t n = (size_t)lround((part < 1 ? part : 1) * (double)width);

	return n ? n : bytes && p->bytes;
}

static void add_bar(const struct page *page, const struct gpushm_pool *p, size_t width)
{
	uint64_t held = p->used_bytes > p->suspect_bytes ? p->used_bytes - p->suspect_bytes : 0;
	double share = p->bytes ? (double)p->used_bytes / (double)p->bytes : 0;
	const struct {
		char mark;
		uint64_t bytes;
		enum table_style style;
	} parts[] = {
		{ '|', held,
		  share >= 0.9	  ? TABLE_BAD
		  : share >= 0.75 ? TABLE_WARN
				  : TABLE_GOOD },
		{ ':', p->suspect_bytes, TABLE_WARN },
		{ '.', p->pending_bytes, TABLE_DIM },
	};
	size_t left = width;

	add(page, TABLE_BOLD, "[");
	for (size_t i = 0; i < array_size(parts); i++) {
		size_t n = part_of(parts[i].bytes, p, width);
		char text[BAR_MAX + 1] = "";

		n = n < left ? n : left;
		memset(text, parts[i].mark, n);
		add(page, parts[i].style, "%s", text);
		left -= n;
	}
	add(page, TABLE_PLAIN, "%*s", (int)left, "");
	add(page, TABLE_BOLD, "] ");
}

/* What is left for a bar: the numbers get the same space in each line, so that the bars are equally
 * long. */
static size_t bar_width(const struct page *page, size_t name_width)
{
	size_t others = name_width + (page->state->exact ? POOL_OTHERS_EXACT : POOL_OTHERS);

	if (!page->width)
		return BAR_ONCE;
	if (page->width < others + BAR_MIN)
		return 0;
	return page->width - others < BAR_MAX ? page->width - others : BAR_MAX;
}

static void add_pool(const struct page *page, const struct top_row *row, size_t name_width)
{
	const struct gpushm_pool *p = row->pool;
	size_t bar = bar_width(page, name_width);
	bool exact = page->state->exact;

	add(page, TABLE_BOLD, "%-*.*s ", (int)name_width, (int)name_width, p->name);
	if (p->failed) {
		add(page, TABLE_BAD, "failed: %s", p->why);
	} else {
		if (bar)
			add_bar(page, p, bar);
		add(page, TABLE_PLAIN, "%3.0f%%  %s of %s",
		    p->bytes ? 100 * ((double)p->used_bytes / (double)p->bytes) : 0,
		    output_size(p->used_bytes, exact).text, output_size(p->bytes, exact).text);
		if (fabs(row->rate) >= 1)
			add(page, TABLE_PLAIN, "  %s", change_text(row->rate).text);
	}
	end_line(page);
}

/* The row of a pool, in whatever order the rows are. */
static const struct top_row *pool_row(const struct model *m, size_t at)
{
	const struct top_row *row = m->lists[TOP_POOLS].rows;

	while (row->at != at)
		row++;
	return row;
}

/* At most so many lines; the last one says what is left out. Names are ASCII. */
static void add_pools(const struct page *page, size_t lines)
{
	const struct model *m = page->m;
	size_t n = m->sample->n_pools, width = 4, shown = n <= lines ? n : lines ? lines - 1 : 0;

	for (size_t i = 0; i < shown; i++) {
		size_t len = strlen(m->sample->pools[i]->name);

		width = len > width ? len : width;
	}
	width = width < POOL_NAME_SHOWN || !page->width ? width : POOL_NAME_SHOWN;
	for (size_t i = 0; i < shown; i++)
		add_pool(page, pool_row(m, i), width);
	if (shown < n && lines) {
		add(page, TABLE_DIM, "%zu more %s (4)", OUTPUT_COUNT(n - shown, "pool"));
		end_line(page);
	}
}

/* ---- the list ---- */

static void age_cell(struct table *t, const struct model *m, uint64_t since_ns)
{
	uint64_t now = m->sample->time_ns;

	table_cell(t, TABLE_PLAIN, "%s", output_age(now > since_ns ? now - since_ns : 0).text);
}

static void holders_cell(struct table *t, const struct gpushm_stat *s, size_t width)
{
	char text[256] = "";
	size_t len = 0, i, most = width && width < HOLDERS_WIDE ? 1 : 3;

	for (i = 0; i < s->n_holders && i < most; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s %d%s", i ? ", " : "",
					s->holders[i]->command, s->holders[i]->pid,
					s->holders[i]->suspect	? " (ending)"
					: s->holders[i]->parked ? " (parked)"
					: s->holders[i]->away	? " (away)"
								: "");
	if (i < s->n_holders)
		snprintf(text + len, sizeof(text) - len, ", %zu more", s->n_holders - i);
	table_cell(t, s->suspects ? TABLE_WARN : TABLE_PLAIN, "%s", text);
}

static void buffer_cells(struct table *t, const struct page *p, const struct top_row *row)
{
	const struct gpushm_stat *s = row->buffer;
	double rate;

	stat_cells(t, s, NULL, p->state->exact);
	rate = s->stream ? row->frames : row->rate;
	table_cell(t, rate > 0 ? TABLE_BOLD : TABLE_PLAIN, "%s%s", rate_text(rate).text,
		   !(rate > 0) ? ""
		   : s->stream ? " frames/s"
			       : " opens/s");
	table_cell(t, TABLE_PLAIN, "%u", s->readers);
	table_cell(t, TABLE_PLAIN, "%u", s->writers);
	table_cell(t, TABLE_PLAIN, "%s", output_user(s->uid));
	age_cell(t, p->m, s->created_ns);
	holders_cell(t, s, p->width);
}

static void process_cells(struct table *t, const struct page *page, const struct top_row *row)
{
	const struct top_process *p = row->process;

	if (p->pid)
		table_cell(t, TABLE_PLAIN, "%d", p->pid);
	else
		table_cell(t, TABLE_DIM, "?");
	table_cell(t, TABLE_PLAIN, "%s", output_user(p->uid));
	table_cell(t, TABLE_PLAIN, "%u", p->buffers);
	table_cell(t, TABLE_PLAIN, "%u", p->writes);
	table_cell(t, TABLE_PLAIN, "%s", output_size(p->bytes, page->state->exact).text);
	age_cell(t, page->m, p->since_ns);
	table_cell(t, TABLE_PLAIN, "%s", p->command);
	table_cell(t, TABLE_WARN, "%s",
		   p->ending ? "ending: its socket is closed, its process lives" : "");
}

static void user_cells(struct table *t, const struct page *page, const struct top_row *row)
{
	usage_cells(t, row->user, page->state->exact);
	table_cell(t, TABLE_PLAIN, "%s", change_text(row->rate).text);
}

static void pool_cells_and_change(struct table *t, const struct page *page,
				  const struct top_row *row)
{
	pool_cells(t, row->pool, page->state->exact);
	table_cell(t, TABLE_PLAIN, "%s", change_text(row->rate).text);
}

static const struct {
	const char *title, *columns;
	void (*cells)(struct table *t, const struct page *page, const struct top_row *row);
} views[] = {
	[TOP_BUFFERS] = { "Buffers",
			  "~NAME 4POOL 5STATE >SIZE 7>RATE 3>READ 3>WRITE 2USER 1>AGE 6~HELD_BY",
			  buffer_cells },
	[TOP_PROCESSES] = { "Processes",
			    ">PID 4USER 5>BUFFERS 3>WRITES >SIZE 2>SINCE 6COMMAND 1~NOTE",
			    process_cells },
	[TOP_USERS] = { "Users", "USER >BYTES 4>BUFFERS 2>LEASES 1>CONNECTIONS 3>CHANGE",
			user_cells },
	[TOP_POOLS] = { "Pools",
			"~POOL 7KIND 3PLACE 5>BUFFERS >USED 4>PENDING 6>SIZE 2>LARGEST 1~NOTE "
			"5>CHANGE",
			pool_cells_and_change },
};

static int add_table(const struct page *p, enum top_view view, size_t first, size_t n)
{
	struct table *t = table_new(views[view].columns);

	for (size_t i = first; i < first + n; i++)
		views[view].cells(t, p, &p->m->lists[view].rows[i]);
	if (p->width)
		table_fit(t, p->width);
	return table_print(t, p->flags, p->out);
}

static void add_tabs(const struct page *p)
{
	const struct choice *c = &p->state->choice;

	for (unsigned i = 0; i < TOP_VIEWS; i++) {
		const struct top_list *l = &p->m->lists[i];

		if (i != c->view)
			add(p, TABLE_PLAIN, "%u %s: %zu  ", i + 1, views[i].title, l->all);
		else if (l->n != l->all)
			add(p, TABLE_BOLD, "[%u %s: %zu of %zu]  ", i + 1, views[i].title, l->n,
			    l->all);
		else
			add(p, TABLE_BOLD, "[%u %s: %zu]  ", i + 1, views[i].title, l->n);
	}
	if (c->word)
		add(p, TABLE_WARN, " %s", c->word);
	if (c->by_user)
		add(p, TABLE_WARN, " user %s", output_user(c->user));
	end_line(p);
}

/* ---- the screen ---- */

/* How many lines each part gets. */
struct parts {
	size_t header, pools, tabs, list;
};

static struct parts divide(const struct model *m, size_t body)
{
	struct parts p = { .header = body >= 12 ? 3 : body >= 3, .tabs = body >= 8 };
	size_t spare = body - p.header - p.tabs;

	p.pools = spare > body / 2 ? spare - body / 2 : 0;
	p.pools = m->sample->n_pools < p.pools ? m->sample->n_pools : p.pools;
	p.list = spare - p.pools;
	return p;
}

static void add_header(const struct page *p, const struct parts *parts)
{
	if (parts->header > 0)
		add_first_line(p);
	if (parts->header > 1) {
		add_counts(p);
		add_rates(p);
	}
	add_pools(p, parts->pools);
	if (parts->tabs)
		add_tabs(p);
}

size_t view_screen(const struct model *m, struct state *s, size_t height, size_t width, FILE *out)
{
	struct page p = { out, TABLE_COLOUR | TABLE_WIDE, width, m, s };
	struct parts parts = divide(m, height - 1);
	size_t n = m->lists[s->choice.view].n, visible = parts.list ? parts.list - 1 : 0;
	size_t last = n > visible ? n - visible : 0, shown = n < visible ? n : visible;

	s->first = s->first < last ? s->first : last;
	add_header(&p, &parts);
	if (parts.list)
		add_table(&p, s->choice.view, s->first, shown);
	for (size_t i = shown; i < visible; i++)
		end_line(&p);
	add(&p, TABLE_DIM, "q quit  Tab view  Up Down PgUp PgDn move");
	return visible;
}

/* ---- once ---- */

int view_once(const struct model *m, const struct state *s, unsigned flags, FILE *out)
{
	struct page p = { out, flags, 0, m, s };
	int r = 0;

	add_first_line(&p);
	add_counts(&p);
	add_rates(&p);
	end_line(&p);
	add_pools(&p, SIZE_MAX);
	end_line(&p);
	if (s->choice.view != TOP_USERS) {
		r = add_table(&p, TOP_USERS, 0, m->lists[TOP_USERS].n);
		end_line(&p);
	}
	return r < 0 ? r : add_table(&p, s->choice.view, 0, m->lists[s->choice.view].n);
}
