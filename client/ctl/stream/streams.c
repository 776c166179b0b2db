/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl streams`: the streams that this user may see, and the readers of each: how fast they
 * are, how far behind, and who is in the way of the producer. It looks twice, because only two
 * looks give a rate. `gpushmctl stat` shows one stream by the same functions.
 */
#include "client/ctl/record_json.h"
#include "client/ctl/stream/stream_view.h"
#include "proto/base/own.h"
#include "proto/words.h"

#include <poll.h>
#include <string.h>

struct options {
	uint64_t delay;
	bool wide, names;
};

/* ---- looking ---- */

void stream_looks_done(struct stream_looks *l)
{
	l->now = gpushm_free(l->now);
	l->before = gpushm_free(l->before);
	l->n = l->n_before = 0;
}

int stream_look(struct ctl *ctl, const char *prefix, uint64_t delay_ms, struct stream_looks *ret)
{
	int r;

	*ret = (struct stream_looks){ 0 };
	r = gpushm_streams(ctl->connection, prefix, &ret->now, &ret->n);
	if (r < 0)
		return ctl_refused(r);
	if (delay_ms == 0 || ret->n == 0)
		return CTL_OK;
	poll(NULL, 0, delay_ms > INT32_MAX ? INT32_MAX : (int)delay_ms);
	ret->before = ret->now;
	ret->n_before = ret->n;
	ret->now = NULL;
	ret->n = 0;
	r = gpushm_streams(ctl->connection, prefix, &ret->now, &ret->n);
	if (r < 0)
		stream_looks_done(ret);
	return ctl_result(r);
}

struct stream_view stream_view_at(const struct stream_looks *l, size_t i)
{
	struct stream_view v = { .now = l->now[i] };

	for (size_t k = 0; k < l->n_before && !v.before; k++)
		if (l->before[k]->buffer == v.now->buffer)
			v.before = l->before[k];
	return v;
}

/* ---- JSON ---- */

static void write_reader(struct json *j, const struct stream_view *v,
			 const struct gpushm_stream_reader *r)
{
	uint64_t needs = stream_needs(v->now, r);
	double rate = stream_reader_rate(v, r);
	bool holds = r->held && r->oldest;

	json_open(j, NULL, '{');
	json_record(j, json_reader, r, false);
	json_real_if(j, "rate", rate >= 0, rate);
	json_uint_if(j, "oldest", holds, r->oldest);
	json_uint_if(j, "oldest_ms", holds, r->oldest_ms);
	json_uint_if(j, "needs", needs, needs);
	json_bool(j, "stuck", stream_is_stuck(v->now, r));
	json_close(j, '}');
}

void stream_json_members(struct json *j, const struct stream_view *v)
{
	const struct gpushm_stream_info *s = v->now;
	const struct gpushm_stream_reader *oldest = stream_oldest(s);
	double rate = stream_rate(v);

	json_record(j, json_stream, s, false);
	json_uint_if(j, "newest", s->newest, s->newest);
	json_real_if(j, "age_ms", s->newest, (double)stream_age(s) / 1e6);
	json_real_if(j, "rate", rate >= 0, rate);
	json_uint_if(j, "oldest_reader", oldest, oldest ? oldest->index : 0);
	json_open(j, "readers", '[');
	for (size_t i = 0; i < s->n_readers; i++)
		write_reader(j, v, s->readers[i]);
	json_close(j, ']');
}

/* ---- text ---- */

static struct output_text rate_text(double rate)
{
	struct output_text ret = { "-" };

	if (rate >= 0)
		snprintf(ret.text, sizeof(ret.text), "%.1f", rate);
	return ret;
}

static enum table_style state_style(const struct gpushm_stream_info *s)
{
	return s->state == GPUSHM_STREAM_RUNNING    ? TABLE_GOOD
	       : s->state == GPUSHM_STREAM_ORPHANED ? TABLE_BAD
						    : TABLE_WARN;
}

static void add_reader(struct table *t, const struct stream_view *v,
		       const struct gpushm_stream_reader *r)
{
	bool stuck = stream_is_stuck(v->now, r);

	table_cell(t, TABLE_PLAIN, "  reader %u", r->index);
	table_cell(t, TABLE_PLAIN, "%s", follow_word(r->follow));
	table_cell(t, TABLE_PLAIN, "%s", rate_text(stream_reader_rate(v, r)).text);
	table_cell(t, TABLE_PLAIN, "%" PRIu64, r->taken);
	table_cell(t, stuck ? TABLE_BAD : TABLE_PLAIN, "%" PRIu64, r->lag);
	table_cell(t, TABLE_PLAIN, "%" PRIu64, r->skipped);
	table_cell(t, TABLE_PLAIN, "%u/%u", r->held, r->max_held);
	table_cell(t, TABLE_PLAIN, "%s", stream_process(r->pid, r->command).text);
	table_cell(t, TABLE_PLAIN, "%s", r->pid ? output_user(r->uid) : "-");
	table_cell(t, TABLE_BAD, "%s",
		   r->dropped	? "dropped"
		   : stuck	? "stuck"
		   : r->suspect ? "ending"
				: "");
}

static void add_stream(struct table *t, const struct stream_view *v)
{
	const struct gpushm_stream_info *s = v->now;

	if (s->name[0])
		table_cell(t, TABLE_BOLD, "%s", s->name);
	else
		table_cell(t, TABLE_DIM, "(unlinked %" PRIu64 ")", s->buffer);
	table_cell(t, state_style(s), "%s", stream_state_word(s->state));
	table_cell(t, TABLE_PLAIN, "%s", rate_text(stream_rate(v)).text);
	table_cell(t, TABLE_PLAIN, "%" PRIu64, s->newest);
	table_cell(t, TABLE_PLAIN, "%s", "");
	table_cell(t, TABLE_PLAIN, "%s", "");
	table_cell(t, TABLE_PLAIN, "of %u", s->slots);
	table_cell(t, TABLE_PLAIN, "%s", stream_process(s->pid, s->command).text);
	table_cell(t, TABLE_PLAIN, "%s", output_user(s->uid));
	table_cell(t, TABLE_WARN, "%s", s->waiting_ms ? "waits" : "");
	for (size_t i = 0; i < s->n_readers; i++)
		add_reader(t, v, s->readers[i]);
}

/* The sentence about a reader or, for NULL, about the stream; if there is one. */
static void print_note(const struct gpushm_stream_info *s, const struct gpushm_stream_reader *r)
{
	_cleanup_(free_ptr) char *note = stream_note(s, r);

	if (note)
		output_line(stdout, "%s: %s", s->name[0] ? s->name : "(unlinked)", note);
}

static int print_table(const struct ctl *ctl, const struct stream_looks *l)
{
	struct table *t = table_new(
		"~STREAM STATE >FRAMES/S 3>FRAMES >LAG 2>SKIPPED 1>HELD 5PROCESS 4USER NOTE");
	int r;

	for (size_t i = 0; i < l->n; i++) {
		struct stream_view v = stream_view_at(l, i);

		add_stream(t, &v);
	}
	r = ctl_print(ctl, t);
	for (size_t i = 0; r == CTL_OK && i < l->n; i++) {
		print_note(l->now[i], NULL);
		for (size_t k = 0; k < l->now[i]->n_readers; k++)
			print_note(l->now[i], l->now[i]->readers[k]);
	}
	return r;
}

/* ---- stat ---- */

static void add_group(struct table *t, const struct gpushm_stream_info *s)
{
	bool shared = s->queued || s->redone || s->lost;

	for (size_t i = 0; i < s->n_readers; i++)
		shared = shared || s->readers[i]->follow == GPUSHM_SHARE;
	if (shared)
		table_fact(t, "share", TABLE_PLAIN,
			   "%s; %" PRIu64 " queued, %" PRIu64 " given to another reader, %" PRIu64
			   " lost",
			   delivery_word(s->delivery), s->queued, s->redone, s->lost);
}

static void add_note(struct table *t, const struct gpushm_stream_info *s,
		     const struct gpushm_stream_reader *r)
{
	_cleanup_(free_ptr) char *note = stream_note(s, r);

	if (note)
		table_fact(t, "note", TABLE_BAD, "%s", note);
}

static void add_reader_fact(struct table *t, const struct stream_view *v,
			    const struct gpushm_stream_reader *r)
{
	table_fact(t, r == v->now->readers[0] ? "readers" : "", TABLE_PLAIN,
		   "%u: %s (%s), %s, %s frames/s, lag %" PRIu64 ", %" PRIu64
		   " skipped, holds %u of %u",
		   r->index, stream_process(r->pid, r->command).text,
		   r->pid ? output_user(r->uid) : "-", follow_word(r->follow),
		   rate_text(stream_reader_rate(v, r)).text, r->lag, r->skipped, r->held,
		   r->max_held);
}

void stream_add_facts(struct table *t, const struct ctl *ctl, const struct stream_view *v)
{
	const struct gpushm_stream_info *s = v->now;

	table_fact(t, "stream", state_style(s), "%s, frame %" PRIu64 " (%s ago), %s frames/s",
		   stream_state_word(s->state), s->newest, stream_ms(stream_age(s) / 1000000).text,
		   rate_text(stream_rate(v)).text);
	table_fact(t, "slots", TABLE_PLAIN, "%u of %s, for %u %s at most", s->slots,
		   ctl_size(ctl, s->slot_bytes).text, OUTPUT_COUNT(s->readers_max, "reader"));
	table_fact(t, "producer", TABLE_PLAIN,
		   "%s; it has waited for readers %" PRIu64 " %s, %.1fs in all",
		   stream_process(s->pid, s->command).text, OUTPUT_COUNT(s->stalls, "time"),
		   (double)s->stalled_ns / 1e9);
	add_group(t, s);
	for (size_t i = 0; i < s->n_readers; i++)
		add_reader_fact(t, v, s->readers[i]);
	if (s->dropped)
		table_fact(t, "dropped", TABLE_PLAIN, "%u %s so far",
			   OUTPUT_COUNT(s->dropped, "reader"));
	add_note(t, s, NULL);
	for (size_t i = 0; i < s->n_readers; i++)
		add_note(t, s, s->readers[i]);
}

/* ---- the command ---- */

static int by_name(const void *a, const void *b)
{
	const struct gpushm_stream_info *const *x = a, *const *y = b;
	int d = strcmp((*x)->name, (*y)->name);

	return d ? d : ((*x)->buffer > (*y)->buffer) - ((*x)->buffer < (*y)->buffer);
}

static int print_json(struct json *j, const struct stream_looks *l)
{
	json_open(j, NULL, '[');
	for (size_t i = 0; i < l->n; i++) {
		struct stream_view v = stream_view_at(l, i);

		json_open(j, NULL, '{');
		stream_json_members(j, &v);
		json_close(j, '}');
	}
	json_close(j, ']');
	return CTL_OK;
}

/* One name a line, for completion in a shell. */
static int print_names(const struct stream_looks *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->now[i]->name[0])
			puts(l->now[i]->name);
	return CTL_OK;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	struct stream_looks l;
	struct json j;
	int r;

	ctl->wide = o->wide;
	r = stream_look(ctl, n ? words[0] : NULL, o->names ? 0 : o->delay, &l);
	if (r)
		return r;
	qsort(l.now, l.n, sizeof(*l.now), by_name);
	r = o->names		? print_names(&l)
	    : ctl_json(ctl, &j) ? print_json(&j, &l)
				: print_table(ctl, &l);
	stream_looks_done(&l);
	return r;
}

const struct command command_streams = {
	.name = "streams",
	.synopsis = "[--delay=TIME] [--wide] [PREFIX]",
	.about = "list streams and their readers",
	.more = "Prints a line for each stream, and one for each of its readers: frames a\n"
		"second, how many frames it is behind (LAG) and did not get (SKIPPED), how many\n"
		"it holds, and how many it may. A reader that does not release a frame is named\n"
		"below the table.",
	OPTIONS(options,
		ARG(options, delay, "delay", ARG_TIME, 'd', "TIME",
		    "measure rates for this time (0.5 s); 0: print no rates"),
		ARG_WIDE(options), FLAG(options, names, "names-only", 0, NULL)),
	.defaults = &(const struct options){ .delay = STREAM_DELAY_MS },
	.words = { 0, 1 },
	.run = run,
};
