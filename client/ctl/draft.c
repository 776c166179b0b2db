/* SPDX-License-Identifier: MIT
 *
 * From options to a published buffer. A buffer that is being filled belongs to this process alone
 * and vanishes with it, so whatever fails between draft_create() and draft_finish() needs no
 * cleaning up. Only the process that created a buffer can publish it: that is why --hold stays,
 * and listens at a gate for `gpushmctl publish`.
 */
#include "client/ctl/draft.h"

#include "client/ctl/entry.h"
#include "client/ctl/gate.h"
#include "client/ctl/hold.h"
#include "proto/base/own.h"

#include <grp.h>
#include <string.h>

/* Keys are copied because they end at the "="; values are borrowed from argv. */
static int split_attrs(const struct arg_list *list, struct gpushm_attr *attrs)
{
	for (size_t i = 0; i < list->n; i++) {
		const char *equals = strchr(list->v[i], '=');

		if (!equals || equals == list->v[i])
			return ctl_error(CTL_USAGE, "--attr: \"%s\" is not KEY=VALUE", list->v[i]);
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
	char *end;
	unsigned long gid;

	if (g) {
		*ret = g->gr_gid;
		return CTL_OK;
	}
	gid = strtoul(text, &end, 10);
	if (!*text || *end || gid >= (gid_t)-1)
		return ctl_error(CTL_USAGE, "--group: there is no group \"%s\"", text);
	*ret = (gid_t)gid;
	return CTL_OK;
}

static int create(struct ctl *ctl, const struct gpushm_options *o, const char *name,
		  const struct gpushm_array_spec *specs, size_t n, uint64_t bytes,
		  struct gpushm_buffer **ret)
{
	struct gpushm_buffer *b = NULL;
	int r = gpushm_create(ctl->connection, name, bytes, o, &b);

	if (r < 0)
		return ctl_refused(r);
	r = n ? gpushm_describe(b, specs, n) : 0;
	if (r < 0) {
		r = ctl_refused(r);
		gpushm_close(b);
		return r;
	}
	*ret = b;
	return CTL_OK;
}

int draft_create(struct ctl *ctl, const struct draft *d, const char *name,
		 struct gpushm_array_spec *specs, size_t n, uint64_t bytes,
		 struct gpushm_buffer **ret)
{
	struct gpushm_attr attrs[ARG_LIST_MAX] = { 0 };
	struct gpushm_options o = { .struct_size = sizeof(o), .pool = d->pool, .mode = d->mode };
	uint64_t needed = 0;
	int r;

	if (d->shared && d->sealed)
		return ctl_error(CTL_USAGE, "--shared and --sealed: choose one");
	r = n ? gpushm_layout(specs, n, &needed) : 0;
	if (r < 0)
		return ctl_refused(r);
	if (needed > bytes)
		bytes = needed;
	/* Arrays without elements take no bytes, a buffer has one at least. */
	if (!bytes)
		bytes = 1;
	o.flags = (d->transient ? GPUSHM_TRANSIENT : 0) | (d->group ? GPUSHM_SET_GID : 0);
	o.attrs = attrs;
	o.wait_ms = d->wait;
	o.n_attrs = d->attrs.n;
	r = d->group ? find_group(d->group, &o.gid) : CTL_OK;
	if (r == CTL_OK)
		r = split_attrs(&d->attrs, attrs);
	if (r == CTL_OK)
		r = create(ctl, &o, name, specs, n, bytes, ret);
	for (size_t i = 0; i < d->attrs.n; i++)
		free((char *)attrs[i].key);
	return r;
}

static void report(const struct ctl *ctl, struct gpushm_buffer *b)
{
	struct json j;

	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "name", gpushm_buffer_name(b));
		json_id(&j, "id", gpushm_buffer_id(b));
		json_string(&j, "kind", entry_kind(gpushm_buffer_kind(b)));
		json_string(&j, "state", entry_state(gpushm_buffer_state(b)));
		json_uint(&j, "bytes", gpushm_buffer_bytes(b));
		json_uint(&j, "arrays", gpushm_buffer_arrays(b));
		json_hex(&j, "digest", gpushm_buffer_digest(b));
		json_close(&j, '}');
	} else if (!ctl->quiet) {
		size_t n = gpushm_buffer_arrays(b);

		printf("%s: %s, %zu array%s, %s, %s memory\n", gpushm_buffer_name(b),
		       entry_state(gpushm_buffer_state(b)), n, n == 1 ? "" : "s",
		       ctl_size(ctl, gpushm_buffer_bytes(b)), entry_kind(gpushm_buffer_kind(b)));
	}
	/* A script may wait for this line while we stay. */
	fflush(stdout);
}

int draft_finish(struct ctl *ctl, const struct draft *d, struct gpushm_buffer *b,
		 enum gpushm_state state)
{
	int r;

	if (d->shared || d->sealed)
		state = d->shared ? GPUSHM_SHARED : GPUSHM_SEALED;
	if (d->hold) {
		r = gate_keep(ctl, b, state);
	} else {
		r = gpushm_publish(b, state);
		r = r < 0 ? ctl_refused(r) : CTL_OK;
	}
	if (r)
		return r;
	report(ctl, b);
	return d->transient ? hold_until_eof(ctl) : CTL_OK;
}
