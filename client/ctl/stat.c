/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl stat`: shows everything about one buffer. The daemon gives the table of arrays only to
 * a process that opens the buffer, so --arrays opens it for reading for a moment. What is in a
 * model its attributes say, so that showing it starts no GPU's driver.
 */
#include "client/ctl/arrays.h"
#include "client/ctl/ctl.h"
#include "client/ctl/model/model.h"
#include "client/ctl/record_json.h"
#include "client/ctl/stream/stream_view.h"
#include "proto/base/utf8.h"
#include "proto/words.h"

#include <string.h>

struct options {
	bool arrays, names, wide;
	uint64_t timeout;
};

enum table_style stat_style(const struct gpushm_stat *s)
{
	return s->dirty ? TABLE_BAD : s->state == GPUSHM_FILLING ? TABLE_WARN : TABLE_GOOD;
}

struct stat_state stat_state(const struct gpushm_stat *s)
{
	char away[40] = "";
	struct stat_state t;

	if (s->away)
		snprintf(away, sizeof(away), ", away %" PRIu64 "/%u", s->away,
			 s->readers + s->writers);
	snprintf(t.text, sizeof(t.text), "%s%s%s%s",
		 s->residence == GPUSHM_IN_TWIN	    ? "evicted (twin)"
		 : s->residence == GPUSHM_IN_SOURCE ? "evicted (source)"
						    : state_word(s->state),
		 s->stream ? ", stream" : "", away, s->wanted ? ", wanted" : "");
	return t;
}

/* ---- JSON ---- */

static void holders_json(struct json *j, const struct gpushm_stat *s)
{
	json_open(j, "holders", '[');
	for (size_t i = 0; i < s->n_holders; i++) {
		const struct gpushm_holder *h = s->holders[i];

		json_open(j, NULL, '{');
		json_record(j, json_holder, h, false);
		json_bool(j, "ending", h->suspect);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void attrs_json(struct json *j, const struct gpushm_stat *s)
{
	json_open(j, "attrs", '{');
	for (size_t i = 0; i < s->n_attrs; i++) {
		const struct gpushm_attr *a = s->attrs[i];

		if (utf8_valid(a->value, a->size))
			json_bytes(j, a->key, a->value, a->size);
		else
			json_base64(j, a->key, a->value, a->size);
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

/* The types that its load has counted. False: it has not. */
static bool summarize(const struct gpushm_stat *s, struct model_summary *ret)
{
	const struct gpushm_attr *a = model_attr(s, "gpushm.types");

	return a && model_summarize(a->value, a->size, ret);
}

static void dtypes_json(struct json *j, const struct model_summary *m)
{
	json_open(j, "dtypes", '[');
	for (size_t i = 0; i < m->n_dtypes; i++) {
		json_open(j, NULL, '{');
		json_string(j, "dtype", m->dtypes[i].name);
		json_uint(j, "tensors", m->dtypes[i].tensors);
		json_uint(j, "bytes", m->dtypes[i].bytes);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void model_json(struct json *j, const struct gpushm_stat *s)
{
	struct model_summary m;
	bool known = summarize(s, &m);

	json_open(j, "model", '{');
	json_uint(j, "tensors", known ? m.tensors : s->arrays);
	json_attr(j, "digest", model_attr(s, "gpushm.content"));
	json_attr(j, "source", model_attr(s, "gpushm.path"));
	if (known) {
		json_uint(j, "bytes", m.bytes);
		dtypes_json(j, &m);
	} else {
		json_null(j, "bytes");
		json_null(j, "dtypes");
	}
	json_close(j, '}');
}

void stat_json_members(struct json *j, const struct gpushm_stat *s, bool with_holders)
{
	json_record(j, json_stat, s, false);
	json_uint(j, "ending", s->suspects);
	if (s->dirty)
		death_json(j, s);
	if (model_is(s))
		model_json(j, s);
	if (s->n_attrs)
		attrs_json(j, s);
	if (with_holders)
		holders_json(j, s);
}

void stat_json(struct json *j, const char *key, const struct gpushm_stat *s, bool with_holders)
{
	json_open(j, key, '{');
	stat_json_members(j, s, with_holders);
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
	table_fact(t, "state", stat_style(s), "%s%s%s", stat_state(s).text,
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
		const struct gpushm_holder *h = s->holders[i];

		table_fact(t, i ? "" : "holders", h->suspect ? TABLE_WARN : TABLE_PLAIN,
			   "%d %s (%s): lease %lu, %s, for %s%s%s", h->pid, h->command,
			   output_user(h->uid), (unsigned long)h->lease, access_word(h->access),
			   output_since(h->since_ns).text,
			   h->parked ? "; parked"
			   : h->away ? "; away"
				     : "",
			   h->suspect ? "; ending: its socket is closed, its process lives" : "");
	}
}

static void add_text(struct table *t, const char *key, const struct gpushm_attr *a)
{
	if (a)
		table_fact(t, key, TABLE_PLAIN, "%.*s", (int)a->size, (const char *)a->value);
}

static void add_types(struct table *t, const struct ctl *ctl, const struct model_summary *m)
{
	table_fact(t, "model", TABLE_PLAIN, "%" PRIu64 " %s, %s",
		   OUTPUT_COUNT(m->tensors, "tensor"), ctl_size(ctl, m->bytes).text);
	for (size_t i = 0; i < m->n_dtypes; i++)
		table_fact(t, i ? "" : "types", TABLE_PLAIN, "%s: %" PRIu64 " %s, %s",
			   m->dtypes[i].name, OUTPUT_COUNT(m->dtypes[i].tensors, "tensor"),
			   ctl_size(ctl, m->dtypes[i].bytes).text);
}

static void add_model(struct table *t, const struct ctl *ctl, const struct gpushm_stat *s)
{
	struct model_summary m;

	if (!model_is(s))
		return;
	if (summarize(s, &m))
		add_types(t, ctl, &m);
	add_text(t, "contents", model_attr(s, "gpushm.content"));
	add_text(t, "source", model_attr(s, "gpushm.path"));
}

/* What add_model() has shown is left out. */
static void add_attrs(struct table *t, const struct gpushm_stat *s)
{
	const char *key = "attributes";
	bool model = model_is(s);

	for (size_t i = 0; i < s->n_attrs; i++) {
		const struct gpushm_attr *a = s->attrs[i];

		if (a == model_attr(s, "gpushm.content") || a == model_attr(s, "gpushm.path") ||
		    (model && a == model_attr(s, "gpushm.types")))
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

/* What is shown: the buffer, its arrays, and what it is as a stream. */
struct shown {
	struct gpushm_stat *stat;     /* owned */
	struct gpushm_buffer *buffer; /* owned; NULL: without its arrays */
	struct stream_looks looks;    /* owned */
	struct stream_view stream;    /* stream.now is NULL: it is no stream */
};

static int show_text(const struct ctl *ctl, const struct shown *x)
{
	const struct gpushm_stat *s = x->stat;
	struct table *t = table_new("");
	int r;

	add_facts(t, ctl, s);
	if (x->stream.now)
		stream_add_facts(t, ctl, &x->stream);
	add_model(t, ctl, s);
	add_holders(t, s);
	add_attrs(t, s);
	r = ctl_print(ctl, t);
	if (r || !x->buffer)
		return r;
	putchar('\n');
	t = table_new("~ARRAY " ARRAYS_COLUMNS);
	r = arrays_table(ctl, x->buffer, NULL, t);
	return r ? (table_free(t), r) : ctl_print(ctl, t);
}

static void buffer_json(struct json *j, const char *key, const struct shown *x)
{
	json_open(j, key, '{');
	stat_json_members(j, x->stat, true);
	if (x->stream.now) {
		json_open(j, "stream_details", '{');
		stream_json_members(j, &x->stream);
		json_close(j, '}');
	}
	json_close(j, '}');
}

static int show(const struct ctl *ctl, const struct shown *x)
{
	struct json j;
	int r;

	if (!ctl_json(ctl, &j))
		return show_text(ctl, x);
	if (!x->buffer) {
		buffer_json(&j, NULL, x);
		return CTL_OK;
	}
	json_open(&j, NULL, '{');
	buffer_json(&j, "buffer", x);
	r = arrays_json(&j, x->buffer);
	json_close(&j, '}');
	return r;
}

/* Looks at the buffer as a stream. One that has ended meanwhile is shown as a buffer. */
static int look(struct ctl *ctl, struct shown *x)
{
	int r = stream_look(ctl, x->stat->name, STREAM_DELAY_MS, &x->looks);

	for (size_t i = 0; r == CTL_OK && i < x->looks.n; i++)
		if (x->looks.now[i]->buffer == x->stat->id)
			x->stream = stream_view_at(&x->looks, i);
	return r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	struct shown x = { 0 };
	/* Another user's buffer has no holders in the reply, unless the caller is an admin. */
	int r;

	ctl->wide = o->wide;
	r = gpushm_stat(ctl->connection, words[0], o->timeout, GPUSHM_HOLDERS, &x.stat);
	if (r < 0)
		return ctl_refused(r);
	if (o->arrays || o->names)
		r = arrays_open(ctl, words[0], &x.buffer);
	if (r == CTL_OK && x.stat->stream && !o->names)
		r = look(ctl, &x);
	if (r == CTL_OK)
		r = o->names ? arrays_names(x.buffer) : show(ctl, &x);
	stream_looks_done(&x.looks);
	gpushm_close(x.buffer);
	gpushm_free(x.stat);
	return r;
}

const struct command command_stat = {
	.name = "stat",
	.synopsis = "[--arrays] [--timeout=TIME] [--wide] NAME",
	.about = "show one buffer",
	OPTIONS(options,
		FLAG(options, arrays, "arrays", 'a',
		     "also list its arrays; opens it for reading for a moment"),
		ARG_TIMEOUT(options), ARG_WIDE(options),
		FLAG(options, names, "names-only", 0, NULL)),
	.words = { 1, 1 },
	.run = run,
};
