/* SPDX-License-Identifier: MIT
 *
 * From options to a published buffer. A buffer that is being filled belongs to this process alone
 * and ends with it, so a failure between new_buffer_create() and new_buffer_finish() needs no
 * clean-up.
 */
#include "client/ctl/new_buffer.h"

#include "proto/base/number.h"
#include "proto/base/own.h"
#include "proto/words.h"

#include <grp.h>
#include <string.h>

const struct arg new_buffer_args[] = {
	ARG(new_buffer, pool, "pool", ARG_TEXT, 'p', "POOL",
	    "take memory from this pool (gpushmctl pools)"),
	ARG(new_buffer, mode, "mode", ARG_MODE, 'm', "OCTAL",
	    "who may open it, as for a file (0600)"),
	ARG(new_buffer, group, "group", ARG_TEXT, 'g', "GROUP", "its group"),
	ARG(new_buffer, attrs, "attr", ARG_LIST, 'a', "KEY=VALUE",
	    "add a user attribute; may be given several times"),
	ARG(new_buffer, wait, "wait", ARG_TIME, 'w', "TIME",
	    "if the pool is full, wait up to this time for space"),
	FLAG(new_buffer, transient, "transient", 0,
	     "unlink it with its last lease; this command keeps one until its input ends"),
	{ .name = NULL },
};

const struct arg new_buffer_state_args[] = {
	FLAG(new_buffer, shared, "shared", 0, "publish it for reading and writing"),
	FLAG(new_buffer, sealed, "sealed", 0, "publish it for reading only, for ever"),
	{ .name = NULL },
};

/* Copies the keys, because they end at the "="; values are borrowed from argv. */
static int split_attrs(const struct arg_list *list, struct gpushm_attr *attrs)
{
	for (size_t i = 0; i < list->n; i++) {
		const char *equals = strchr(list->v[i], '=');

		if (!equals || equals == list->v[i])
			return ctl_error(CTL_USAGE, "--attr: \"%s\" is not KEY=VALUE", list->v[i]);
		attrs[i].struct_size = sizeof(*attrs);
		attrs[i].key = strndup(list->v[i], (size_t)(equals - list->v[i]));
		if (!attrs[i].key)
			return ctl_error(CTL_FAILED, "out of memory");
		attrs[i].value = equals + 1;
		attrs[i].size = strlen(equals + 1);
	}
	return CTL_OK;
}

static int find_group(const char *text, gid_t *ret)
{
	const struct group *g = getgrnam(text);
	uint64_t gid;

	if (!g && !number_read(text, UINT32_MAX - 1, &gid))
		return ctl_error(CTL_USAGE, "--group: there is no group \"%s\"", text);
	*ret = g ? g->gr_gid : (gid_t)gid;
	return CTL_OK;
}

int new_buffer_options(const struct new_buffer *nb, struct new_buffer_options *ret)
{
	int r;

	*ret = (struct new_buffer_options){
		.options = { .struct_size = sizeof(ret->options),
			     .pool = nb->pool,
			     .mode = nb->mode,
			     .wait_ms = nb->wait == NEW_BUFFER_NO_WAIT ? 0 : nb->wait,
			     .attrs = ret->attrs,
			     .n_attrs = nb->attrs.n,
			     .flags = (nb->transient ? GPUSHM_TRANSIENT : 0) |
				      (nb->group ? GPUSHM_SET_GID : 0) },
	};
	r = nb->group ? find_group(nb->group, &ret->options.gid) : CTL_OK;
	return r ? r : split_attrs(&nb->attrs, ret->attrs);
}

void new_buffer_options_free(struct new_buffer_options *o)
{
	for (size_t i = 0; i < o->options.n_attrs; i++)
		free((char *)o->attrs[i].key);
	o->options.n_attrs = 0;
}

int new_buffer_create(struct ctl *ctl, const struct new_buffer *nb, const char *name,
		      struct gpushm_array_spec *specs, size_t n, struct gpushm_buffer **ret)
{
	struct new_buffer_options o;
	int r = ctl_connect(ctl);

	if (r)
		return r;
	if (nb->shared && nb->sealed)
		return ctl_error(CTL_USAGE, "--shared and --sealed: choose one");
	r = new_buffer_options(nb, &o);
	if (r == CTL_OK)
		r = ctl_result(
			gpushm_create_arrays(ctl->connection, name, specs, n, &o.options, ret));
	new_buffer_options_free(&o);
	return r;
}

static void report(const struct ctl *ctl, struct gpushm_buffer *b)
{
	const char *kind = kind_word(gpushm_buffer_kind(b));
	const char *state = state_word(gpushm_buffer_state(b));
	size_t n = gpushm_buffer_arrays(b);
	struct json j;

	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "name", gpushm_buffer_name(b));
		json_id(&j, "id", gpushm_buffer_id(b));
		json_string(&j, "kind", kind);
		json_string(&j, "state", state);
		json_uint(&j, "bytes", gpushm_buffer_bytes(b));
		json_uint(&j, "arrays", n);
		json_hex(&j, "digest", gpushm_buffer_digest(b));
		json_close(&j, '}');
	} else if (!ctl->quiet) {
		output_line(stdout, "%s: %s, %zu %s, %s, %s memory", gpushm_buffer_name(b), state,
			    OUTPUT_COUNT(n, "array"), ctl_size(ctl, gpushm_buffer_bytes(b)).text,
			    kind);
	}
	/* A script may wait for this line while --transient keeps the command. */
	output_flush();
}

int new_buffer_finish(struct ctl *ctl, const struct new_buffer *nb, struct gpushm_buffer *b,
		      enum gpushm_state state)
{
	int r;

	if (ctl_interrupted())
		return ctl_error(CTL_FAILED, "interrupted");
	if (nb->shared || nb->sealed)
		state = nb->shared ? GPUSHM_SHARED : GPUSHM_SEALED;
	r = ctl_result(gpushm_publish(b, state));
	if (r)
		return r;
	report(ctl, b);
	return new_buffer_keep(ctl, nb, b);
}

int new_buffer_keep(struct ctl *ctl, const struct new_buffer *nb, struct gpushm_buffer *b)
{
	if (gpushm_buffer_kept(b) == -ENOSPC)
		fprintf(stderr, "gpushmctl: warning: %s\n", gpushm_error());
	return nb->transient ? hold_until_eof(ctl) : CTL_OK;
}
