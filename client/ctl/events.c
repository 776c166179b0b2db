/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl events` prints a line for each thing that happens: to buffers, to processes that hold
 * them, to pools and to the daemon. If the daemon goes, it connects again, and the next daemon's
 * events follow.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/pattern.h"
#include "client/ctl/record_json.h"
#include "client/gpushm_events.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/words.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 2000u /* between two looks whether the reader of the output is still there */

struct options {
	uint64_t since;	  /* ms; 0: not given */
	const char *user; /* a name or a number; NULL: all */
	const char *types;
	bool once;
	uint64_t count;	  /* 0: no limit */
	uint64_t timeout; /* ms */
};

struct event_reader {
	struct ctl *ctl;
	const struct options *options;
	char *const *words;
	size_t n_words;
	uid_t uid;		    /* (uid_t)-1: of all users */
	uint64_t since_ns;	    /* CLOCK_REALTIME: what was before is not printed */
	bool begun;		    /* it has a first batch */
	uint64_t printed, deadline; /* events; of the next one: clock_deadline() */
};

/* ---- which ones ---- */

static bool matches_word(const struct event_reader *r, const char *name)
{
	for (size_t i = 0; i < r->n_words; i++)
		if (!strcmp(r->words[i], name) || pattern_matches(r->words[i], name))
			return true;
	return false;
}

/* Of what nobody did, it is the buffer's owner that counts. */
static bool is_wanted(const struct event_reader *r, const struct gpushm_logged_event *e)
{
	uid_t uid = e->uid == (uid_t)-1 ? e->owner : e->uid;

	return e->time_ns >= r->since_ns && (r->uid == (uid_t)-1 || uid == r->uid) &&
	       (r->n_words == 0 || matches_word(r, e->name) || matches_word(r, e->former));
}

/* ---- text: each type has its own facts; who did it stands at the end ---- */

static struct output_text event_time(const struct gpushm_logged_event *e)
{
	time_t seconds = (time_t)(e->time_ns / 1000000000u);
	struct output_text t = { "" };
	struct tm tm;
	size_t n = 0;

	if (localtime_r(&seconds, &tm))
		n = strftime(t.text, sizeof(t.text), "%T", &tm);
	snprintf(t.text + n, sizeof(t.text) - n, ".%03u",
		 (unsigned)(e->time_ns / 1000000u % 1000u));
	return t;
}

/* An unlinked buffer of an earlier daemon has no name. */
static void print_name(FILE *out, const struct gpushm_logged_event *e)
{
	if (*e->name)
		fputs(e->name, out);
	else if (e->buffer)
		fprintf(out, "buffer %llu", (unsigned long long)e->buffer);
}

static void print_facts(FILE *out, const struct gpushm_logged_event *e, bool exact)
{
	print_name(out, e);
	if (!strcmp(e->type, "created") || !strcmp(e->type, "freed"))
		fprintf(out, ", %s in pool %s", output_size(e->bytes, exact).text, e->pool);
	else if (!strcmp(e->type, "published"))
		fprintf(out, " %s%s%s", state_word(e->state), *e->former ? ", before " : "",
			e->former);
	else if (!strcmp(e->type, "renamed"))
		fprintf(out, ", before %s", e->former);
	else if (!strcmp(e->type, "opened") || !strcmp(e->type, "died"))
		fprintf(out, " for %s", e->access == GPUSHM_WRITE ? "writing" : "reading");
	else if (!strcmp(e->type, "refused"))
		fputs(e->verb, out);
	else if (!e->buffer)
		fputs(e->pool, out);
}

static char *event_text(const struct gpushm_logged_event *e, bool exact)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	print_facts(out, e, exact);
	if (e->uid != (uid_t)-1)
		fprintf(out, "%sby %s (process %d, %s)", ftell(out) > 0 ? " " : "",
			output_user(e->uid), e->pid, e->command);
	if (*e->text)
		fprintf(out, "%s%s%s%s", ftell(out) > 0 ? ": " : "", e->code, *e->code ? ": " : "",
			e->text);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* ---- output ---- */

static void event_json(struct json *j, const struct gpushm_logged_event *e)
{
	json_open(j, NULL, '{');
	json_record(j, json_event, e, true);
	if (e->buffer)
		json_uint(j, "size_bytes", e->bytes);
	if (e->uid != (uid_t)-1)
		json_int(j, "pid", e->pid);
	json_close(j, '}');
}

static void print_text(const struct ctl *ctl, const struct gpushm_logged_event *e)
{
	_cleanup_(free_ptr) char *text = event_text(e, ctl->bytes);

	output_line(stdout, "%s %-13s %s", event_time(e).text, e->type, text ? text : "");
}

static void print_lost(const struct ctl *ctl, uint64_t lost)
{
	struct json j;

	if (ctl->quiet)
		return;
	if (!ctl_json(ctl, &j)) {
		output_line(stderr,
			    "gpushmctl: %" PRIu64 " events of all users are not kept any more",
			    lost);
		return;
	}
	json_open(&j, NULL, '{');
	json_string(&j, "event", "missed");
	json_uint(&j, "count", lost);
	json_close(&j, '}');
}

static bool is_done(const struct event_reader *r)
{
	return r->options->count && r->printed >= r->options->count;
}

static int print_batch(struct event_reader *r, const struct gpushm_events *batch)
{
	struct json j;

	/* What is gone at the beginning may be older than --since. */
	if (batch->lost && (r->begun || r->since_ns == 0))
		print_lost(r->ctl, batch->lost);
	r->begun = true;
	for (size_t i = 0; i < batch->n_events && !is_done(r); i++) {
		const struct gpushm_logged_event *e = batch->events[i];

		if (!is_wanted(r, e))
			continue;
		r->printed++;
		r->deadline = clock_deadline(r->options->timeout);
		if (r->ctl->quiet)
			continue;
		if (ctl_json(r->ctl, &j))
			event_json(&j, e);
		else
			print_text(r->ctl, e);
	}
	return ctl_flush();
}

/* ---- following ---- */

/* One request. A number of an earlier daemon is good for its successor, too. */
static int read_batch(struct event_reader *r, struct gpushm_events_options *o, bool *ret_more)
{
	_cleanup_(free_result) struct gpushm_events *batch = NULL;
	int code = gpushm_events(r->ctl->connection, o, &batch);

	*ret_more = true;
	if (code == -ECONNRESET)
		return ctl_connect_again(r->ctl);
	/* The library itself checks the types. */
	if (code == -EINVAL && !*gpushm_error_code())
		return ctl_error(CTL_USAGE, "--type: %s", gpushm_error());
	if (code < 0)
		return ctl_refused(code);
	o->after = batch->last;
	*ret_more = batch->more;
	return print_batch(r, batch);
}

static int follow(struct event_reader *r)
{
	const struct options *x = r->options;
	bool all = x->once || x->since, more = true;
	struct gpushm_events_options o = { sizeof(o), all ? 0 : GPUSHM_EVENTS_NEW, 0, x->types };
	int code = CTL_OK;

	r->deadline = clock_deadline(x->timeout);
	while (code == CTL_OK && more)
		code = read_batch(r, &o, &more);
	while (code == CTL_OK && !x->once && !is_done(r) && !output_is_closed(STDOUT_FILENO)) {
		o.timeout_ms = clock_left_ms(r->deadline);
		if (o.timeout_ms == 0)
			return ctl_error(CTL_TIMED_OUT, "nothing has happened");
		if (o.timeout_ms > LOOK_MS)
			o.timeout_ms = LOOK_MS;
		code = read_batch(r, &o, &more);
	}
	return code;
}

static int run_events(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	struct event_reader r = { .ctl = ctl, .options = o, .words = words, .n_words = n };
	uint64_t ns;
	int code = CTL_OK;

	r.uid = (uid_t)-1;
	if (o->user && !output_find_user(o->user, &r.uid))
		code = ctl_error(CTL_USAGE, "--user=%s: there is no user of that name", o->user);
	if (!__builtin_mul_overflow(o->since, 1000000u, &ns) && ns && ns < clock_realtime_ns())
		r.since_ns = clock_realtime_ns() - ns;
	return code ? code : follow(&r);
}

const struct command command_events = {
	.name = "events",
	.synopsis = "[--since=TIME] [--user=USER] [--type=TYPE,...] [--once] [--count=N] "
		    "[--timeout=TIME]\n[NAME|PATTERN...]",
	.about = "print what happens, and who does it",
	.more = "Prints a line for each event: its time and type, the buffer's name, and whose\n"
		"process did it. The types are started, created, published, opened, closed,\n"
		"renamed, replaced, unlinked, freed, dirty, cleaned, died, lost, refused,\n"
		"disconnected, suspect, pool-failed, pool-recovered, joined, dropped, orphaned\n"
		"and continued (of streams), suspended, resumed, evicted, restored, parked,\n"
		"unparked and stuck.\n"
		"A user sees events of his own processes and of buffers that he may stat; an\n"
		"administrator sees all.",
	OPTIONS(options,
		ARG(options, since, "since", ARG_TIME, 'S', "TIME",
		    "begin with what happened this time ago; inf: with all that is kept"),
		ARG(options, user, "user", ARG_TEXT, 'u', "USER",
		    "only what this user's processes did"),
		ARG(options, types, "type", ARG_TEXT, 0, "TYPE,...", "only events of these types"),
		FLAG(options, once, "once", 0, "print what is kept, and end"),
		ARG(options, count, "count", ARG_COUNT, 'c', "N",
		    "end after this number of events"),
		ARG(options, timeout, "timeout", ARG_TIME, 't', "TIME",
		    "give up after this time without an event, with exit status 5")),
	.defaults = &(const struct options){ .timeout = GPUSHM_WAIT_FOREVER },
	.words = { 0, SIZE_MAX },
	.run = run_events,
};
