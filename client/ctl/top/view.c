/* SPDX-License-Identifier: MIT
 *
 * From top to bottom: the daemon, its pools, its users, and the list of the chosen view. A table is
 * made of the rows that are shown only, so that 10,000 buffers cost no more than a terminal full of
 * them.
 */
#include "client/ctl/top/top.h"

#include "client/ctl/ctl.h"
#include "proto/base/own.h"
#include "proto/base/size.h"
#include "proto/base/text.h"
#include "proto/words.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define HOLDERS_SHOWN 3u
#define LIST_MIN 5u /* rows of the list that a low terminal shows: the first lines scroll away */

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
	time_t now = (time_t)(p->m->sample->time_ns / 1000000000u);
	char clock[16] = "";
	struct tm tm;

	if (localtime_r(&now, &tm))
		strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	add(p, TABLE_BOLD, "%s", d->software);
	add(p, TABLE_PLAIN, ", pid %d, up %s  %s", d->pid, output_age(d->uptime_ms * 1000000).text,
	    clock);
	if (!isnan(p->m->seconds))
		add(p, TABLE_PLAIN, "  every %.1f s", p->m->seconds);
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
	end_line(p);
}

/* ---- the tables ---- */

static void age_cell(struct table *t, const struct model *m, uint64_t since_ns)
{
	uint64_t now = m->sample->time_ns;

	table_cell(t, TABLE_PLAIN, "%s", output_age(now > since_ns ? now - since_ns : 0).text);
}

static void holders_cell(struct table *t, const struct gpushm_stat *s)
{
	char text[256] = "";
	size_t i;

	for (i = 0; i < s->n_holders && i < HOLDERS_SHOWN; i++)
		text_append(text, sizeof(text), "%s%s %d%s", i ? ", " : "", s->holders[i]->command,
			    s->holders[i]->pid,
			    s->holders[i]->suspect  ? " (ending)"
			    : s->holders[i]->parked ? " (parked)"
			    : s->holders[i]->away   ? " (away)"
						    : "");
	if (i < s->n_holders)
		text_append(text, sizeof(text), ", %zu more", s->n_holders - i);
	table_cell(t, s->suspects ? TABLE_WARN : TABLE_PLAIN, "%s", text);
}

static void buffer_cells(struct table *t, const struct page *p, const struct top_row *row)
{
	const struct gpushm_stat *s = row->buffer;
	double rate;

	stat_cells(t, s, NULL, p->exact);
	rate = s->stream ? row->frames : row->rate;
	table_cell(t, rate > 0 ? TABLE_BOLD : TABLE_PLAIN, "%s%s", rate_text(rate).text,
		   !(rate > 0) ? ""
		   : s->stream ? " frames/s"
			       : " opens/s");
	table_cell(t, TABLE_PLAIN, "%u", s->readers);
	table_cell(t, TABLE_PLAIN, "%u", s->writers);
	table_cell(t, TABLE_PLAIN, "%s", output_user(s->uid));
	age_cell(t, p->m, s->created_ns);
	holders_cell(t, s);
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
	table_cell(t, TABLE_PLAIN, "%s", output_size(p->bytes, page->exact).text);
	age_cell(t, page->m, p->since_ns);
	table_cell(t, TABLE_PLAIN, "%s", p->command);
	table_cell(t, TABLE_WARN, "%s",
		   p->ending ? "ending: its socket is closed, its process lives" : "");
}

static void user_cells(struct table *t, const struct page *page, const struct top_row *row)
{
	usage_cells(t, row->user, page->exact);
	table_cell(t, TABLE_PLAIN, "%s", change_text(row->rate).text);
}

static void pool_cells_and_change(struct table *t, const struct page *page,
				  const struct top_row *row)
{
	pool_cells(t, row->pool, page->exact);
	table_cell(t, TABLE_PLAIN, "%s", change_text(row->rate).text);
}

static const struct {
	const char *columns;
	void (*cells)(struct table *t, const struct page *page, const struct top_row *row);
} views[] = {
	[TOP_BUFFERS] = { "~NAME 4POOL 5STATE >SIZE 7>RATE 3>READ 3>WRITE 2USER 1>AGE 6~HELD_BY",
			  buffer_cells },
	[TOP_PROCESSES] = { ">PID 4USER 5>BUFFERS 3>WRITES >SIZE 2>SINCE 6COMMAND 1~NOTE",
			    process_cells },
	[TOP_USERS] = { "USER >BYTES 4>BUFFERS 2>LEASES 1>CONNECTIONS 3>CHANGE", user_cells },
	[TOP_POOLS] = { "~POOL 7KIND 1PLACE 5>BUFFERS >USED 4>PENDING >SIZE 2>LARGEST |NOTE "
			"3>CHANGE",
			pool_cells_and_change },
};

/* The rows of a view: at most so many. */
static int add_table(const struct page *p, enum top_view view, size_t most)
{
	const struct top_list *l = &p->m->lists[view];
	struct table *t = table_new(views[view].columns);
	int r;

	for (size_t i = 0; i < l->n && i < most; i++)
		views[view].cells(t, p, &l->rows[i]);
	end_line(p);
	r = table_print(t, p->flags, p->out);
	if (most < l->n) {
		add(p, TABLE_DIM, "%zu more", l->n - most);
		end_line(p);
	}
	return r;
}

/* How many rows of the list fit below the others: the three lines of the daemon, an empty one
 * and the titles of each table, the line that says how many are left out, and that of the cursor.
 */
static size_t room(const struct page *p)
{
	size_t others = 3 + 3 * 2 + p->m->lists[TOP_POOLS].n + p->m->lists[TOP_USERS].n + 2;

	if (!p->lines)
		return SIZE_MAX;
	return p->lines > others + LIST_MIN ? p->lines - others : LIST_MIN;
}

int view_print(const struct page *p, enum top_view view)
{
	int r;

	add_first_line(p);
	add_counts(p);
	add_rates(p);
	r = view == TOP_POOLS ? 0 : add_table(p, TOP_POOLS, SIZE_MAX);
	if (r == 0 && view != TOP_USERS)
		r = add_table(p, TOP_USERS, SIZE_MAX);
	return r < 0 ? r : add_table(p, view, room(p));
}
