/* SPDX-License-Identifier: MIT
 *
 * STAT, LIST, POOLS and STATUS: what the daemon says about buffers, pools and itself. Everything is
 * copied out of the reply before the connection is released.
 *
 * A stat owns two blocks: its holders, and its attributes with their keys and values after them.
 */
#include "client/lib/base/error.h"
#include "client/lib/link/request.h"
#include "proto/base/own.h"
#include "proto/code.h"

/* ---- STAT ---- */

static void stat_done(struct gpushm_stat *s)
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
	*ret = (struct gpushm_holder){ .lease = from->lease,
				       .pid = from->pid,
				       .uid = from->uid,
				       .suspect = from->suspect,
				       .since_ns = from->since_ns };
	if (decode_access(from->has_access, (int)from->access, &ret->access) < 0)
		return -EPROTO;
	return decode_text("a holder's command", from->has_command, from->command, ret->command,
			   sizeof(ret->command));
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

static int decode_names(const struct gpushm *c, const Gpushm__Proto__Buffer *from,
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
	/* A pool that is new since HELLO, or of an unknown kind, has no kind here. */
	if (pool)
		s->kind = pool->map.kind;
	if (pool && !s->pool[0])
		memcpy(s->pool, pool->name, sizeof(pool->name));
	return 0;
}

/* Whatever this returns, *ret is to be freed by stat_done(). */
static int decode_stat(const struct gpushm *c, const Gpushm__Proto__Buffer *from,
		       struct gpushm_stat *ret)
{
	int r;

	*ret = (struct gpushm_stat){ .id = from->id,
				     .bytes = from->size_bytes,
				     .allocated_bytes = from->allocated_bytes,
				     .uid = from->uid,
				     .gid = from->gid,
				     .mode = from->mode,
				     .transient = from->transient,
				     .dirty = from->dirty,
				     .kept = from->kept,
				     .created_ns = from->created_ns,
				     .published_ns = from->published_ns,
				     .arrays = from->arrays,
				     .stream = from->stream,
				     .digest = from->digest,
				     .readers = from->readers,
				     .writers = from->writers,
				     .suspects = from->suspects,
				     .opens = from->opens,
				     .dirty_pid = from->dirty_pid,
				     .dirty_uid = from->dirty_uid,
				     .dirty_ns = from->dirty_ns };
	r = decode_names(c, from, ret);
	if (r == 0)
		r = decode_holders(from, ret);
	return r < 0 ? r : decode_attrs(from, ret);
}

static int read_stat(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	return decode_stat(c, reply->stat, to);
}

static int call_stat(struct gpushm *c, const char *name, uint64_t timeout_ms, uint32_t flags,
		     struct gpushm_stat *ret)
{
	Gpushm__Proto__Stat stat = GPUSHM__PROTO__STAT__INIT;
	int r = request_set_name(name, &stat.has_name, &stat.name);

	stat.has_wait_ms = timeout_ms > 0;
	stat.wait_ms = timeout_ms;
	stat.has_holders = stat.holders = !!(flags & GPUSHM_HOLDERS);
	return r < 0 ? r : request_read(c, request_with(STAT, stat, &stat), read_stat, ret);
}

int gpushm_stat(struct gpushm *c, const char *name, uint64_t timeout_ms, uint32_t flags,
		struct gpushm_stat **ret)
{
	struct gpushm_stat *s = calloc(1, sizeof(*s));
	int r = s ? call_stat(c, name, timeout_ms, flags, s)
		  : error_set(ENOMEM, "out of memory for a stat");

	if (r < 0)
		gpushm_stat_free(s, 1);
	else
		*ret = s;
	return r;
}

int gpushm_wait(struct gpushm *c, const char *name, uint64_t timeout_ms)
{
	struct gpushm_stat s = { 0 };
	int r = call_stat(c, name, timeout_ms, 0, &s);

	stat_done(&s);
	if (r < 0)
		return r;
	/* The daemon does not let the creator wait for a buffer that it is still filling. */
	return s.state == GPUSHM_FILLING
		       ? error_set(EAGAIN, "buffer \"%s\" is still being filled", name)
		       : 0;
}

/* ---- LIST ---- */

struct listing {
	struct gpushm_stat *stats; /* owned */
	size_t n;
	uint64_t after; /* id of the last buffer that is in the list */
	bool more;
};

static void listing_done(struct listing *l)
{
	l->stats = gpushm_stat_free(l->stats, l->n);
	l->n = 0;
}

/* The daemon's ids grow. A page that does not continue after the last one would be asked for again
 * and again: that is a violation. */
static int read_page(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__ListReply *page = reply->list;
	struct gpushm_stat *grown;
	struct listing *l = to;

	if (page->more && page->n_buffers == 0)
		return error_set(EPROTO, "the daemon's list has a page without buffers");
	grown = realloc(l->stats, (l->n + page->n_buffers + 1) * sizeof(*grown));
	if (!grown)
		return error_set(ENOMEM, "out of memory for a list of buffers");
	l->stats = grown;
	for (size_t i = 0; i < page->n_buffers; i++) {
		int r = decode_stat(c, page->buffers[i], &l->stats[l->n++]);

		if (r < 0)
			return r;
		if (page->buffers[i]->id <= l->after)
			return error_set(EPROTO, "the daemon's list is not in order");
		l->after = page->buffers[i]->id;
	}
	l->more = page->more;
	return 0;
}

int gpushm_list(struct gpushm *c, const char *prefix, uint32_t flags, struct gpushm_stat **ret,
		size_t *ret_n)
{
	_cleanup_(listing_done) struct listing l = { .more = true };
	Gpushm__Proto__List list = GPUSHM__PROTO__LIST__INIT;
	int r = request_set_name(prefix ? prefix : "", &list.has_prefix, &list.prefix);

	list.has_after = true;
	list.has_holders = list.holders = !!(flags & GPUSHM_HOLDERS);
	while (r == 0 && l.more) {
		list.after = l.after;
		r = request_read(c, request_with(LIST, list, &list), read_page, &l);
	}
	if (r < 0)
		return r;
	*ret_n = l.n;
	l.n = 0;
	*ret = take_ptr(l.stats);
	return 0;
}

/* ---- POOLS ---- */

struct pool_listing {
	struct gpushm_pool *pools; /* owned */
	size_t n;
};

/* Leaves out pools of a kind that this library does not know. */
static int read_pools(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__PoolsReply *from = reply->pools;
	struct pool_listing *l = to;

	l->pools = calloc(from->n_pools + 1, sizeof(*l->pools));
	if (!l->pools)
		return error_set(ENOMEM, "out of memory for a list of pools");
	for (size_t i = 0; i < from->n_pools; i++) {
		int r = 0;

		if (decode_kind_known(from->pools[i]))
			r = decode_pool(from->pools[i], &l->pools[l->n++]);
		if (r < 0)
			return r;
	}
	return 0;
}

int gpushm_pools(struct gpushm *c, struct gpushm_pool **ret, size_t *ret_n)
{
	static const unsigned char none[UUID_BYTES];
	Gpushm__Proto__Pools pools = GPUSHM__PROTO__POOLS__INIT;
	struct pool_listing l = { 0 };
	int r = request_read(c, request_with(POOLS, pools, &pools), read_pools, &l);

	if (r < 0) {
		free(l.pools);
		return r;
	}
	/* After the connection is released, because starting the driver takes time. With host pools
	 * only, the driver is not started. */
	for (size_t i = 0; i < l.n; i++)
		if (memcmp(l.pools[i].device_uuid, none, sizeof(none)) != 0)
			l.pools[i].device = map_device_ordinal(l.pools[i].device_uuid);
	*ret = l.pools;
	*ret_n = l.n;
	return 0;
}

/* ---- STATUS ---- */

struct gpushm_status *gpushm_status_free(struct gpushm_status *s)
{
	if (s) {
		free(s->usage);
		free(s->refusals);
	}
	free(s);
	return NULL;
}

static int decode_usage(const Gpushm__Proto__StatusReply *from, struct gpushm_status *s)
{
	s->usage = calloc(from->n_usage + 1, sizeof(*s->usage));
	if (!s->usage)
		return error_set(ENOMEM, "out of memory for the daemon's status");
	for (; s->n_usage < from->n_usage; s->n_usage++) {
		const Gpushm__Proto__Usage *u = from->usage[s->n_usage];

		s->usage[s->n_usage] = (struct gpushm_usage){ .uid = u->uid,
							      .bytes = u->bytes,
							      .bytes_max = u->bytes_max,
							      .buffers = u->buffers,
							      .buffers_max = u->buffers_max,
							      .leases = u->leases,
							      .leases_max = u->leases_max,
							      .peers = u->peers,
							      .peers_max = u->peers_max };
	}
	return 0;
}

static int decode_refusals(const Gpushm__Proto__StatusReply *from, struct gpushm_status *s)
{
	s->refusals = calloc(from->n_refusals + 1, sizeof(*s->refusals));
	if (!s->refusals)
		return error_set(ENOMEM, "out of memory for the daemon's status");
	for (; s->n_refusals < from->n_refusals; s->n_refusals++) {
		const Gpushm__Proto__Refusal *r = from->refusals[s->n_refusals];

		s->refusals[s->n_refusals] =
			(struct gpushm_refusal){ code_name((int)r->code), r->count };
	}
	return 0;
}

static int read_status(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__StatusReply *from = reply->status;
	struct gpushm_status *s = to;

	*s = (struct gpushm_status){ .pid = from->pid,
				     .uptime_ms = from->uptime_ms,
				     .peers = from->peers,
				     .buffers = from->buffers,
				     .leases = from->leases,
				     .suspects = from->suspects,
				     .waiting = from->waiting,
				     .requests = from->requests,
				     .refused = from->refused,
				     .violations = from->violations,
				     .fds = from->fds,
				     .fds_max = from->fds_max,
				     .pools_failed = from->pools_failed,
				     .retained = from->retained,
				     .retained_bytes = from->retained_bytes,
				     .kept = c->wait_for_successor };
	if (decode_text("software", from->has_software, from->software, s->software,
			sizeof(s->software)) < 0 ||
	    decode_bytes("daemon id", from->has_daemon, from->daemon, s->daemon,
			 sizeof(s->daemon)) < 0)
		return -EPROTO;
	return decode_refusals(from, s) < 0 ? -ENOMEM : decode_usage(from, s);
}

int gpushm_status(struct gpushm *c, struct gpushm_status **ret)
{
	Gpushm__Proto__Status status = GPUSHM__PROTO__STATUS__INIT;
	struct gpushm_status *s = calloc(1, sizeof(*s));
	int r = s ? request_read(c, request_with(STATUS, status, &status), read_status, s)
		  : error_set(ENOMEM, "out of memory for the daemon's status");

	if (r < 0)
		gpushm_status_free(s);
	else
		*ret = s;
	return r;
}
