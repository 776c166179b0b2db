/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl ls`: the buffers that this user may see, sorted by name. With --holders, who has each:
 * the daemon tells that to a buffer's owner and to admins only.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/entry.h"
#include "client/ctl/grid.h"
#include "client/ctl/output.h"
#include "proto/base/own.h"

#include <string.h>

struct options {
	bool holders, names;
};

static int by_name(const void *a, const void *b)
{
	const struct gpushm_stat *const *x = a, *const *y = b;
	int d = strcmp((*x)->name, (*y)->name);

	return d ? d : ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

static void add_buffer(struct grid *g, const struct ctl *ctl, const struct gpushm_stat *s)
{
	char age[24], note[64] = "";

	if (s->dirty)
		snprintf(note, sizeof(note), ", dirty %s (%d %s)",
			 output_age(entry_age(s->dirty_ns), age, sizeof(age)), s->dirty_pid,
			 s->dirty_command);
	if (s->name[0])
		grid_cell(g, GRID_PLAIN, "%s", s->name);
	else
		grid_cell(g, GRID_DIM, "(unlinked %lu)", (unsigned long)s->id);
	grid_cell(g, GRID_PLAIN, "%s", s->pool);
	grid_cell(g, entry_state_style(s), "%s%s", entry_state(s->state), note);
	grid_cell(g, GRID_PLAIN, "%s", ctl_size(ctl, s->bytes));
	grid_cell(g, GRID_PLAIN, "%u", s->arrays);
	grid_cell(g, GRID_PLAIN, "%04o", s->mode);
	grid_cell(g, GRID_PLAIN, "%s:%s", entry_user(s->uid), entry_group(s->gid));
	grid_cell(g, GRID_PLAIN, "%u", s->readers);
	grid_cell(g, GRID_PLAIN, "%u", s->writers);
	grid_cell(g, GRID_PLAIN, "%s", output_age(entry_age(s->created_ns), age, sizeof(age)));
}

static int print_buffers(const struct ctl *ctl, struct gpushm_stat *const *list, size_t n)
{
	struct grid *g =
		grid_new("NAME POOL STATE >SIZE >ARRAYS >MODE OWNER >READERS >WRITERS >AGE");
	int r;

	if (!g)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		add_buffer(g, ctl, list[i]);
	r = grid_print(g, ctl->colour, stdout);
	grid_free(g);
	return r;
}

static int print_holders(const struct ctl *ctl, struct gpushm_stat *const *list, size_t n)
{
	struct grid *g = grid_new("NAME >SIZE >PID COMMAND USER ACCESS >LEASE >SINCE NOTE");
	char age[24];
	int r;

	if (!g)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < list[i]->n_holders; k++) {
			const struct gpushm_holder *h = &list[i]->holders[k];

			grid_cell(g, GRID_PLAIN, "%s",
				  list[i]->name[0] ? list[i]->name : "(unlinked)");
			grid_cell(g, GRID_PLAIN, "%s", ctl_size(ctl, list[i]->bytes));
			grid_cell(g, GRID_PLAIN, "%d", h->pid);
			grid_cell(g, GRID_PLAIN, "%s", h->command);
			grid_cell(g, GRID_PLAIN, "%s", entry_user(h->uid));
			grid_cell(g, GRID_PLAIN, "%s", entry_access(h->access));
			grid_cell(g, GRID_PLAIN, "%lu", (unsigned long)h->lease);
			grid_cell(g, GRID_PLAIN, "%s",
				  output_age(entry_age(h->since_ns), age, sizeof(age)));
			grid_cell(g, GRID_WARN, "%s",
				  h->suspect ? "its socket has closed, its process lives" : "");
		}
	r = grid_print(g, ctl->colour, stdout);
	grid_free(g);
	return r;
}

static int print_names(struct gpushm_stat *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (list[i]->name[0])
			puts(list[i]->name);
	return 0;
}

static void print_json(struct json *j, struct gpushm_stat *const *list, size_t n, bool holders)
{
	json_open(j, NULL, '[');
	for (size_t i = 0; i < n; i++)
		entry_json(j, NULL, list[i], holders);
	json_close(j, ']');
}

static int show(const struct ctl *ctl, const struct options *o, struct gpushm_stat *stats, size_t n)
{
	_cleanup_(free_ptr) struct gpushm_stat **list = calloc(n + 1, sizeof(struct gpushm_stat *));
	struct json j;

	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		list[i] = &stats[i];
	qsort(list, n, sizeof(struct gpushm_stat *), by_name);
	if (o->names)
		return print_names(list, n);
	if (ctl_json(ctl, &j)) {
		print_json(&j, list, n, o->holders);
		return 0;
	}
	return (o->holders ? print_holders : print_buffers)(ctl, list, n);
}

static int run(struct ctl *ctl, const void *options, size_t n_words, char **words)
{
	const struct options *o = options;
	struct gpushm_stat *stats = NULL;
	size_t n;
	int r = ctl_connect(ctl);

	if (r)
		return r;
	r = gpushm_list(ctl->connection, n_words ? words[0] : NULL, o->holders ? GPUSHM_HOLDERS : 0,
			&stats, &n);
	if (r < 0)
		return ctl_refused(r);
	r = show(ctl, o, stats, n);
	gpushm_stat_free(stats, n);
	return r < 0 ? ctl_error(CTL_FAILED, "out of memory") : CTL_OK;
}

const struct command command_ls = {
	.name = "ls",
	.synopsis = "[--holders] [PREFIX]",
	.about = "list the buffers whose names start with PREFIX",
	.args =
		(const struct arg[]){
			{ "holders", ARG_FLAG, 'H', NULL,
			  "list the processes that hold them, a line each",
			  offsetof(struct options, holders) },
			{ "names-only", ARG_FLAG, 0, NULL, NULL, offsetof(struct options, names) },
			{ .name = NULL },
		},
	.options_size = sizeof(struct options),
	.max_words = 1,
	.run = run,
};
