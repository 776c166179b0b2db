/* SPDX-License-Identifier: MIT
 *
 * A table is formatted for the rows that are shown only, so that 10,000 buffers cost no more than a
 * screen of them. If the line is too short, columns of less interest are left out, then names are
 * shortened.
 */
#include "client/ctl/top/columns.h"

#include "client/ctl/ctl.h"
#include "client/ctl/event_text.h"
#include "proto/base/own.h"
#include "proto/base/size.h"
#include "proto/words.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#define GAP 2u
#define COLUMNS_MAX 12u
#define NAME_MIN 20u /* before columns are left out */
#define LAST_MIN 14u /* of a last column without a width of its own */

struct cell {
	enum table_style style;
	char text[700];
};

struct column {
	const char *title;
	enum top_sort sort;
	bool sorts;	/* by sort */
	bool right;	/* aligned */
	bool flexible;	/* it takes what the others leave */
	unsigned least; /* columns of the terminal */
	unsigned rank;	/* the first one to be left out is 1; 0: never */
	struct cell (*cell)(const struct model *m, size_t at, bool exact);
};

static struct cell cell(enum table_style style, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static struct cell cell(enum table_style style, const char *format, ...)
{
	struct cell c = { .style = style };
	va_list ap;

	va_start(ap, format);
	vsnprintf(c.text, sizeof(c.text), format, ap);
	va_end(ap);
	return c;
}

struct output_text columns_rate(double rate)
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

struct output_text columns_byte_rate(double rate)
{
	struct output_text t = { "-" };

	if (fabs(rate) >= 1)
		snprintf(t.text, sizeof(t.text), "%c%s/s", rate < 0 ? '-' : '+',
			 size_format((uint64_t)fabs(rate)).text);
	return t;
}

static struct cell size_cell(uint64_t bytes, bool exact)
{
	return cell(TABLE_PLAIN, "%s", output_size(bytes, exact).text);
}

static struct cell rate_cell(double rate)
{
	return cell(rate > 0 ? TABLE_BOLD : TABLE_PLAIN, "%s", columns_rate(rate).text);
}

static struct cell count_cell(uint64_t n, uint64_t max, uint64_t unlimited)
{
	if (max == unlimited)
		return cell(TABLE_PLAIN, "%" PRIu64, n);
	return cell(n >= max ? TABLE_BAD : TABLE_PLAIN, "%" PRIu64 " of %" PRIu64, n, max);
}

/* ---- buffers ---- */

static struct cell buffer_name(const struct model *m, size_t at, bool exact)
{
	const struct gpushm_stat *s = m->buffers[at].stat;

	return s->name[0] ? cell(TABLE_PLAIN, "%s", s->name)
			  : cell(TABLE_DIM, "(unlinked %" PRIu64 ")", s->id);
}

static struct cell buffer_pool(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%s", m->buffers[at].stat->pool);
}

static struct cell buffer_state(const struct model *m, size_t at, bool exact)
{
	const struct gpushm_stat *s = m->buffers[at].stat;

	return cell(stat_style(s), "%s%s%s", state_word(s->state), s->stream ? ", stream" : "",
		    s->dirty ? ", dirty" : "");
}

static struct cell buffer_size(const struct model *m, size_t at, bool exact)
{
	return size_cell(m->buffers[at].stat->bytes, exact);
}

static struct cell buffer_rate(const struct model *m, size_t at, bool exact)
{
	return rate_cell(m->buffers[at].opens);
}

static struct cell buffer_readers(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%u", m->buffers[at].stat->readers);
}

static struct cell buffer_writers(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%u", m->buffers[at].stat->writers);
}

static struct cell buffer_user(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%s", output_user(m->buffers[at].stat->uid));
}

static struct cell age_cell(const struct model *m, uint64_t since_ns)
{
	uint64_t now = m->sample->time_ns;

	return cell(TABLE_PLAIN, "%s", output_age(now > since_ns ? now - since_ns : 0).text);
}

static struct cell buffer_age(const struct model *m, size_t at, bool exact)
{
	return age_cell(m, m->buffers[at].stat->created_ns);
}

static struct cell buffer_holders(const struct model *m, size_t at, bool exact)
{
	const struct gpushm_stat *s = m->buffers[at].stat;
	struct cell c = cell(s->suspects ? TABLE_WARN : TABLE_PLAIN, "%s", "");
	size_t len = 0, i;

	for (i = 0; i < s->n_holders && i < 3; i++)
		len += (size_t)snprintf(c.text + len, sizeof(c.text) - len, "%s%s %d%s",
					i ? ", " : "", s->holders[i]->command, s->holders[i]->pid,
					s->holders[i]->suspect ? " (ending)" : "");
	if (i < s->n_holders)
		snprintf(c.text + len, sizeof(c.text) - len, ", %zu more", s->n_holders - i);
	return c;
}

static const struct column buffer_columns[] = {
	{ "NAME", TOP_NAME, true, false, true, NAME_MIN, 0, buffer_name },
	{ "POOL", TOP_SIZE, false, false, false, 4, 4, buffer_pool },
	{ "STATE", TOP_SIZE, false, false, false, 6, 5, buffer_state },
	{ "SIZE", TOP_SIZE, true, true, false, 10, 0, buffer_size },
	{ "OPENS/S", TOP_RATE, true, true, false, 8, 7, buffer_rate },
	{ "READ", TOP_HOLDERS, true, true, false, 5, 6, buffer_readers },
	{ "WRITE", TOP_HOLDERS, false, true, false, 5, 6, buffer_writers },
	{ "USER", TOP_USER, true, false, false, 8, 3, buffer_user },
	{ "AGE", TOP_AGE, true, true, false, 4, 2, buffer_age },
	{ "HELD BY", TOP_SIZE, false, false, true, LAST_MIN, 1, buffer_holders },
};

/* ---- processes ---- */

static struct cell process_pid(const struct model *m, size_t at, bool exact)
{
	pid_t pid = m->processes[at].pid;

	return pid ? cell(TABLE_PLAIN, "%d", pid) : cell(TABLE_DIM, "?");
}

static struct cell process_user(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%s", output_user(m->processes[at].uid));
}

static struct cell process_buffers(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%u", m->processes[at].buffers);
}

static struct cell process_writes(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%u", m->processes[at].writes);
}

static struct cell process_size(const struct model *m, size_t at, bool exact)
{
	return size_cell(m->processes[at].bytes, exact);
}

static struct cell process_since(const struct model *m, size_t at, bool exact)
{
	return age_cell(m, m->processes[at].since_ns);
}

static struct cell process_command(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%s", m->processes[at].command);
}

static struct cell process_note(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_WARN, "%s",
		    m->processes[at].ending ? "ending: its socket is closed, its process lives"
					    : "");
}

static const struct column process_columns[] = {
	{ "PID", TOP_SIZE, false, true, false, 7, 0, process_pid },
	{ "USER", TOP_USER, true, false, false, 8, 4, process_user },
	{ "BUFFERS", TOP_HOLDERS, true, true, false, 8, 5, process_buffers },
	{ "WRITES", TOP_SIZE, false, true, false, 6, 3, process_writes },
	{ "SIZE", TOP_SIZE, true, true, false, 10, 0, process_size },
	{ "SINCE", TOP_AGE, true, true, false, 6, 2, process_since },
	{ "COMMAND", TOP_NAME, true, false, false, 15, 6, process_command },
	{ "NOTE", TOP_SIZE, false, false, true, LAST_MIN, 1, process_note },
};

/* ---- users ---- */

static struct cell user_name(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%s", output_user(m->users[at].usage->uid));
}

static struct cell user_size(const struct model *m, size_t at, bool exact)
{
	const struct gpushm_usage *u = m->users[at].usage;

	return u->bytes_max == UINT64_MAX ? size_cell(u->bytes, exact)
					  : cell(u->bytes >= u->bytes_max ? TABLE_BAD : TABLE_PLAIN,
						 "%s of %s", output_size(u->bytes, exact).text,
						 output_size(u->bytes_max, exact).text);
}

static struct cell user_rate(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%s", columns_byte_rate(m->users[at].bytes).text);
}

static struct cell user_buffers(const struct model *m, size_t at, bool exact)
{
	const struct gpushm_usage *u = m->users[at].usage;

	return count_cell(u->buffers, u->buffers_max, UINT32_MAX);
}

static struct cell user_leases(const struct model *m, size_t at, bool exact)
{
	const struct gpushm_usage *u = m->users[at].usage;

	return count_cell(u->leases, u->leases_max, UINT32_MAX);
}

static struct cell user_connections(const struct model *m, size_t at, bool exact)
{
	const struct gpushm_usage *u = m->users[at].usage;

	return count_cell(u->peers, u->peers_max, UINT32_MAX);
}

static const struct column user_columns[] = {
	{ "USER", TOP_NAME, true, false, false, 8, 0, user_name },
	{ "BYTES", TOP_SIZE, true, true, false, 10, 0, user_size },
	{ "CHANGE", TOP_RATE, true, true, false, 12, 3, user_rate },
	{ "BUFFERS", TOP_SIZE, false, true, false, 8, 4, user_buffers },
	{ "LEASES", TOP_HOLDERS, true, true, false, 8, 2, user_leases },
	{ "CONNECTIONS", TOP_SIZE, false, true, false, 11, 1, user_connections },
};

/* ---- pools ---- */

static struct cell pool_name(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%s", m->pools[at].pool->name);
}

static struct cell pool_kind(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%s", kind_word(m->pools[at].pool->kind));
}

static struct cell pool_used(const struct model *m, size_t at, bool exact)
{
	return size_cell(m->pools[at].pool->used_bytes, exact);
}

static struct cell pool_rate(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%s", columns_byte_rate(m->pools[at].bytes).text);
}

static struct cell pool_pending(const struct model *m, size_t at, bool exact)
{
	return size_cell(m->pools[at].pool->pending_bytes, exact);
}

static struct cell pool_size(const struct model *m, size_t at, bool exact)
{
	return size_cell(m->pools[at].pool->bytes, exact);
}

static struct cell pool_buffers(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%u", m->pools[at].pool->buffers);
}

static struct cell pool_note(const struct model *m, size_t at, bool exact)
{
	const struct gpushm_pool *p = m->pools[at].pool;

	if (p->failed)
		return cell(TABLE_BAD, "failed: %s", p->why);
	if (p->suspect_bytes)
		return cell(TABLE_WARN, "%s held by processes that are ending",
			    output_size(p->suspect_bytes, exact).text);
	if (!p->allowed)
		return cell(TABLE_WARN, "you may not create buffers in it");
	return cell(TABLE_PLAIN, "%s%s%s", p->device_name,
		    p->device_name[0] && p->is_default ? ", " : "", p->is_default ? "default" : "");
}

static const struct column pool_columns[] = {
	{ "POOL", TOP_NAME, true, false, true, NAME_MIN, 0, pool_name },
	{ "KIND", TOP_SIZE, false, false, false, 7, 5, pool_kind },
	{ "BUFFERS", TOP_HOLDERS, true, true, false, 8, 4, pool_buffers },
	{ "USED", TOP_SIZE, true, true, false, 10, 0, pool_used },
	{ "CHANGE", TOP_RATE, true, true, false, 12, 3, pool_rate },
	{ "PENDING", TOP_SIZE, false, true, false, 10, 2, pool_pending },
	{ "SIZE", TOP_SIZE, false, true, false, 10, 6, pool_size },
	{ "NOTE", TOP_SIZE, false, false, true, LAST_MIN, 1, pool_note },
};

/* ---- events ---- */

enum table_style columns_event_style(const struct gpushm_logged_event *e)
{
	static const char *const bad[] = { "dirty",	  "died",    "lost",	"refused",
					   "pool-failed", "dropped", "orphaned" };

	for (size_t i = 0; i < array_size(bad); i++)
		if (!strcmp(e->type, bad[i]))
			return TABLE_WARN;
	return TABLE_PLAIN;
}

static struct cell event_when(const struct model *m, size_t at, bool exact)
{
	return cell(TABLE_PLAIN, "%s", event_time(m->events[at]).text);
}

static struct cell event_type(const struct model *m, size_t at, bool exact)
{
	return cell(columns_event_style(m->events[at]), "%s", m->events[at]->type);
}

static struct cell event_what(const struct model *m, size_t at, bool exact)
{
	_cleanup_(free_ptr) char *text = event_text(m->events[at], exact);

	return cell(TABLE_PLAIN, "%s", text ? text : "out of memory");
}

static const struct column event_columns[] = {
	{ "TIME", TOP_AGE, true, false, false, 12, 1, event_when },
	{ "EVENT", TOP_SIZE, false, false, false, 12, 0, event_type },
	{ "WHAT", TOP_NAME, true, false, true, LAST_MIN, 0, event_what },
};

/* ---- tables ---- */

static const struct {
	const struct column *columns;
	size_t n;
} tables[] = {
	[TOP_BUFFERS] = { buffer_columns, array_size(buffer_columns) },
	[TOP_PROCESSES] = { process_columns, array_size(process_columns) },
	[TOP_USERS] = { user_columns, array_size(user_columns) },
	[TOP_POOLS] = { pool_columns, array_size(pool_columns) },
	[TOP_EVENTS] = { event_columns, array_size(event_columns) },
};
_Static_assert(array_size(buffer_columns) <= COLUMNS_MAX, "the widest table");

enum top_sort columns_next_sort(enum top_view view, enum top_sort sort, int step)
{
	int n = (int)tables[view].n, at = step > 0 ? -1 : n;

	for (int i = 0; i < n; i++)
		if (tables[view].columns[i].sorts && tables[view].columns[i].sort == sort)
			at = i;
	for (at += step; at >= 0 && at < n; at += step)
		if (tables[view].columns[at].sorts)
			return tables[view].columns[at].sort;
	return sort;
}

struct shown {
	const struct column *column;
	size_t width;
	char title[32];
};

/* A table that is being shown. */
struct grid {
	struct shown columns[COLUMNS_MAX];
	size_t n_columns, n_rows;
	struct cell_text {
		enum table_style style;
		char *escaped; /* owned; NULL: out of memory */
	} * cells;	       /* owned: n_columns for each row */
};

static void grid_done(struct grid *g)
{
	for (size_t i = 0; g->cells && i < g->n_columns * g->n_rows; i++)
		free(g->cells[i].escaped);
	free(g->cells);
}

static void add_titles(struct grid *g, const struct table_form *f)
{
	enum top_view view = f->choice->view;

	g->n_columns = tables[view].n;
	for (size_t i = 0; i < g->n_columns; i++) {
		const struct column *c = &tables[view].columns[i];
		bool sorted = f->live && c->sorts && c->sort == f->choice->sort;
		struct shown *s = &g->columns[i];

		s->column = c;
		snprintf(s->title, sizeof(s->title), "%s%s", c->title,
			 !sorted	       ? ""
			 : f->choice->reversed ? "\xe2\x86\x91"
					       : "\xe2\x86\x93");
		s->width = output_columns(s->title);
		if (f->live && c->least > s->width)
			s->width = c->least;
	}
}

static bool add_cells(struct grid *g, const struct model *m, const struct rows *rows,
		      const struct table_form *f)
{
	g->n_rows = f->n;
	g->cells = calloc(g->n_rows * g->n_columns + 1, sizeof(*g->cells));
	for (size_t i = 0; g->cells && i < g->n_rows; i++)
		for (size_t k = 0; k < g->n_columns; k++) {
			struct cell_text *to = &g->cells[i * g->n_columns + k];
			struct shown *s = &g->columns[k];
			struct cell c = s->column->cell(m, rows->at[f->first + i], f->exact);
			size_t width;

			*to = (struct cell_text){ c.style, output_escape(c.text, strlen(c.text)) };
			width = to->escaped ? output_columns(to->escaped) : 0;
			if (width > s->width)
				s->width = width;
		}
	return g->cells != NULL;
}

/* The width of all columns, where those that are flexible have their least one. */
static size_t least_width(const struct grid *g)
{
	size_t sum = 0;

	for (size_t i = 0; i < g->n_columns; i++) {
		const struct shown *s = &g->columns[i];

		if (s->width)
			sum += GAP + (s->column->flexible ? s->column->least : s->width);
	}
	return sum ? sum - GAP : 0;
}

/* A column that is left out has no width. Of two flexible columns, the name gets most. */
static void fit(struct grid *g, size_t width)
{
	size_t least, left, flexible = 0;

	for (unsigned rank = 1; rank < 9; rank++)
		for (size_t i = 0; i < g->n_columns && least_width(g) > width; i++)
			if (g->columns[i].column->rank == rank)
				g->columns[i].width = 0;
	least = least_width(g);
	left = least < width ? width - least : 0;
	for (size_t i = 0; i < g->n_columns; i++)
		flexible += g->columns[i].column->flexible && g->columns[i].width;
	for (size_t i = 0; i < g->n_columns; i++) {
		struct shown *s = &g->columns[i];
		size_t part = flexible > 1 ? left * 3 / 5 : left;

		if (!s->column->flexible || !s->width)
			continue;
		s->width = s->column->least + part;
		left -= part;
		flexible--;
	}
	/* Without space for its least width, the name gets what there is. */
	if (least > width && g->columns[0].column->flexible)
		g->columns[0].width = g->columns[0].width + width > least
					      ? g->columns[0].width + width - least
					      : 1;
}

static void show_cell(const struct grid *g, size_t column, enum table_style style,
		      const char *escaped, struct page *page)
{
	const struct shown *s = &g->columns[column];
	const struct line *l = &page->lines[page->n - 1];

	if (!s->width)
		return;
	page_fill(page, l->columns ? l->columns + GAP : 0);
	page_cell(page, style, escaped, s->width, s->column->right);
}

void columns_show(const struct model *m, const struct rows *rows, const struct table_form *form,
		  struct page *page)
{
	struct grid g = { 0 };

	add_titles(&g, form);
	if (!add_cells(&g, m, rows, form))
		page->failed = true;
	if (page->width)
		fit(&g, page->width);
	page_line(page);
	for (size_t k = 0; k < g.n_columns && !page->failed; k++)
		show_cell(&g, k, TABLE_BOLD, g.columns[k].title, page);
	for (size_t i = 0; i < g.n_rows && !page->failed; i++) {
		page_line(page);
		for (size_t k = 0; k < g.n_columns && !page->failed; k++) {
			const struct cell_text *c = &g.cells[i * g.n_columns + k];

			show_cell(&g, k, c->style, c->escaped ? c->escaped : "?", page);
		}
		if (form->live && form->first + i == form->selected) {
			page_fill(page, page->width);
			page_mark(page);
		}
	}
	grid_done(&g);
}
