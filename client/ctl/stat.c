/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl stat`: all that the daemon tells of one buffer. Its arrays are in a table that only
 * who opens the buffer is given, so --arrays attaches to it for a moment, as a reader.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/entry.h"
#include "client/ctl/grid.h"
#include "client/ctl/output.h"
#include "proto/base/own.h"

#include <string.h>

struct options {
	bool arrays;
	uint64_t timeout;
};

static void add(struct grid *g, const char *key, const char *value)
{
	grid_cell(g, GRID_BOLD, "%s", key);
	grid_cell(g, GRID_PLAIN, "%s", value);
}

static void add_time(struct grid *g, const char *key, uint64_t ns)
{
	char stamp[40], age[24];

	if (!ns)
		return;
	grid_cell(g, GRID_BOLD, "%s", key);
	grid_cell(g, GRID_PLAIN, "%s (%s ago)", output_time(ns, stamp, sizeof(stamp)),
		  output_age(entry_age(ns), age, sizeof(age)));
}

static void add_death(struct grid *g, const struct gpushm_stat *s)
{
	char stamp[40], age[24];

	grid_cell(g, GRID_BOLD, "dirty");
	grid_cell(g, GRID_BAD, "%d %s (%s) died while it held it for writing: %s (%s ago)",
		  s->dirty_pid, s->dirty_command, entry_user(s->dirty_uid),
		  output_time(s->dirty_ns, stamp, sizeof(stamp)),
		  output_age(entry_age(s->dirty_ns), age, sizeof(age)));
}

static void add_facts(struct grid *g, const struct ctl *ctl, const struct gpushm_stat *s)
{
	add(g, "name", s->name);
	grid_cell(g, GRID_BOLD, "id");
	grid_cell(g, GRID_PLAIN, "%lu", (unsigned long)s->id);
	grid_cell(g, GRID_BOLD, "pool");
	grid_cell(g, GRID_PLAIN, "%s (%s)", s->pool, entry_kind(s->kind));
	grid_cell(g, GRID_BOLD, "state");
	grid_cell(g, entry_state_style(s), "%s%s%s", entry_state(s->state),
		  s->transient ? ", transient" : "", s->dirty ? ", dirty" : "");
	if (s->dirty)
		add_death(g, s);
	grid_cell(g, GRID_BOLD, "size");
	grid_cell(g, GRID_PLAIN, "%s (%s allocated)", ctl_size(ctl, s->bytes),
		  ctl_size(ctl, s->allocated_bytes));
	grid_cell(g, GRID_BOLD, "owner");
	grid_cell(g, GRID_PLAIN, "%s:%s, mode %04o", entry_user(s->uid), entry_group(s->gid),
		  s->mode);
	add_time(g, "created", s->created_ns);
	add_time(g, "published", s->published_ns);
	grid_cell(g, GRID_BOLD, "arrays");
	grid_cell(g, GRID_PLAIN, "%u, layout %016lx", s->arrays, (unsigned long)s->digest);
	grid_cell(g, GRID_BOLD, "held by");
	grid_cell(g, GRID_PLAIN, "%u readers, %u writers, %u of them ending", s->readers,
		  s->writers, s->suspects);
}

static void add_holders(struct grid *g, const struct gpushm_stat *s)
{
	char age[24];

	for (size_t i = 0; i < s->n_holders; i++) {
		const struct gpushm_holder *h = &s->holders[i];

		grid_cell(g, GRID_BOLD, "%s", i ? "" : "holders");
		grid_cell(g, h->suspect ? GRID_WARN : GRID_PLAIN,
			  "%d %s (%s): lease %lu, %s, for %s%s", h->pid, h->command,
			  entry_user(h->uid), (unsigned long)h->lease, entry_access(h->access),
			  output_age(entry_age(h->since_ns), age, sizeof(age)),
			  h->suspect ? "; its socket has closed" : "");
	}
}

static void add_attrs(struct grid *g, const struct gpushm_stat *s)
{
	for (size_t i = 0; i < s->n_attrs; i++) {
		const struct gpushm_attr *a = &s->attrs[i];

		grid_cell(g, GRID_BOLD, "%s", i ? "" : "attributes");
		if (memchr(a->value, '\0', a->size))
			grid_cell(g, GRID_PLAIN, "%s: %zu bytes", a->key, a->size);
		else
			grid_cell(g, GRID_PLAIN, "%s = %.*s", a->key, (int)a->size,
				  (const char *)a->value);
	}
}

static int print_facts(const struct ctl *ctl, const struct gpushm_stat *s)
{
	struct grid *g = grid_new("");
	int r;

	if (!g)
		return -ENOMEM;
	add_facts(g, ctl, s);
	add_holders(g, s);
	add_attrs(g, s);
	r = grid_print(g, ctl->colour, stdout);
	grid_free(g);
	return r;
}

static void array_cells(struct grid *g, const struct ctl *ctl, const struct gpushm_array *a)
{
	char type[64] = "?", shape[512];

	gpushm_dtype_format(gpushm_array_dtype(a), type, sizeof(type));
	grid_cell(g, GRID_PLAIN, "%s", gpushm_array_name(a)[0] ? gpushm_array_name(a) : "\"\"");
	grid_cell(g, GRID_PLAIN, "%s", type);
	grid_cell(g, GRID_PLAIN, "%s", entry_shape(a, shape, sizeof(shape)));
	grid_cell(g, GRID_PLAIN, "%s",
		  gpushm_array_is_c_contiguous(a)   ? "C"
		  : gpushm_array_is_f_contiguous(a) ? "F"
						    : "strided");
	grid_cell(g, GRID_PLAIN, "%s", ctl_size(ctl, gpushm_array_nbytes(a)));
	grid_cell(g, GRID_PLAIN, "%lu", (unsigned long)gpushm_array_offset(a));
}

static void array_json(struct json *j, const struct gpushm_array *a)
{
	char type[64] = "?";
	int ndim = gpushm_array_ndim(a);

	gpushm_dtype_format(gpushm_array_dtype(a), type, sizeof(type));
	json_open(j, NULL, '{');
	json_string(j, "name", gpushm_array_name(a));
	json_string(j, "dtype", type);
	json_string(j, "descr", gpushm_array_descr(a));
	json_open(j, "shape", '[');
	for (int i = 0; i < ndim; i++)
		json_int(j, NULL, gpushm_array_shape(a)[i]);
	json_close(j, ']');
	json_open(j, "strides", '[');
	for (int i = 0; i < ndim; i++)
		json_int(j, NULL, gpushm_array_strides(a)[i]);
	json_close(j, ']');
	json_uint(j, "offset", gpushm_array_offset(a));
	json_uint(j, "bytes", gpushm_array_nbytes(a));
	json_close(j, '}');
}

/* Each array into the grid or the JSON, whichever is given. 0 or -errno of the library. */
static int each_array(struct gpushm_buffer *b, const struct ctl *ctl, struct grid *g,
		      struct json *j)
{
	for (size_t i = 0; i < gpushm_buffer_arrays(b); i++) {
		struct gpushm_array *a = NULL;
		int r = gpushm_array_at(b, i, &a);

		if (r < 0)
			return r;
		if (g)
			array_cells(g, ctl, a);
		else
			array_json(j, a);
		gpushm_array_free(a);
	}
	return 0;
}

static int print_arrays(const struct ctl *ctl, struct gpushm_buffer *b)
{
	struct grid *g = grid_new("ARRAY DTYPE SHAPE ORDER >SIZE >OFFSET");
	int r;

	if (!g)
		return -ENOMEM;
	r = each_array(b, ctl, g, NULL);
	putchar('\n');
	if (r == 0)
		r = grid_print(g, ctl->colour, stdout);
	grid_free(g);
	return r;
}

static int show(const struct ctl *ctl, const struct gpushm_stat *s, struct gpushm_buffer *b)
{
	struct json j;
	int r;

	if (!ctl_json(ctl, &j)) {
		r = print_facts(ctl, s);
		return r == 0 && b ? print_arrays(ctl, b) : r;
	}
	if (!b) {
		entry_json(&j, NULL, s, true);
		return 0;
	}
	json_open(&j, NULL, '{');
	entry_json(&j, "buffer", s, true);
	json_open(&j, "arrays", '[');
	r = each_array(b, ctl, NULL, &j);
	json_close(&j, ']');
	json_close(&j, '}');
	return r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	struct gpushm_buffer *b = NULL;
	struct gpushm_stat *s = NULL;
	int r = ctl_connect(ctl);

	if (r)
		return r;
	/* Holders are told to the owner and admins; a stranger is refused only their list. */
	r = gpushm_stat(ctl->connection, words[0], o->timeout, GPUSHM_HOLDERS, &s);
	if (r < 0)
		return ctl_refused(r);
	if (o->arrays)
		r = gpushm_open(ctl->connection, words[0], GPUSHM_READ, 0, NULL, &b);
	if (r == 0)
		r = show(ctl, s, b);
	r = r < 0 ? ctl_refused(r) : CTL_OK;
	gpushm_close(b);
	gpushm_stat_free(s, 1);
	return r;
}

const struct command command_stat = {
	.name = "stat",
	.synopsis = "[--arrays] [--timeout=TIME] NAME",
	.about = "show one buffer",
	.args =
		(const struct arg[]){
			{ "arrays", ARG_FLAG, 'a', NULL,
			  "also list its arrays (opens it for reading)",
			  offsetof(struct options, arrays) },
			{ "timeout", ARG_TIME, 't', "TIME", "wait so long for it to be published",
			  offsetof(struct options, timeout) },
			{ .name = NULL },
		},
	.options_size = sizeof(struct options),
	.min_words = 1,
	.max_words = 1,
	.run = run,
};
