/* SPDX-License-Identifier: MIT
 *
 * gpushm_stat, and the decoding that gpushm_list shares with it. A stat owns two blocks: its
 * holders, and its attributes with their keys and values behind them. Everything is copied out of
 * the reply before the connection is given back.
 */
#include "client/buffer/stat.h"

#include "client/base/decode.h"
#include "client/base/error.h"
#include "proto/base/own.h"

void stat_done(struct gpushm_stat *s)
{
	free_ptr(&s->holders);
	free_ptr(&s->attrs);
	s->n_holders = s->n_attrs = 0;
}

struct gpushm_stat *gpushm_stat_free(struct gpushm_stat *stats, size_t n)
{
	for (size_t i = 0; stats && i < n; i++)
		stat_done(&stats[i]);
	free(stats);
	return NULL;
}

static int decode_holder(const Gpushm__Proto__Holder *from, struct gpushm_holder *ret)
{
	struct gpushm_holder h = { .lease = from->lease,
				   .pid = from->pid,
				   .uid = from->uid,
				   .suspect = from->suspect,
				   .since_ns = from->since_ns };

	if (decode_access(from->has_access, (int)from->access, &h.access) < 0 ||
	    decode_text("a holder's command", from->has_command, from->command, h.command,
			sizeof(h.command)) < 0)
		return -EPROTO;
	*ret = h;
	return 0;
}

static int decode_holders(const Gpushm__Proto__Buffer *from, struct gpushm_stat *s)
{
	if (from->n_holders == 0)
		return 0;
	s->holders = calloc(from->n_holders, sizeof(*s->holders));
	if (!s->holders)
		return error_set(ENOMEM, "out of memory for a buffer's holders");
	for (; s->n_holders < from->n_holders; s->n_holders++) {
		int r = decode_holder(from->holders[s->n_holders], &s->holders[s->n_holders]);

		if (r < 0)
			return r;
	}
	return 0;
}

/* The attributes, with a NUL behind each key and each value. */
static size_t attrs_bytes(const Gpushm__Proto__Buffer *from)
{
	size_t bytes = from->n_attrs * sizeof(struct gpushm_attr);

	for (size_t i = 0; i < from->n_attrs; i++)
		bytes += from->attrs[i]->key.len + from->attrs[i]->value.len + 2;
	return bytes;
}

static int decode_attrs(const Gpushm__Proto__Buffer *from, struct gpushm_stat *s)
{
	char *text;

	if (from->n_attrs == 0)
		return 0;
	s->attrs = calloc(1, attrs_bytes(from));
	if (!s->attrs)
		return error_set(ENOMEM, "out of memory for a buffer's attributes");
	text = (char *)(s->attrs + from->n_attrs);
	for (; s->n_attrs < from->n_attrs; s->n_attrs++) {
		const Gpushm__Proto__Attr *a = from->attrs[s->n_attrs];
		struct gpushm_attr *to = &s->attrs[s->n_attrs];

		if (decode_text("an attribute's key", a->has_key, a->key, text, a->key.len + 1) < 0)
			return -EPROTO;
		to->key = text;
		to->value = text += a->key.len + 1;
		to->size = a->value.len;
		if (a->value.len > 0)
			memcpy(text, a->value.data, a->value.len);
		text += a->value.len + 1;
	}
	return 0;
}

static int decode_place(const struct gpushm *c, const Gpushm__Proto__Buffer *from,
			struct gpushm_stat *s)
{
	const struct pool_info *pool = connection_pool(c, from->pool);

	if (decode_text("name", from->has_name, from->name, s->name, sizeof(s->name)) < 0 ||
	    decode_text("pool name", from->has_pool_name, from->pool_name, s->pool,
			sizeof(s->pool)) < 0 ||
	    decode_text("the command of a writer that died", from->has_dirty_command,
			from->dirty_command, s->dirty_command, sizeof(s->dirty_command)) < 0 ||
	    decode_state(from->has_state, (int)from->state, &s->state) < 0)
		return -EPROTO;
	/* A pool that came after HELLO, or of a later daemon's kind, has no kind here. */
	if (pool)
		s->kind = pool->map.kind;
	if (pool && !s->pool[0])
		memcpy(s->pool, pool->name, sizeof(pool->name));
	return 0;
}

int stat_decode(const struct gpushm *c, const Gpushm__Proto__Buffer *from, struct gpushm_stat *ret)
{
	struct gpushm_stat s = { .id = from->id,
				 .bytes = from->size_bytes,
				 .allocated_bytes = from->allocated_bytes,
				 .uid = from->uid,
				 .gid = from->gid,
				 .mode = from->mode,
				 .transient = from->transient,
				 .dirty = from->dirty,
				 .created_ns = from->created_ns,
				 .published_ns = from->published_ns,
				 .arrays = from->arrays,
				 .digest = from->digest,
				 .readers = from->readers,
				 .writers = from->writers,
				 .suspects = from->suspects,
				 .dirty_pid = from->dirty_pid,
				 .dirty_uid = from->dirty_uid,
				 .dirty_ns = from->dirty_ns };
	int r = decode_place(c, from, &s);

	if (r == 0)
		r = decode_holders(from, &s);
	if (r == 0)
		r = decode_attrs(from, &s);
	if (r < 0)
		stat_done(&s);
	else
		*ret = s;
	return r;
}

static int read_stat(struct gpushm *c, const Gpushm__Proto__Request *request,
		     struct gpushm_stat *ret)
{
	Gpushm__Proto__Reply *reply;
	int r = connection_call(c, request, GPUSHM__PROTO__REPLY__RESULT_STAT, &reply);

	if (r < 0)
		return r;
	r = stat_decode(c, reply->stat, ret);
	if (r == -EPROTO)
		return connection_violated(c);
	connection_done(c);
	return r;
}

int gpushm_stat(struct gpushm *c, const char *name, uint64_t timeout_ms, uint32_t flags,
		struct gpushm_stat **ret)
{
	_cleanup_(free_ptr) struct gpushm_stat *s = NULL;
	Gpushm__Proto__Stat stat = GPUSHM__PROTO__STAT__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	int r = connection_check_name(name);

	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return error_set(ENOMEM, "out of memory for a stat");
	stat.has_name = true;
	stat.name = connection_bytes(name);
	stat.has_wait_ms = timeout_ms > 0;
	stat.wait_ms = timeout_ms;
	stat.has_holders = stat.holders = !!(flags & GPUSHM_HOLDERS);
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_STAT;
	request.stat = &stat;
	r = read_stat(c, &request, s);
	if (r == 0)
		*ret = take_ptr(s);
	return r;
}
