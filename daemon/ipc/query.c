/* SPDX-License-Identifier: MIT
 *
 * STAT, LIST, POOLS and STATUS: requests that change nothing. Their replies are built in the
 * service's build arena, which is larger than a frame: the frame is full first. What a client may
 * not see is left out here: holders go to a buffer's owner and to administrators only, and other
 * users' accounts to administrators only. The client's half is client/lib/buffer/query.c.
 */
#include "daemon/ipc/request.h"
#include "daemon/ipc/service.h"
#include "daemon/util/fds.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <string.h>
#include <sys/mman.h>

#define LIST_MAX 512u		      /* buffers in one reply */
#define LIST_BYTES (FRAME_MAX - 256u) /* of buffers; the rest is for the reply around them */
#define USAGE_MAX 512u		      /* accounts in one reply */

/* ---- STAT ---- */

static int fill_holders(Gpushm__Proto__Buffer *m, struct service *s, const struct buffer *b)
{
	const struct lease *l;

	reply_list(s, m, holders, HOLDERS_MAX);
	list_foreach (l, &b->leases, buffer_link) {
		Gpushm__Proto__Holder *h;

		if (m->n_holders == HOLDERS_MAX)
			break;
		h = reply_append(s, m, holders, holder);
		if (!h)
			return -ENOMEM;
		SET_SOME(h, lease, l->id);
		SET_SOME(h, pid, l->process->pid);
		SET_SOME(h, uid, l->process->uid);
		SET(h, command, reply_text(l->process->command));
		SET_SOME(h, access, (Gpushm__Proto__Access)l->access);
		SET_SOME(h, since_ns, l->since_ns);
		SET_SOME(h, suspect, l->process->suspect_ns != 0);
		SET_SOME(h, away, l->away);
		SET_SOME(h, parked, process_is_parked(l->process));
	}
	return 0;
}

static uint32_t count_suspects(const struct buffer *b)
{
	const struct lease *l;
	uint32_t n = 0;

	list_foreach (l, &b->leases, buffer_link)
		n += l->process->suspect_ns != 0;
	return n;
}

static void fill_dirty(Gpushm__Proto__Buffer *m, const struct death *d)
{
	SET_SOME(m, dirty_pid, d->pid);
	SET_SOME(m, dirty_uid, d->uid);
	SET(m, dirty_command, reply_text(d->command));
	SET_SOME(m, dirty_ns, d->ns);
}

static void fill_cached(Gpushm__Proto__Buffer *m, const struct session *s, const struct cached *it)
{
	SET_SOME(m, wanted, cached_is_wanted(it));
	SET_SOME(m, keep_ms,
		 it->keeps ? it->keep_ms : s->service->catalog.accounts.config->keep * 1000ull);
	SET_SOME(m, priority, it->priority);
}

static Gpushm__Proto__Residence residence_of(const struct buffer *b)
{
	if (!b->evicted)
		return GPUSHM__PROTO__RESIDENCE__RESIDENCE_RESIDENT;
	return !catalog_has_twin(b) && catalog_is_clean(b)
		       ? GPUSHM__PROTO__RESIDENCE__RESIDENCE_SOURCE
		       : GPUSHM__PROTO__RESIDENCE__RESIDENCE_TWIN;
}

static int fill_buffer(Gpushm__Proto__Buffer *m, struct session *s, const struct buffer *b,
		       bool holders)
{
	SET_SOME(m, id, b->id);
	SET_SOME(m, pool, b->pool->id);
	SET_SOME(m, size_bytes, b->bytes);
	SET_SOME(m, allocated_bytes, b->block.bytes);
	SET_SOME(m, state, (Gpushm__Proto__State)b->state);
	SET_SOME(m, uid, b->uid);
	SET_SOME(m, gid, b->gid);
	SET_SOME(m, mode, b->mode);
	SET_SOME(m, transient, b->transient);
	SET_SOME(m, dirty, b->dirty);
	SET_SOME(m, kept, buffer_is_kept(b));
	SET_SOME(m, stream, b->stream != NULL);
	SET_SOME(m, created_ns, b->created_ns);
	SET_SOME(m, published_ns, b->published_ns);
	SET_SOME(m, arrays, b->arrays);
	SET_SOME(m, digest, b->digest);
	SET_SOME(m, readers, b->readers);
	SET_SOME(m, writers, b->writers);
	SET_SOME(m, away, b->away);
	SET_SOME(m, residence, residence_of(b));
	SET_SOME(m, suspects, count_suspects(b));
	SET_SOME(m, opens, b->opens);
	SET(m, pool_name, reply_text(b->pool->config.name));
	if (b->cached)
		fill_cached(m, s, b->cached);
	if (b->twin_of)
		SET_SOME(m, twin_of, b->twin_of->id);
	if (b->dirty)
		fill_dirty(m, &b->death);
	m->has_name = b->key != NULL;
	if (b->key && reply_name(s, b->key, &m->name) < 0)
		return -ENOMEM;
	if (!holders || !buffer_owned_by(b, s->process))
		return 0;
	return fill_holders(m, s->service, b);
}

static int copy_attrs(Gpushm__Proto__Buffer *m, struct service *s, const struct table_view *v)
{
	reply_list(s, m, attrs, v->attrs);
	for (uint32_t i = 0; i < v->attrs; i++) {
		struct table_attr attr;
		Gpushm__Proto__Attr *item;
		unsigned char *copy;

		if (table_view_attr_at(v, i, &attr) < 0)
			return -EBADMSG;
		copy = reply_alloc(s, attr.key_len + attr.value_len);
		item = copy ? reply_append(s, m, attrs, attr) : NULL;
		if (!item)
			return -ENOMEM;
		memcpy(copy, attr.key, attr.key_len);
		memcpy(copy + attr.key_len, attr.value, attr.value_len);
		SET(item, key, reply_bytes(copy, attr.key_len));
		SET(item, value, reply_bytes(copy + attr.key_len, attr.value_len));
	}
	return m->attrs ? 0 : -ENOMEM;
}

/* The daemon keeps no second copy of the attributes. It reads them back from the table that it
 * wrote and sealed. */
static int fill_attrs(Gpushm__Proto__Buffer *m, struct service *s, const struct buffer *b)
{
	struct table_view v;
	void *image;
	int r;

	/* Mapping the table costs more than the rest of the reply. */
	if (b->table_fd < 0 ||
	    (table_view_init_fd(&v, b->table_fd, b->table_bytes, b->bytes) == 0 && v.attrs == 0))
		return 0;
	image = mmap(NULL, b->table_bytes, PROT_READ, MAP_SHARED, b->table_fd, 0);
	if (image == MAP_FAILED)
		return -errno;
	r = table_view_init(&v, image, b->table_bytes, b->bytes);
	if (r == 0)
		r = copy_attrs(m, s, &v);
	munmap(image, b->table_bytes);
	return r;
}

static int fill_stat(struct reply *reply, struct session *s, const struct buffer *b,
		     struct fault *f)
{
	Gpushm__Proto__Buffer *m = reply_build(s, reply, stat, STAT, buffer);

	if (fill_buffer(m, s, b, s->pending.u.stat.holders) < 0 || fill_attrs(m, s->service, b) < 0)
		return reply_no_memory(f);
	reply->small = m->n_attrs == 0 && m->n_holders == 0;
	return 0;
}

/* A STAT that waits, waits for the publication: a buffer that is still being filled does not count,
 * not even for its owner. */
static int try_stat(struct session *s, const char *key, struct reply *reply, struct fault *f)
{
	struct catalog *c = &s->service->catalog;
	struct buffer *b = NULL;
	int r = s->pending.u.stat.waits
			? catalog_lookup_for_open(c, s->process, key, s->pending.waiter.published,
						  ACCESS_READ, &b, f)
			: catalog_lookup_visible(c, s->process, key, &b, f);

	return r < 0 ? r : fill_stat(reply, s, b, f);
}

int request_stat(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		 struct fault *f)
{
	const Gpushm__Proto__Stat *m = q->stat;
	char key[KEY_MAX + 1];
	int r = request_key(s, "STAT", m->has_name, m->name, key, f);

	if (r < 0)
		return r;
	s->pending.u.stat.holders = m->has_holders && m->holders;
	s->pending.u.stat.waits = m->wait_ms != 0;
	s->pending.waits_for_producer = false;
	return request_attempt_or_wait(s, key, m->wait_ms, false, try_stat, reply, f);
}

/* ---- LIST ---- */

int request_list(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		 struct fault *f)
{
	const Gpushm__Proto__List *asked = q->list;
	Gpushm__Proto__ListReply *m = reply_build(s, reply, list, LIST, list_reply);
	struct list *end = &s->service->catalog.buffers, *at;
	struct buffer *b = catalog_next(&s->service->catalog, asked->after);
	size_t bytes = 0;

	reply_list(s->service, m, buffers, LIST_MAX);
	for (at = b ? &b->all_link : end; m->buffers && at != end; at = at->next) {
		Gpushm__Proto__Buffer *item;

		b = container_of(at, struct buffer, all_link);
		if (!request_lists(s, b, asked->prefix))
			continue;
		item = reply_message(s->service, &gpushm__proto__buffer__descriptor);
		if (!item || fill_buffer(item, s, b, asked->has_holders && asked->holders) < 0)
			break;
		bytes += gpushm__proto__buffer__get_packed_size(item) + 8;
		if (m->n_buffers == LIST_MAX || bytes > LIST_BYTES)
			break;
		m->buffers[m->n_buffers++] = item;
	}
	SET_SOME(m, more, at != end);
	return m->more && m->n_buffers == 0 ? reply_no_memory(f) : 0;
}

/* ---- POOLS ---- */

/* For all pools in one pass, by pool::index: after a restart all holders are suspects, and all of
 * them send HELLO. */
static void sum_suspects(const struct service *s, uint64_t ret_bytes[POOLS_MAX])
{
	const struct buffer *b;

	memset(ret_bytes, 0, POOLS_MAX * sizeof(*ret_bytes));
	if (list_empty(&s->reaper.suspects))
		return;
	list_foreach (b, &s->catalog.buffers, all_link)
		if (lease_all_suspect(b))
			ret_bytes[b->pool->index] += b->block.bytes;
}

static void fill_pool(Gpushm__Proto__Pool *m, struct session *s, const struct pool *pool,
		      const struct pool *standard, uint64_t suspect_bytes)
{
	const char *trouble = pool->state == POOL_RETIRED ? pool->why : pool_trouble(pool);
	const struct device *d = pool->device;
	uint64_t share;

	SET(m, name, reply_text(pool->config.name));
	SET_SOME(m, id, pool->id);
	SET_SOME(m, kind, (Gpushm__Proto__Kind)pool->config.kind);
	SET_SOME(m, size_bytes, pool->size);
	SET_SOME(m, used_bytes, pool->used);
	SET_SOME(m, pending_bytes, pool->pending_bytes);
	SET_SOME(m, pending, pool->pending_count);
	SET_SOME(m, suspect_bytes, suspect_bytes);
	SET_SOME(m, buffers, pool->blocks);
	share = buffer_share(&s->service->catalog.accounts, s->process, pool);
	SET_SOME(m, max_buffer_bytes, share < pool->max_block ? share : pool->max_block);
	SET_SOME(m, granularity, pool->granularity);
	SET_SOME(m, failed, trouble != NULL);
	m->has_why = m->failed;
	m->why = reply_bytes(trouble, trouble ? strlen(trouble) : 0);
	SET_SOME(m, is_default, pool == standard);
	SET_SOME(m, allowed, catalog_pool_is_open_to(pool, s->process));
	m->has_numa_node = pool->config.kind == POOL_PINNED;
	m->numa_node = pool->numa_node;
	if (d) {
		SET(m, device_name, reply_text(d->name));
		SET(m, pci_id, reply_text(d->pci_id));
		SET(m, device_uuid, reply_bytes(d->uuid, sizeof(d->uuid)));
	}
}

int query_pools(struct session *s, size_t *ret_n, Gpushm__Proto__Pool ***ret, struct fault *f)
{
	Gpushm__Proto__Pool **list;
	struct pool *pool, *standard = NULL;
	uint64_t suspect_bytes[POOLS_MAX];
	struct fault ignored;
	size_t n = 0;

	sum_suspects(s->service, suspect_bytes);
	list = reply_alloc(s->service, POOLS_MAX * sizeof(*list));
	if (!list)
		return reply_no_memory(f);
	catalog_lookup_pool(&s->service->catalog, "", &standard, &ignored);
	list_foreach (pool, s->service->catalog.pools, link) {
		list[n] = reply_message(s->service, &gpushm__proto__pool__descriptor);
		if (!list[n])
			return reply_no_memory(f);
		fill_pool(list[n++], s, pool, standard, suspect_bytes[pool->index]);
	}
	*ret_n = n;
	*ret = list;
	return 0;
}

int request_pools(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		  struct fault *f)
{
	Gpushm__Proto__PoolsReply *m = reply_build(s, reply, pools, POOLS, pools_reply);

	return query_pools(s, &m->n_pools, &m->pools, f);
}

/* ---- STATUS ---- */

static uint64_t limit_shown(const struct accounts *accounts, uid_t uid, enum account_item item)
{
	uint64_t limit = account_limit(accounts, uid, item);

	return item == ACCOUNT_BYTES || limit < UINT32_MAX ? limit : UINT32_MAX;
}

static void fill_usage(Gpushm__Proto__Usage *m, const struct account *account)
{
	const struct accounts *all = account->accounts;

	SET_SOME(m, uid, account->uid);
	SET_SOME(m, bytes, account->used[ACCOUNT_BYTES]);
	SET_SOME(m, buffers, (uint32_t)account->used[ACCOUNT_BUFFERS]);
	SET_SOME(m, leases, (uint32_t)account->used[ACCOUNT_LEASES]);
	SET_SOME(m, peers, (uint32_t)account->used[ACCOUNT_PEERS]);
	SET_SOME(m, bytes_max, limit_shown(all, account->uid, ACCOUNT_BYTES));
	SET_SOME(m, buffers_max, (uint32_t)limit_shown(all, account->uid, ACCOUNT_BUFFERS));
	SET_SOME(m, leases_max, (uint32_t)limit_shown(all, account->uid, ACCOUNT_LEASES));
	SET_SOME(m, peers_max, (uint32_t)limit_shown(all, account->uid, ACCOUNT_PEERS));
}

/* An account may be left only for a descriptor, of a process that holds nothing any more. */
static bool has_usage(const struct account *account)
{
	const uint64_t *used = account->used;

	return used[ACCOUNT_BYTES] || used[ACCOUNT_BUFFERS] || used[ACCOUNT_LEASES] ||
	       used[ACCOUNT_PEERS];
}

static int fill_usages(Gpushm__Proto__StatusReply *m, struct session *s, struct fault *f)
{
	const struct account *account;

	reply_list(s->service, m, usage, USAGE_MAX);
	list_foreach (account, &s->service->catalog.accounts.all, all_link) {
		Gpushm__Proto__Usage *it;

		if (!s->process->admin && account->uid != s->process->uid)
			continue;
		if (!has_usage(account))
			continue;
		if (m->n_usage == USAGE_MAX)
			break;
		it = reply_append(s->service, m, usage, usage);
		if (!it)
			return reply_no_memory(f);
		fill_usage(it, account);
	}
	return 0;
}

static int fill_refusals(Gpushm__Proto__StatusReply *m, struct session *s, struct fault *f)
{
	const uint64_t *counts = s->service->refusals.counts;

	reply_list(s->service, m, refusals, CODE_COUNT);
	for (int code = 0; code < CODE_COUNT; code++) {
		Gpushm__Proto__Refusal *it;

		if (counts[code] == 0)
			continue;
		it = reply_append(s->service, m, refusals, refusal);
		if (!it)
			return reply_no_memory(f);
		SET_SOME(it, code, (uint32_t)code);
		SET_SOME(it, count, counts[code]);
	}
	return 0;
}

static uint32_t count_failed(const struct catalog *c)
{
	const struct pool *pool;
	uint32_t n = 0;

	list_foreach (pool, c->pools, link)
		n += pool_trouble(pool) != NULL;
	return n;
}

int request_status(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		   struct fault *f)
{
	Gpushm__Proto__StatusReply *m = reply_build(s, reply, status, STATUS, status_reply);
	const struct service *service = s->service;

	SET(m, software, reply_text(QUERY_SOFTWARE));
	SET(m, daemon, reply_bytes(service->id, sizeof(service->id)));
	SET_SOME(m, pid, getpid());
	SET_SOME(m, uptime_ms, (clock_monotonic_ns() - service->started_ns) / 1000000u);
	SET_SOME(m, peers, service->peers);
	SET_SOME(m, buffers, service->catalog.n_buffers);
	SET_SOME(m, leases, service->catalog.n_leases);
	SET_SOME(m, suspects, service->reaper.n);
	SET_SOME(m, waiting, service->waiters.n);
	SET_SOME(m, requests, service->requests);
	SET_SOME(m, refused, service->refused);
	SET_SOME(m, violations, service->violations);
	SET_SOME(m, pools_failed, count_failed(&service->catalog));
	SET_SOME(m, retained, service->catalog.n_retained);
	SET_SOME(m, retained_bytes,
		 service->catalog.retained_bytes + service->catalog.retired_pages.bytes);
	SET(m, needs_restart, reply_text(service->needs_restart));
	SET_SOME(m, fds, fds_open());
	SET_SOME(m, fds_max, fds_limit());
	return fill_refusals(m, s, f) < 0 ? -ENOMEM : fill_usages(m, s, f);
}
