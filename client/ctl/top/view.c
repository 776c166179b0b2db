/* SPDX-License-Identifier: MIT
 *
 * From top to bottom: the daemon, its pools, the list of the chosen view, and the footer with a
 * prompt, a message or the keys. On a screen with few lines the list keeps half of them, and pools
 * are left out first.
 */
#include "client/ctl/top/view.h"

#include "client/ctl/ctl.h"
#include "client/ctl/event_text.h"
#include "client/ctl/top/columns.h"
#include "proto/base/own.h"
#include "proto/words.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#define POOL_NAME_SHOWN 16u
#define BAR_MIN 5u
#define BAR_MAX 60u
#define BAR_PIPE 30u /* where lines have no limit */
#define EVENTS_HEIGHT 20u
#define EVENTS_SHOWN 3u	   /* below the list, if the screen has so many lines */
#define EVENTS_PRINTED 10u /* by --once */

static const char *const titles[] = {
	[TOP_BUFFERS] = "Buffers", [TOP_PROCESSES] = "Processes", [TOP_USERS] = "Users",
	[TOP_POOLS] = "Pools",	   [TOP_EVENTS] = "Events",
};

/* ---- the daemon ---- */

static struct output_text clock_text(const struct model *m)
{
	time_t s = (time_t)(m->sample->time_ns / 1000000000u);
	struct output_text t = { "" };
	struct tm tm;

	if (localtime_r(&s, &tm))
		strftime(t.text, sizeof(t.text), "%H:%M:%S", &tm);
	return t;
}

static void add_first_line(const struct model *m, const struct state *s, struct page *page)
{
	const struct gpushm_status *d = m->sample->status;
	char right[64] = "";

	page_line(page);
	if (s->error[0]) {
		page_add(page, TABLE_BAD, "%s; trying again", s->error);
		return;
	}
	if (s->silent_ms) {
		page_add(page, TABLE_BAD, "the daemon has not replied for %s",
			 output_age(s->silent_ms * 1000000).text);
		return;
	}
	if (!isnan(m->seconds))
		snprintf(right, sizeof(right), "every %.1f s  ", m->seconds);
	strcat(right, clock_text(m).text);
	page_add(page, TABLE_BOLD, "%s", d->software);
	page_add(page, TABLE_PLAIN, ", pid %d, up %s  ", d->pid,
		 output_age(d->uptime_ms * 1000000).text);
	if (s->paused)
		page_add(page, TABLE_WARN, "paused  ");
	if (page->width > strlen(right))
		page_fill(page, page->width - strlen(right));
	page_add(page, TABLE_PLAIN, "%s", right);
}

static void add_counts(const struct model *m, struct page *page)
{
	const struct gpushm_status *d = m->sample->status;

	page_line(page);
	page_add(page, TABLE_PLAIN, "%u %s, %u %s, %u %s, %u waiting; %u of %u descriptors",
		 OUTPUT_COUNT(d->buffers, "buffer"), OUTPUT_COUNT(d->leases, "lease"),
		 OUTPUT_COUNT(d->peers, "connection"), d->waiting, d->fds, d->fds_max);
	if (d->suspects)
		page_add(page, TABLE_WARN, "; %u ending", d->suspects);
	if (d->retained)
		page_add(page, TABLE_PLAIN, "; %u freed of %s still mapped", d->retained,
			 output_size(d->retained_bytes, false).text);
}

static void add_rates(const struct model *m, struct page *page)
{
	page_line(page);
	page_add(page, TABLE_PLAIN, "requests %s/s, ", columns_rate(m->requests).text);
	page_add(page, m->refused > 0 ? TABLE_WARN : TABLE_PLAIN, "refused %s/s",
		 columns_rate(m->refused).text);
	page_add(page, TABLE_PLAIN, ", creates %s/s, opens %s/s", columns_rate(m->creates).text,
		 columns_rate(m->opens).text);
	if (!isnan(m->cpu))
		page_add(page, TABLE_PLAIN, "; daemon: %.1f %% CPU, %s", m->cpu,
			 output_size(m->sample->memory_bytes, false).text);
}

/* ---- pools ---- */

/* As many columns of the bar as are due to the bytes. */
static size_t part_of(uint64_t bytes, const struct gpushm_pool *p, size_t width)
{
	double part = p->bytes ? (double)bytes / (double)p->bytes : 0;
	size_t n = (size_t)lround((part < 1 ? part : 1) * (double)width);

	return n ? n : bytes && p->bytes;
}

static void add_bar(const struct gpushm_pool *p, size_t width, struct page *page)
{
	static const char used[] = "||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||";
	static const char ending[] = "::::::::::::::::::::::::::::::::::::::::::::::::::::::::::::";
	static const char pending[] =
		"............................................................";
	uint64_t held = p->used_bytes > p->suspect_bytes ? p->used_bytes - p->suspect_bytes : 0;
	double share = p->bytes ? (double)p->used_bytes / (double)p->bytes : 0;
	struct {
		const char *text;
		uint64_t bytes;
		enum table_style style;
	} parts[] = {
		{ used, held,
		  share >= 0.9	  ? TABLE_BAD
		  : share >= 0.75 ? TABLE_WARN
				  : TABLE_GOOD },
		{ ending, p->suspect_bytes, TABLE_WARN },
		{ pending, p->pending_bytes, TABLE_DIM },
	};
	size_t left = width;

	page_add(page, TABLE_BOLD, "[");
	for (size_t i = 0; i < array_size(parts); i++) {
		size_t n = part_of(parts[i].bytes, p, width);

		n = n < left ? n : left;
		page_add(page, parts[i].style, "%.*s", (int)n, parts[i].text);
		left -= n;
	}
	page_add(page, TABLE_PLAIN, "%*s", (int)left, "");
	page_add(page, TABLE_BOLD, "] ");
}
_Static_assert(BAR_MAX == 60 && BAR_PIPE <= BAR_MAX, "the texts of a bar are as long");

static void add_pool(const struct model *m, size_t at, const struct state *s, size_t name_width,
		     struct page *page)
{
	const struct gpushm_pool *p = m->pools[at].pool;
	_cleanup_(free_ptr) char *name = output_escape(p->name, strlen(p->name));
	char numbers[96], change[48] = "";
	size_t others, bar = BAR_PIPE;

	snprintf(numbers, sizeof(numbers), "%3.0f%%  %s of %s",
		 p->bytes ? 100 * ((double)p->used_bytes / (double)p->bytes) : 0,
		 output_size(p->used_bytes, s->exact).text, output_size(p->bytes, s->exact).text);
	if (fabs(m->pools[at].bytes) >= 1)
		snprintf(change, sizeof(change), "  %s",
			 columns_byte_rate(m->pools[at].bytes).text);
	page_line(page);
	page_cell(page, TABLE_BOLD, name ? name : "?", name_width, false);
	page_add(page, TABLE_PLAIN, " ");
	if (p->failed) {
		page_add(page, TABLE_BAD, "failed: %s", p->why);
		return;
	}
	/* The numbers get the same space in each line, so that the bars are equally long. */
	others = name_width + 4 + (s->exact ? 52 : 43);
	if (page->width)
		bar = page->width > others + BAR_MAX ? BAR_MAX
		      : page->width > others	     ? page->width - others
						     : 0;
	if (bar >= BAR_MIN)
		add_bar(p, bar, page);
	page_add(page, TABLE_PLAIN, "%s%s", numbers, change);
}

/* At most so many lines; the last one says what is left out. */
static void add_pools(const struct model *m, const struct state *s, size_t lines, struct page *page)
{
	size_t n = m->n[TOP_POOLS], width = 4, shown = n <= lines ? n : lines ? lines - 1 : 0;

	for (size_t i = 0; i < shown; i++) {
		const char *name = m->pools[i].pool->name;
		_cleanup_(free_ptr) char *escaped = output_escape(name, strlen(name));
		size_t columns = escaped ? output_columns(escaped) : 0;

		width = columns > width ? columns : width;
	}
	width = width < POOL_NAME_SHOWN || !page->width ? width : POOL_NAME_SHOWN;
	for (size_t i = 0; i < shown; i++)
		add_pool(m, i, s, width, page);
	if (shown < n && lines) {
		page_line(page);
		page_add(page, TABLE_DIM, "%zu more %s (4)", n - shown,
			 n - shown == 1 ? "pool" : "pools");
	}
}

/* ---- the list ---- */

static void add_tabs(const struct model *m, const struct rows *rows, const struct state *s,
		     struct page *page)
{
	const struct choice *c = &s->choice;

	page_line(page);
	for (unsigned i = 0; i < TOP_VIEWS; i++)
		if (i == c->view && rows->n != m->n[i])
			page_add(page, TABLE_BOLD, "[%u %s: %zu of %zu]  ", i + 1, titles[i],
				 rows->n, m->n[i]);
		else
			page_add(page, i == c->view ? TABLE_BOLD : TABLE_PLAIN,
				 i == c->view ? "[%u %s: %zu]  " : "%u %s: %zu  ", i + 1, titles[i],
				 m->n[i]);
	if (c->word)
		page_add(page, TABLE_WARN, " %s", c->word);
	if (s->filter[0])
		page_add(page, TABLE_WARN, " filter \"%s\"", s->filter);
	if (c->by_user)
		page_add(page, TABLE_WARN, " user %s", output_user(c->user));
}

static void add_list(const struct model *m, const struct rows *rows, const struct state *s,
		     size_t height, struct page *page)
{
	size_t visible = height ? height - 1 : 0;
	struct table_form form = { .choice = &s->choice,
				   .exact = s->exact,
				   .live = true,
				   .first = s->first,
				   .n = rows->n - s->first < visible ? rows->n - s->first : visible,
				   .selected = s->selected };

	if (height)
		columns_show(m, rows, &form, page);
}

/* The last ones of those that are chosen; the newest is at the end. */
static void add_events(const struct model *m, const struct state *s, size_t n, struct page *page)
{
	struct choice c = s->choice;
	struct rows rows;

	c.view = TOP_EVENTS;
	c.sort = TOP_AGE;
	c.reversed = true;
	if (model_choose(m, &c, &rows) < 0) {
		page->failed = true;
		return;
	}
	for (size_t i = rows.n > n ? rows.n - n : 0; i < rows.n; i++) {
		const struct gpushm_logged_event *e = m->events[rows.at[i]];
		_cleanup_(free_ptr) char *text = event_text(e, s->exact);

		page_line(page);
		page_add(page, TABLE_DIM, "%s  ", event_time(e).text);
		page_add(page, columns_event_style(e), "%-12s  ", e->type);
		page_add(page, TABLE_PLAIN, "%s", text ? text : "out of memory");
	}
	free(rows.at);
}

/* ---- texts ---- */

static void add_fact(struct page *page, const char *key, enum table_style style, const char *format,
		     ...) __attribute__((format(printf, 4, 5)));
static void add_fact(struct page *page, const char *key, enum table_style style, const char *format,
		     ...)
{
	_cleanup_(free_ptr) char *text = NULL;
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&text, format, ap) < 0)
		text = NULL;
	va_end(ap);
	page_line(page);
	page_add(page, TABLE_BOLD, "%-11s", key);
	page_add(page, style, "%s", text ? text : "out of memory");
}

static void buffer_text(const struct model *m, const struct gpushm_stat *s, bool exact,
			struct page *page)
{
	uint64_t now = m->sample->time_ns;

	add_fact(page, "name", TABLE_PLAIN, "%s", s->name[0] ? s->name : "(unlinked)");
	add_fact(page, "id", TABLE_PLAIN, "%" PRIu64, s->id);
	add_fact(page, "pool", TABLE_PLAIN, "%s (%s)", s->pool, kind_word(s->kind));
	add_fact(page, "state", stat_style(s), "%s%s%s", state_word(s->state),
		 s->stream ? ", stream" : "", s->transient ? ", transient" : "");
	if (s->dirty)
		add_fact(page, "dirty", TABLE_BAD,
			 "%d %s (%s) died while it held it for writing: %s", s->dirty_pid,
			 s->dirty_command, output_user(s->dirty_uid),
			 output_time(s->dirty_ns).text);
	add_fact(page, "size", TABLE_PLAIN, "%s (%s allocated)", output_size(s->bytes, exact).text,
		 output_size(s->allocated_bytes, exact).text);
	add_fact(page, "owner", TABLE_PLAIN, "%s:%s, mode %s", output_user(s->uid),
		 output_group(s->gid), output_mode(s->mode).text);
	add_fact(page, "created", TABLE_PLAIN, "%s (%s ago)", output_time(s->created_ns).text,
		 output_age(now > s->created_ns ? now - s->created_ns : 0).text);
	add_fact(page, "arrays", TABLE_PLAIN, "%u", s->arrays);
	add_fact(page, "held by", TABLE_PLAIN, "%u %s, %u %s; opened %u %s",
		 OUTPUT_COUNT(s->readers, "reader"), OUTPUT_COUNT(s->writers, "writer"),
		 OUTPUT_COUNT(s->opens, "time"));
	for (size_t i = 0; i < s->n_holders; i++) {
		const struct gpushm_holder *h = s->holders[i];

		add_fact(page, "", h->suspect ? TABLE_WARN : TABLE_PLAIN,
			 "%d %s (%s): %s, for %s%s", h->pid, h->command, output_user(h->uid),
			 access_word(h->access),
			 output_age(now > h->since_ns ? now - h->since_ns : 0).text,
			 h->suspect ? "; ending" : "");
	}
}

static bool holds(const struct gpushm_stat *s, const struct top_process *p, enum gpushm_access *ret)
{
	bool found = false;

	*ret = GPUSHM_READ;
	for (size_t i = 0; i < s->n_holders; i++) {
		const struct gpushm_holder *h = s->holders[i];

		if (h->pid != p->pid || h->uid != p->uid || strcmp(h->command, p->command) != 0)
			continue;
		found = true;
		if (h->access == GPUSHM_WRITE)
			*ret = GPUSHM_WRITE;
	}
	return found;
}

static void process_text(const struct model *m, const struct top_process *p, bool exact,
			 struct page *page)
{
	size_t n = 0;

	add_fact(page, "pid", TABLE_PLAIN, "%d", p->pid);
	add_fact(page, "command", TABLE_PLAIN, "%s", p->command);
	add_fact(page, "user", TABLE_PLAIN, "%s", output_user(p->uid));
	for (size_t i = 0; i < m->n[TOP_BUFFERS]; i++) {
		const struct gpushm_stat *s = m->buffers[i].stat;
		enum gpushm_access access;

		if (holds(s, p, &access))
			add_fact(page, n++ ? "" : "holds", TABLE_PLAIN, "%s: %s, %s",
				 s->name[0] ? s->name : "(unlinked)", access_word(access),
				 output_size(s->bytes, exact).text);
	}
	if (!n)
		add_fact(page, "holds", TABLE_WARN, "nothing any more");
}

static void pool_text(const struct gpushm_pool *p, bool exact, struct page *page)
{
	add_fact(page, "pool", TABLE_PLAIN, "%s%s", p->name, p->is_default ? " (default)" : "");
	add_fact(page, "kind", TABLE_PLAIN, "%s", kind_word(p->kind));
	if (p->device_name[0])
		add_fact(page, "device", TABLE_PLAIN, "%s (%s)", p->device_name, p->pci_id);
	if (p->failed)
		add_fact(page, "failed", TABLE_BAD, "%s", p->why);
	add_fact(page, "size", TABLE_PLAIN, "%s", output_size(p->bytes, exact).text);
	add_fact(page, "used", TABLE_PLAIN, "%s, %u %s", output_size(p->used_bytes, exact).text,
		 OUTPUT_COUNT(p->buffers, "buffer"));
	add_fact(page, "pending", TABLE_PLAIN, "%s, freed and kept for reuse",
		 output_size(p->pending_bytes, exact).text);
	add_fact(page, "ending", TABLE_PLAIN, "%s, held by processes that are ending",
		 output_size(p->suspect_bytes, exact).text);
	add_fact(page, "largest", TABLE_PLAIN, "%s", output_size(p->max_buffer_bytes, exact).text);
	if (!p->allowed)
		add_fact(page, "access", TABLE_WARN, "you may not create buffers in it");
}

static void event_detail(const struct gpushm_logged_event *e, bool exact, struct page *page)
{
	_cleanup_(free_ptr) char *text = event_text(e, exact);

	add_fact(page, "event", columns_event_style(e), "%s", e->type);
	add_fact(page, "time", TABLE_PLAIN, "%s", output_time(e->time_ns).text);
	if (*e->name)
		add_fact(page, "name", TABLE_PLAIN, "%s", e->name);
	if (*e->former)
		add_fact(page, "before", TABLE_PLAIN, "%s", e->former);
	if (e->buffer)
		add_fact(page, "id", TABLE_PLAIN, "%" PRIu64, e->buffer);
	if (*e->pool)
		add_fact(page, "pool", TABLE_PLAIN, "%s", e->pool);
	if (e->uid != (uid_t)-1)
		add_fact(page, "process", TABLE_PLAIN, "%d %s (%s)", e->pid, e->command,
			 output_user(e->uid));
	add_fact(page, "what", TABLE_PLAIN, "%s", text ? text : "out of memory");
	if (*e->text)
		add_fact(page, "why", TABLE_PLAIN, "%s", e->text);
}

static void detail_text(const struct model *m, const struct state *s, struct page *page)
{
	size_t before = page->n;

	if (s->choice.view == TOP_PROCESSES)
		process_text(m, &s->process, s->exact, page);
	for (size_t i = 0; s->choice.view == TOP_BUFFERS && i < m->n[TOP_BUFFERS]; i++)
		if (m->buffers[i].stat->id == s->id)
			buffer_text(m, m->buffers[i].stat, s->exact, page);
	for (size_t i = 0; s->choice.view == TOP_POOLS && i < m->n[TOP_POOLS]; i++)
		if (!strcmp(m->pools[i].pool->name, s->pool))
			pool_text(m->pools[i].pool, s->exact, page);
	for (size_t i = 0; s->choice.view == TOP_EVENTS && i < m->n[TOP_EVENTS]; i++)
		if (m->events[i]->number == s->id)
			event_detail(m->events[i], s->exact, page);
	if (page->n == before) {
		page_line(page);
		page_add(page, TABLE_WARN, "It is gone.");
	}
}

static void help_text(struct page *page)
{
	static const struct {
		const char *keys, *text;
	} lines[] = {
		{ "Tab, 1 to 5", "buffers, processes, users, pools, events" },
		{ "Up Down PgUp PgDn", "move; also k j, Home End, g G" },
		{ "Enter", "all about the selected row; its buffers for a user" },
		{ "M or S", "order by size" },
		{ "P or O", "order by rate: opens of a buffer, change of a user or pool" },
		{ "H", "order by holders: leases of a buffer, buffers of a process" },
		{ "N  U  T or A", "order by name, by user, by age" },
		{ "< >, Left Right", "order by the column beside this one" },
		{ "R or I", "reverse the order" },
		{ "/", "show only names that contain a text, or match a pattern" },
		{ "u", "show only what belongs to a user" },
		{ "Escape", "show all again" },
		{ "Space", "pause" },
		{ "d or s", "set the period, in seconds" },
		{ "b", "sizes as exact numbers of bytes" },
		{ "q", "quit" },
	};

	for (size_t i = 0; i < array_size(lines); i++) {
		page_line(page);
		page_add(page, TABLE_BOLD, "%-18s", lines[i].keys);
		page_add(page, TABLE_PLAIN, "%s", lines[i].text);
	}
	page_line(page);
	page_add(page, TABLE_PLAIN,
		 "A pool's bar: | in use, : held by processes that are ending, "
		 ". freed and kept for reuse.");
}

/* ---- the screen ---- */

static void add_footer(const struct state *s, struct page *page)
{
	static const char *const prompts[] = {
		[TOP_FILTER] = "show names with: ",
		[TOP_ASK_USER] = "show only this user (empty: all): ",
		[TOP_ASK_DELAY] = "seconds between two looks: ",
	};

	page_line(page);
	if (s->mode == TOP_FILTER || s->mode == TOP_ASK_USER || s->mode == TOP_ASK_DELAY) {
		page_add(page, TABLE_BOLD, "%s", prompts[s->mode]);
		page_add(page, TABLE_PLAIN, "%s", s->prompt);
	} else if (s->message[0])
		page_add(page, TABLE_WARN, "%s", s->message);
	else if (s->mode != TOP_LIST)
		page_add(page, TABLE_DIM, "q back  Up Down move");
	else
		page_add(page, TABLE_DIM,
			 "q quit  h help  Tab view  / filter  u user  < > order  Enter more  Space "
			 "%s",
			 s->paused ? "go on" : "pause");
}

/* How many lines each part gets. */
struct parts {
	size_t header, pools, tabs, list, events;
};

static struct parts divide(const struct model *m, const struct state *s, size_t height)
{
	size_t body = height ? height - 1 : 0, spare;
	struct parts p = { .header = body >= 12 ? 3 : body >= 3, .tabs = body >= 8 };

	if (body >= EVENTS_HEIGHT && s->choice.view != TOP_EVENTS)
		p.events = m->n[TOP_EVENTS] < EVENTS_SHOWN ? m->n[TOP_EVENTS] : EVENTS_SHOWN;
	spare = body - p.header - p.tabs - p.events;
	p.pools = spare > body / 2 ? spare - body / 2 : 0;
	p.pools = m->n[TOP_POOLS] < p.pools ? m->n[TOP_POOLS] : p.pools;
	p.list = spare - p.pools;
	return p;
}

/* The lines of a text that are visible; returns their number. */
static size_t add_text(const struct model *m, struct state *s, size_t height, struct page *page)
{
	size_t visible = height > 1 ? height - 2 : 0, from = page->n;
	struct page text;

	page_init(&text, page->width);
	if (s->mode == TOP_HELP)
		help_text(&text);
	else
		detail_text(m, s, &text);
	page->failed |= text.failed;
	state_fit(s, text.n, visible);
	for (size_t i = s->first; i < text.n && page->n - from < visible; i++)
		page_move(page, &text.lines[i]);
	page_done(&text);
	return visible;
}

/* Adds empty lines. */
static void fill(struct page *page, size_t lines)
{
	while (page->n < lines && !page->failed)
		page_line(page);
}

size_t view_screen(const struct model *m, const struct rows *rows, struct state *s, size_t height,
		   struct page *page)
{
	struct parts parts;
	size_t visible;

	if (!height)
		return 0;
	parts = divide(m, s, height);
	visible = parts.list ? parts.list - 1 : 0;
	if (height > 1 || s->error[0])
		add_first_line(m, s, page);
	if (s->mode == TOP_HELP || s->mode == TOP_DETAIL) {
		visible = add_text(m, s, height, page);
	} else {
		page_cut(page, parts.header);
		if (parts.header > 1)
			add_counts(m, page);
		if (parts.header > 2)
			add_rates(m, page);
		add_pools(m, s, parts.pools, page);
		if (parts.tabs)
			add_tabs(m, rows, s, page);
		state_fit(s, rows->n, visible);
		add_list(m, rows, s, parts.list, page);
		fill(page, height - 1 - parts.events);
		add_events(m, s, parts.events, page);
	}
	fill(page, height - 1);
	page_cut(page, height - 1);
	add_footer(s, page);
	return visible;
}

/* ---- once ---- */

static void add_table(const struct model *m, const struct rows *rows, const struct choice *choice,
		      const struct state *s, struct page *page)
{
	struct table_form form = { .choice = choice, .exact = s->exact, .n = rows->n };

	page_line(page);
	columns_show(m, rows, &form, page);
}

void view_once(const struct model *m, const struct rows *rows, const struct state *s,
	       struct page *page)
{
	struct choice users = s->choice;
	struct rows all = { 0 };

	add_first_line(m, s, page);
	add_counts(m, page);
	add_rates(m, page);
	page_line(page);
	add_pools(m, s, SIZE_MAX, page);
	users.view = TOP_USERS;
	if (s->choice.view != TOP_USERS && model_choose(m, &users, &all) == 0)
		add_table(m, &all, &users, s, page);
	free(all.at);
	if (s->choice.view != TOP_EVENTS && m->n[TOP_EVENTS]) {
		page_line(page);
		add_events(m, s, EVENTS_PRINTED, page);
	}
	add_table(m, rows, &s->choice, s, page);
}
