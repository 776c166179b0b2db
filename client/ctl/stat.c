/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl stat`: shows everything about one buffer. The daemon gives the table of arrays only to
 * a process that opens the buffer, so --arrays opens it for reading for a moment; so does a model,
 * whose types are counted. If it can't be opened (the GPU is hidden), the rest is shown.
 */
#include "client/ctl/arrays.h"
#include "client/ctl/ctl.h"
#include "client/ctl/model.h"
#include "proto/base/own.h"
#include "proto/base/utf8.h"
#include "proto/words.h"

#include <string.h>

struct options {
	bool arrays, names, wide;
	uint64_t timeout;
};

/* What is shown. */
struct view {
	struct gpushm_stat *stat;     /* owned */
	struct gpushm_buffer *buffer; /* owned; NULL: it is not open */
	bool arrays;		      /* --arrays */
	bool counted;		      /* model is known */
	struct model_summary model;   /* owned */
	char why[512];		      /* a model is not counted; "" */
};

enum table_style stat_style(const struct gpushm_stat *s)
{
	return s->dirty ? TABLE_BAD : s->state == GPUSHM_FILLING ? TABLE_WARN : TABLE_GOOD;
}

/* ---- JSON ---- */

static void holders_json(struct json *j, const struct gpushm_stat *s)
{
	json_open(j, "holders", '[');
	for (size_t i = 0; i < s->n_holders; i++) {
		const struct gpushm_holder *h = &s->holders[i];

		json_open(j, NULL, '{');
		json_id(j, "lease", h->lease);
		json_int(j, "pid", h->pid);
		json_uint(j, "uid", h->uid);
		json_string(j, "user", output_user(h->uid));
		json_string(j, "command", h->command);
		json_string(j, "access", access_word(h->access));
		json_bool(j, "suspect", h->suspect);
		json_bool(j, "ending", h->suspect);
		json_time(j, "since", h->since_ns);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void attrs_json(struct json *j, const struct gpushm_stat *s)
{
	json_open(j, "attrs", '{');
	for (size_t i = 0; i < s->n_attrs; i++) {
		const struct gpushm_attr *a = &s->attrs[i];

		if (utf8_valid(a->value, a->size)) {
			json_bytes(j, a->key, a->value, a->size);
			continue;
		}
		json_open(j, a->key, '{');
		json_base64(j, "base64", a->value, a->size);
		json_close(j, '}');
	}
	json_close(j, '}');
}

static void death_json(struct json *j, const struct gpushm_stat *s)
{
	json_open(j, "dirty_by", '{');
	json_int(j, "pid", s->dirty_pid);
	json_uint(j, "uid", s->dirty_uid);
	json_string(j, "user", output_user(s->dirty_uid));
	json_string(j, "command", s->dirty_command);
	json_time(j, "since", s->dirty_ns);
	json_close(j, '}');
}

static void json_attr(struct json *j, const char *key, const struct gpushm_attr *a)
{
	if (a)
		json_bytes(j, key, a->value, a->size);
	else
		json_null(j, key);
}

/* m: NULL if this process can't open the buffer. */
static void model_json(struct json *j, const struct gpushm_stat *s, const struct model_summary *m)
{
	json_open(j, "model", '{');
	json_uint(j, "tensors", m ? m->tensors : s->arrays);
	json_attr(j, "digest", model_attr(s, "gpushm.content"));
	json_attr(j, "source", model_attr(s, "gpushm.source"));
	if (!m) {
		json_null(j, "bytes");
		json_null(j, "dtypes");
		json_close(j, '}');
		return;
	}
	json_uint(j, "bytes", m->bytes);
	json_open(j, "dtypes", '[');
	for (size_t i = 0; i < m->n_dtypes; i++) {
		json_open(j, NULL, '{');
		json_string(j, "dtype", output_dtype(m->dtypes[i].dtype).text);
		json_uint(j, "tensors", m->dtypes[i].tensors);
		json_uint(j, "bytes", m->dtypes[i].bytes);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_close(j, '}');
}

void stat_json(struct json *j, const char *key, const struct gpushm_stat *s, bool with_holders,
	       const struct model_summary *model)
{
	char mode[16];

	snprintf(mode, sizeof(mode), "%04o", s->mode);
	json_open(j, key, '{');
	json_id(j, "id", s->id);
	json_string(j, "name", s->name[0] ? s->name : NULL);
	json_string(j, "pool", s->pool);
	json_string(j, "kind", kind_word(s->kind));
	json_string(j, "state", state_word(s->state));
	json_uint(j, "bytes", s->bytes);
	json_uint(j, "allocated_bytes", s->allocated_bytes);
	json_uint(j, "uid", s->uid);
	json_string(j, "user", output_user(s->uid));
	json_uint(j, "gid", s->gid);
	json_string(j, "group", output_group(s->gid));
	json_string(j, "mode", mode);
	json_bool(j, "transient", s->transient);
	json_bool(j, "dirty", s->dirty);
	if (s->dirty)
		death_json(j, s);
	json_bool(j, "kept", s->kept);
	json_time(j, "created", s->created_ns);
	json_time(j, "published", s->published_ns);
	json_uint(j, "arrays", s->arrays);
	json_hex(j, "digest", s->digest);
	json_uint(j, "readers", s->readers);
	json_uint(j, "writers", s->writers);
	json_uint(j, "suspects", s->suspects);
	json_uint(j, "ending", s->suspects);
	if (model_is(s))
		model_json(j, s, model);
	if (s->n_attrs)
		attrs_json(j, s);
	if (with_holders)
		holders_json(j, s);
	json_close(j, '}');
}

/* ---- text ---- */

static void add_time(struct table *t, const char *key, uint64_t ns)
{
	if (ns)
		table_fact(t, key, TABLE_PLAIN, "%s (%s ago)", output_time(ns).text,
			   output_since(ns).text);
}

static void add_facts(struct table *t, const struct ctl *ctl, const struct gpushm_stat *s)
{
	table_fact(t, "name", TABLE_PLAIN, "%s", s->name);
	table_fact(t, "id", TABLE_PLAIN, "%lu", (unsigned long)s->id);
	table_fact(t, "pool", TABLE_PLAIN, "%s (%s)", s->pool, kind_word(s->kind));
	table_fact(t, "state", stat_style(s), "%s%s%s", state_word(s->state),
		   s->transient ? ", transient" : "", s->dirty ? ", dirty" : "");
	if (s->dirty)
		table_fact(t, "dirty", TABLE_BAD,
			   "%d %s (%s) died while it held it for writing: %s (%s ago)",
			   s->dirty_pid, s->dirty_command, output_user(s->dirty_uid),
			   output_time(s->dirty_ns).text, output_since(s->dirty_ns).text);
	table_fact(t, "size", TABLE_PLAIN, "%s (%s allocated)", ctl_size(ctl, s->bytes).text,
		   ctl_size(ctl, s->allocated_bytes).text);
	table_fact(t, "owner", TABLE_PLAIN, "%s:%s (%u:%u), mode %s", output_user(s->uid),
		   output_group(s->gid), s->uid, s->gid, output_mode(s->mode).text);
	add_time(t, "created", s->created_ns);
	add_time(t, "published", s->published_ns);
	if (s->published_ns)
		table_fact(t, "kept", TABLE_PLAIN, s->kept ? "over the daemon's death" : "no");
	table_fact(t, "arrays", TABLE_PLAIN, "%u, layout %016lx", s->arrays,
		   (unsigned long)s->digest);
	table_fact(t, "held by", TABLE_PLAIN,
		   s->suspects ? "%u %s, %u %s, %u of them ending" : "%u %s, %u %s",
		   OUTPUT_COUNT(s->readers, "reader"), OUTPUT_COUNT(s->writers, "writer"),
		   s->suspects);
}

static void add_holders(struct table *t, const struct gpushm_stat *s)
{
	for (size_t i = 0; i < s->n_holders; i++) {
		const struct gpushm_holder *h = &s->holders[i];

		table_fact(t, i ? "" : "holders", h->suspect ? TABLE_WARN : TABLE_PLAIN,
			   "%d %s (%s): lease %lu, %s, for %s%s", h->pid, h->command,
			   output_user(h->uid), (unsigned long)h->lease, access_word(h->access),
			   output_since(h->since_ns).text,
			   h->suspect ? "; ending: its socket is closed, its process lives" : "");
	}
}

static void add_text(struct table *t, const char *key, const struct gpushm_attr *a)
{
	if (a)
		table_fact(t, key, TABLE_PLAIN, "%.*s", (int)a->size, (const char *)a->value);
}

static void add_model(struct table *t, const struct ctl *ctl, const struct view *v)
{
	const struct model_summary *m = &v->model;

	if (!model_is(v->stat))
		return;
	if (v->counted)
		table_fact(t, "model", TABLE_PLAIN, "%zu %s, %s",
			   OUTPUT_COUNT(m->tensors, "tensor"), ctl_size(ctl, m->bytes).text);
	else
		table_fact(t, "model", TABLE_PLAIN, "its types are not shown: %s", v->why);
	for (size_t i = 0; i < m->n_dtypes; i++)
		table_fact(t, i ? "" : "types", TABLE_PLAIN, "%s: %zu %s, %s",
			   output_dtype(m->dtypes[i].dtype).text,
			   OUTPUT_COUNT(m->dtypes[i].tensors, "tensor"),
			   ctl_size(ctl, m->dtypes[i].bytes).text);
	add_text(t, "contents", model_attr(v->stat, "gpushm.content"));
	add_text(t, "source", model_attr(v->stat, "gpushm.source"));
}

/* What add_model() has shown is left out. */
static void add_attrs(struct table *t, const struct gpushm_stat *s)
{
	const char *key = "attributes";

	for (size_t i = 0; i < s->n_attrs; i++) {
		const struct gpushm_attr *a = &s->attrs[i];

		if (a == model_attr(s, "gpushm.content") || a == model_attr(s, "gpushm.source"))
			continue;
		if (memchr(a->value, '\0', a->size))
			table_fact(t, key, TABLE_PLAIN, "%s: %zu %s", a->key,
				   OUTPUT_COUNT(a->size, "byte"));
		else
			table_fact(t, key, TABLE_PLAIN, "%s = %.*s", a->key, (int)a->size,
				   (const char *)a->value);
		key = "";
	}
}

static int show_text(const struct ctl *ctl, const struct view *v)
{
	struct table *t = table_new("");
	int r;

	add_facts(t, ctl, v->stat);
	add_model(t, ctl, v);
	add_holders(t, v->stat);
	add_attrs(t, v->stat);
	r = ctl_print(ctl, t);
	if (r || !v->arrays)
		return r;
	putchar('\n');
	t = table_new("~ARRAY " ARRAYS_COLUMNS);
	r = arrays_table(ctl, v->buffer, NULL, t);
	return r ? (table_free(t), r) : ctl_print(ctl, t);
}

static int show_json(struct json *j, const struct view *v)
{
	const struct model_summary *m = v->counted ? &v->model : NULL;
	int r;

	if (!v->arrays) {
		stat_json(j, NULL, v->stat, true, m);
		return CTL_OK;
	}
	json_open(j, NULL, '{');
	stat_json(j, "buffer", v->stat, true, m);
	r = arrays_json(j, v->buffer);
	json_close(j, '}');
	return r;
}

/* The name may mean another buffer by now. */
static void count_model(struct view *v)
{
	int r = v->buffer ? model_summarize(v->buffer, &v->model) : -ENOENT;

	v->counted = r == 0 && gpushm_buffer_id(v->buffer) == v->stat->id;
	if (!v->counted)
		snprintf(v->why, sizeof(v->why), "%s",
			 r < 0 ? gpushm_error() : "its name means another buffer now");
}

static int show(const struct ctl *ctl, const struct options *o, struct view *v)
{
	struct json j;

	if (o->names)
		return arrays_names(v->buffer);
	if (model_is(v->stat))
		count_model(v);
	return ctl_json(ctl, &j) ? show_json(&j, v) : show_text(ctl, v);
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	struct view v = { .arrays = o->arrays };
	/* Another user's buffer has no holders in the reply, unless the caller is an admin. */
	int r = gpushm_stat(ctl->connection, words[0], o->timeout, GPUSHM_HOLDERS, &v.stat);
	bool needed = o->arrays || o->names;

	if (r < 0)
		return ctl_refused(r);
	ctl->wide = o->wide;
	if (needed || model_is(v.stat))
		r = gpushm_open(ctl->connection, words[0], GPUSHM_READ, 0, NULL, &v.buffer);
	r = r < 0 && needed ? ctl_refused(r) : show(ctl, o, &v);
	model_summary_free(&v.model);
	gpushm_close(v.buffer);
	gpushm_stat_free(v.stat, 1);
	return r;
}

const struct command command_stat = {
	.name = "stat",
	.synopsis = "[--arrays] [--timeout=TIME] [--wide] NAME",
	.about = "show one buffer",
	.args = ARGS({ "arrays", ARG_FLAG, 'a', NULL,
		       "also list its arrays; opens it for reading for a moment",
		       offsetof(struct options, arrays) },
		     ARG_TIMEOUT(struct options), ARG_WIDE(struct options),
		     { "names-only", ARG_FLAG, 0, NULL, NULL, offsetof(struct options, names) }),
	.options_size = sizeof(struct options),
	.min_words = 1,
	.max_words = 1,
	.run = run,
};
