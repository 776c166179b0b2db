/* SPDX-License-Identifier: MIT
 *
 * The answers about the daemon itself: HELLO, POOLS and STATUS. They are built in the service's
 * build arena. What a client may not see is left out here: of accounts, all but its own, unless it
 * is an admin.
 */
#include "daemon/ipc/reply.h"
#include "daemon/pool/stuck.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define SOFTWARE "gpushmd " GPUSHM_VERSION
#define USAGE_MAX 512u

/* ---- pools ---- */

/* By pool::index. After a restart everybody is suspect, and everybody says HELLO. */
static void sum_suspects(const struct service *s, uint64_t ret_bytes[POOLS_MAX])
{
	const struct buffer *b;

	memset(ret_bytes, 0, POOLS_MAX * sizeof(*ret_bytes));
	if (list_empty(&s->reaper.suspects))
		return;
	list_foreach (b, &s->catalog.buffers, all_link)
		if (buffer_suspect(b))
			ret_bytes[b->pool->index] += b->block.bytes;
}

static void tell_device(Gpushm__Proto__Pool *m, const struct pool *pool)
{
	const struct device *d = pool->device;

	m->device_name = reply_bytes(d->name, strlen(d->name));
	m->pci_id = reply_bytes(d->pci_id, strlen(d->pci_id));
	m->device_uuid = reply_bytes(d->uuid, sizeof(d->uuid));
	m->has_device_name = m->has_pci_id = m->has_device_uuid = 1;
}

static void tell_pool(Gpushm__Proto__Pool *m, struct session *s, const struct pool *pool,
		      const struct pool *standard, uint64_t suspect_bytes)
{
	const char *trouble = pool->state == POOL_INHERITED ? pool->why : stuck_trouble(pool);

	gpushm__proto__pool__init(m);
	m->has_name = 1;
	m->name = reply_bytes(pool->config.name, strlen(pool->config.name));
	TELL(m, id, pool->id);
	TELL(m, kind, (Gpushm__Proto__Kind)pool->config.kind);
	TELL(m, size_bytes, pool->size);
	TELL(m, used_bytes, pool->used);
	TELL(m, pending_bytes, pool->pending_bytes);
	TELL(m, pending, pool->pending_count);
	TELL(m, suspect_bytes, suspect_bytes);
	TELL(m, buffers, pool->blocks);
	TELL(m, max_buffer_bytes, pool->max_block);
	TELL(m, granularity, pool->granularity);
	TELL(m, failed, trouble != NULL);
	m->has_why = m->failed;
	m->why = reply_bytes(trouble, trouble ? strlen(trouble) : 0);
	TELL(m, is_default, pool == standard);
	TELL(m, allowed, catalog_pool_is_open_to(pool, s->process));
	m->has_numa_node = pool->config.kind == POOL_PINNED;
	m->numa_node = pool->numa_node;
	if (pool->device)
		tell_device(m, pool);
}

static int tell_pools(struct session *s, size_t *ret_n, Gpushm__Proto__Pool ***ret, struct fault *f)
{
	Gpushm__Proto__Pool **list;
	struct pool *pool, *standard = NULL;
	uint64_t suspect_bytes[POOLS_MAX];
	struct fault ignored;
	size_t n = 0;

	sum_suspects(s->service, suspect_bytes);
	arena_reset(&s->service->build);
	list = reply_build(s->service, POOLS_MAX * sizeof(*list));
	catalog_pool(&s->service->catalog, "", &standard, &ignored);
	list_foreach (pool, s->service->catalog.pools, link) {
		list[n] = reply_build(s->service, sizeof(**list));
		if (!list[n])
			return reply_no_memory(f);
		tell_pool(list[n++], s, pool, standard, suspect_bytes[pool->index]);
	}
	*ret_n = n;
	*ret = list;
	return 0;
}

int reply_pools(struct reply *a, struct session *s, struct fault *f)
{
	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__pools_reply__init(&a->u.pools);
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_POOLS;
	a->reply.pools = &a->u.pools;
	return tell_pools(s, &a->u.pools.n_pools, &a->u.pools.pools, f);
}

int reply_hello(struct reply *a, struct session *s, bool board, struct fault *f)
{
	static const Gpushm__Proto__Limits limits = {
		PROTOBUF_C_MESSAGE_INIT(&gpushm__proto__limits__descriptor),
		.has_frame_bytes = 1,
		.frame_bytes = FRAME_MAX,
		.has_name_bytes = 1,
		.name_bytes = BUFFER_NAME_MAX,
		.has_dimensions = 1,
		.dimensions = DIMENSIONS_MAX,
		.has_arrays = 1,
		.arrays = ARRAYS_MAX,
		.has_attr_bytes = 1,
		.attr_bytes = ATTR_BYTES_MAX,
	};
	Gpushm__Proto__HelloReply *m = &a->u.hello;

	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__hello_reply__init(m);
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_HELLO;
	a->reply.hello = m;
	m->has_daemon = m->has_software = 1;
	m->daemon = reply_bytes(s->service->id, sizeof(s->service->id));
	m->software = reply_bytes(SOFTWARE, strlen(SOFTWARE));
	m->limits = (Gpushm__Proto__Limits *)&limits;
	TELL(m, version, PROTOCOL_VERSION);
	TELL(m, uid, s->process->uid);
	TELL(m, admin, s->process->admin);
	TELL(m, kept, s->service->kept);
	TELL(m, quiet_close, true);
	TELL(m, session, s->process->session);
	if (board && s->service->catalog.board) {
		TELL(m, board_fd, true);
		a->fds[a->n_fds++] = s->service->catalog.board->fd_read_only;
	}
	return tell_pools(s, &m->n_pools, &m->pools, f);
}

/* ---- status ---- */

static uint64_t limit_told(const struct accounts *accounts, uid_t uid, enum account_item item)
{
	uint64_t limit = account_limit(accounts, uid, item);

	return item == ACCOUNT_BYTES || limit < UINT32_MAX ? limit : UINT32_MAX;
}

static void tell_usage(Gpushm__Proto__Usage *m, const struct account *account)
{
	const struct accounts *all = account->accounts;

	gpushm__proto__usage__init(m);
	TELL(m, uid, account->uid);
	TELL(m, bytes, account->used[ACCOUNT_BYTES]);
	TELL(m, buffers, (uint32_t)account->used[ACCOUNT_BUFFERS]);
	TELL(m, leases, (uint32_t)account->used[ACCOUNT_LEASES]);
	TELL(m, peers, (uint32_t)account->used[ACCOUNT_PEERS]);
	TELL(m, bytes_max, limit_told(all, account->uid, ACCOUNT_BYTES));
	TELL(m, buffers_max, (uint32_t)limit_told(all, account->uid, ACCOUNT_BUFFERS));
	TELL(m, leases_max, (uint32_t)limit_told(all, account->uid, ACCOUNT_LEASES));
	TELL(m, peers_max, (uint32_t)limit_told(all, account->uid, ACCOUNT_PEERS));
}

static int tell_usages(Gpushm__Proto__StatusReply *m, struct session *s, struct fault *f)
{
	const struct account *account;

	m->usage = reply_build(s->service, USAGE_MAX * sizeof(*m->usage));
	list_foreach (account, &s->service->catalog.accounts.all, all_link) {
		if (!s->process->admin && account->uid != s->process->uid)
			continue;
		if (m->n_usage == USAGE_MAX)
			break;
		m->usage[m->n_usage] = reply_build(s->service, sizeof(**m->usage));
		if (!m->usage[m->n_usage])
			return reply_no_memory(f);
		tell_usage(m->usage[m->n_usage++], account);
	}
	return 0;
}

static void tell_fds(Gpushm__Proto__StatusReply *m)
{
	struct rlimit limit = { 0 };
	struct stat st = { 0 };

	/* The size of this folder is the number of open fds since Linux 6.2, and 0 before. */
	if (stat("/proc/self/fd", &st) == 0)
		TELL(m, fds, (uint32_t)st.st_size);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		TELL(m, fds_max,
		     limit.rlim_cur > UINT32_MAX ? UINT32_MAX : (uint32_t)limit.rlim_cur);
}

static uint32_t count_failed(const struct catalog *c)
{
	const struct pool *pool;
	uint32_t n = 0;

	list_foreach (pool, c->pools, link)
		n += stuck_trouble(pool) != NULL;
	return n;
}

int reply_status(struct reply *a, struct session *s, struct fault *f)
{
	Gpushm__Proto__StatusReply *m = &a->u.status;
	struct service *service = s->service;

	arena_reset(&service->build);
	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__status_reply__init(m);
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_STATUS;
	a->reply.status = m;
	m->has_software = m->has_daemon = 1;
	m->software = reply_bytes(SOFTWARE, strlen(SOFTWARE));
	m->daemon = reply_bytes(service->id, sizeof(service->id));
	TELL(m, pid, getpid());
	TELL(m, uptime_ms, (clock_monotonic_ns() - service->started_ns) / 1000000u);
	TELL(m, peers, service->peers);
	TELL(m, buffers, service->catalog.n_buffers);
	TELL(m, leases, service->catalog.n_leases);
	TELL(m, suspects, service->reaper.n);
	TELL(m, waiting, service->waiters.n);
	TELL(m, requests, service->requests);
	TELL(m, refused, service->refused);
	TELL(m, violations, service->violations);
	TELL(m, pools_failed, count_failed(&service->catalog));
	tell_fds(m);
	return tell_usages(m, s, f);
}
