/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl ls`: lists the buffers that this user may see, sorted by name; with a word those whose
 * name starts with it, or matches it as a pattern. With --holders it lists their holders, which the
 * daemon shows to a buffer's owner and to admins only. With --arrays it opens each for reading for
 * a moment, and lists its arrays.
 */
#include "client/ctl/arrays.h"
#include "client/ctl/ctl.h"
#include "client/ctl/pattern.h"
#include "proto/base/own.h"
#include "proto/words.h"

#include <string.h>

struct options {
	bool arrays, holders, names, wide;
};

static int by_name(const void *a, const void *b)
{
	const struct gpushm_stat *const *x = a, *const *y = b;
	int d = strcmp((*x)->name, (*y)->name);

	return d ? d : ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

void stat_cells(struct table *t, const struct gpushm_stat *s, const char *of, bool exact)
{
	char note[96] = "";

	if (s->dirty)
		snprintf(note, sizeof(note), ", dirty %s (%d %s)", output_since(s->dirty_ns).text,
			 s->dirty_pid, s->dirty_command);
	if (s->name[0])
		table_cell(t, TABLE_PLAIN, "%s", s->name);
	else if (of && *of)
		table_cell(t, TABLE_DIM, "(twin of %s)", of);
	else
		table_cell(t, TABLE_DIM, "(%s %lu)", s->twin_of ? "twin of" : "unlinked",
			   (unsigned long)(s->twin_of ? s->twin_of : s->id));
	table_cell(t, TABLE_PLAIN, "%s", s->pool);
	table_cell(t, stat_style(s), "%s%s", stat_state(s).text, note);
	table_cell(t, TABLE_PLAIN, "%s", output_size(s->bytes, exact).text);
}

/* The name of the buffer whose twin it is; NULL: of none in the list. */
static const char *whose_twin(const struct gpushm_stat *s, struct gpushm_stat *const *list,
			      size_t n)
{
	for (size_t i = 0; s->twin_of && i < n; i++)
		if (list[i]->id == s->twin_of)
			return list[i]->name;
	return NULL;
}

static void add_buffer(struct table *t, const struct ctl *ctl, const struct gpushm_stat *s,
		       const char *of)
{
	stat_cells(t, s, of, ctl->bytes);
	table_cell(t, TABLE_PLAIN, "%u", s->arrays);
	table_cell(t, TABLE_PLAIN, "%04o", s->mode);
	table_cell(t, TABLE_PLAIN, "%s:%s", output_user(s->uid), output_group(s->gid));
	table_cell(t, TABLE_PLAIN, "%u", s->readers);
	table_cell(t, TABLE_PLAIN, "%u", s->writers);
	table_cell(t, TABLE_PLAIN, "%s", output_since(s->created_ns).text);
}

static int print_buffers(const struct ctl *ctl, struct gpushm_stat *const *list, size_t n)
{
	struct table *t = table_new("~NAME 4POOL STATE >SIZE 1>ARRAYS 2>MODE 6OWNER 3>READERS "
				    "3>WRITERS 5>AGE");

	for (size_t i = 0; i < n; i++)
		add_buffer(t, ctl, list[i], whose_twin(list[i], list, n));
	return ctl_print(ctl, t);
}

static void add_holder(struct table *t, const struct ctl *ctl, const struct gpushm_stat *s,
		       const struct gpushm_holder *h)
{
	table_cell(t, TABLE_PLAIN, "%s", s->name[0] ? s->name : "(unlinked)");
	table_cell(t, TABLE_PLAIN, "%s", ctl_size(ctl, s->bytes).text);
	table_cell(t, TABLE_PLAIN, "%d", h->pid);
	table_cell(t, TABLE_PLAIN, "%s", h->command);
	table_cell(t, TABLE_PLAIN, "%s", output_user(h->uid));
	table_cell(t, TABLE_PLAIN, "%s", access_word(h->access));
	table_cell(t, TABLE_PLAIN, "%lu", (unsigned long)h->lease);
	table_cell(t, TABLE_PLAIN, "%s", output_since(h->since_ns).text);
	/* No buffer that is being filled can be suspended: the daemon shows evicted memory so. */
	if (h->away && s->state == GPUSHM_FILLING)
		table_cell(t, TABLE_BAD, "not let go of after a suspend");
	else
		table_cell(t, TABLE_WARN, "%s%s%s",
			   h->parked ? "parked"
			   : h->away ? "away"
				     : "",
			   h->away && h->suspect ? ", " : "", h->suspect ? "ending" : "");
}

static int print_holders(const struct ctl *ctl, struct gpushm_stat *const *list, size_t n)
{
	struct table *t = table_new("~NAME 2>SIZE >PID COMMAND 4USER 5ACCESS 1>LEASE 3>SINCE NOTE");

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < list[i]->n_holders; k++)
			add_holder(t, ctl, list[i], list[i]->holders[k]);
	return ctl_print(ctl, t);
}

/* One name a line, for scripts; names have no newlines. On a terminal they are escaped. */
static int print_names(struct gpushm_stat *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!list[i]->name[0])
			continue;
		else if (isatty(STDOUT_FILENO))
			output_line(stdout, "%s", list[i]->name);
		else
			puts(list[i]->name);
	return CTL_OK;
}

static int print_json(struct json *j, struct gpushm_stat *const *list, size_t n, bool holders)
{
	json_open(j, NULL, '[');
	for (size_t i = 0; i < n; i++)
		stat_json(j, NULL, list[i], holders);
	json_close(j, ']');
	return CTL_OK;
}

/* Opens one of the buffers. NULL with *ret: an exit code; CTL_OK for a buffer that has no arrays to
 * list, because it is being filled or has no name. */
static struct gpushm_buffer *open_listed(const struct ctl *ctl, const struct gpushm_stat *s,
					 int *ret)
{
	struct gpushm_buffer *b = NULL;

	*ret = CTL_OK;
	if (s->name[0] && s->state != GPUSHM_FILLING)
		*ret = arrays_open(ctl, s->name, &b);
	return b;
}

/* What the user may not read is an error on stderr, and the rest is listed. j or t is NULL. */
static int each_buffer(const struct ctl *ctl, struct gpushm_stat *const *list, size_t n,
		       struct json *j, struct table *t)
{
	int first = CTL_OK;

	for (size_t i = 0; i < n; i++) {
		int r;
		_cleanup_(close_buffer) struct gpushm_buffer *b = open_listed(ctl, list[i], &r);

		if (b && j) {
			json_open(j, NULL, '{');
			stat_json(j, "buffer", list[i], false);
			r = arrays_json(j, b);
			json_close(j, '}');
		} else if (b) {
			r = arrays_table(ctl, b, list[i]->name, t);
		}
		if (!first)
			first = r;
	}
	return first;
}

static int print_arrays(const struct ctl *ctl, struct gpushm_stat *const *list, size_t n)
{
	struct table *t;
	struct json j;
	int r, printed;

	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '[');
		r = each_buffer(ctl, list, n, &j, NULL);
		json_close(&j, ']');
		return r;
	}
	t = table_new("~NAME:ARRAY " ARRAYS_COLUMNS);
	r = each_buffer(ctl, list, n, NULL, t);
	printed = ctl_print(ctl, t);
	return r ? r : printed;
}

static int show(const struct ctl *ctl, const struct options *o, const char *word,
		struct gpushm_stat **stats, size_t n_stats)
{
	_cleanup_(free_ptr) struct gpushm_stat **list =
		calloc(n_stats + 1, sizeof(struct gpushm_stat *));
	struct json j;
	size_t n = 0;

	if (!list)
		return ctl_error(CTL_FAILED, "out of memory");
	for (size_t i = 0; i < n_stats; i++)
		if (pattern_lists(word, stats[i]->name))
			list[n++] = stats[i];
	qsort(list, n, sizeof(struct gpushm_stat *), by_name);
	if (o->names)
		return print_names(list, n);
	if (o->arrays)
		return print_arrays(ctl, list, n);
	if (ctl_json(ctl, &j))
		return print_json(&j, list, n, o->holders);
	return (o->holders ? print_holders : print_buffers)(ctl, list, n);
}

static int run(struct ctl *ctl, const void *options, size_t n_words, char **words)
{
	const struct options *o = options;
	const char *word = n_words ? words[0] : NULL;
	_cleanup_(free_result) struct gpushm_stat **stats = NULL;
	size_t n;
	int r;

	if (o->arrays && o->holders)
		return ctl_error(CTL_USAGE, "ls: --arrays and --holders: choose one");
	ctl->wide = o->wide;
	r = pattern_list(ctl->connection, word, o->holders ? GPUSHM_HOLDERS : 0, &stats, &n);
	return r < 0 ? ctl_refused(r) : show(ctl, o, word, stats, n);
}

const struct command command_ls = {
	.name = "ls",
	.synopsis = "[--arrays | --holders] [--wide] [PREFIX|PATTERN]",
	.about = "list buffers, or those whose names match",
	OPTIONS(options,
		FLAG(options, arrays, "arrays", 'a',
		     "list their arrays, a line each; opens them for reading for a moment"),
		FLAG(options, holders, "holders", 'H',
		     "list the processes that hold them, a line each"),
		ARG_WIDE(options), FLAG(options, names, "names-only", 0, NULL)),
	.words = { 0, 1 },
	.run = run,
};
