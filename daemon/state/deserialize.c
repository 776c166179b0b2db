/* SPDX-License-Identifier: MIT
 *
 * No driver is asked, because an attach needs nothing but a kept fd. A lease returns to its
 * process, if that still lives (pidfd, and the same start time), as a suspect's: until the client
 * reconnects and says that it holds the lease, or the process goes.
 */
#include "daemon/state/deserialize.h"

#include "daemon/catalog/private_names.h"
#include "daemon/state/fields.h"
#include "daemon/state/replay.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"
#include "proto/kind.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For the lists of fields.h: from a message to the struct. */
#define READ(field) to->field = m->field;

/* What the functions below work on. */
struct target {
	struct fdstore *store;
	struct catalog *catalog;
	struct reaper *reaper;
	struct pools *pools;
	struct hashtable sessions; /* session::link */
	struct session *memory;	   /* owned; of all sessions, one for each lease at most */
	struct session *next;	   /* the first unused one */
	uint32_t buffers, leases;  /* that were adopted */
	uint32_t dropped;	   /* buffers whose fd is missing, or whose record makes no sense */
	uint32_t ended;		   /* leases whose process is gone */
};

static void copy_text(char *to, size_t size, ProtobufCBinaryData from)
{
	snprintf(to, size, "%.*s", (int)from.len, (const char *)from.data);
}

static int take(const struct target *t, char kind, uint64_t number)
{
	return fdstore_take(t->store, fdstore_name(kind, number).text);
}

/* For an fd that was taken and is of no use: another buffer will have its name. */
static void forget(const struct target *t, char kind, uint64_t number)
{
	fdstore_forget(t->store, fdstore_name(kind, number).text);
}

/* We are short of something; what was left to us is whole, and the next daemon may restore it. */
static bool is_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

/* ---- pools ---- */

/* The configuration says now who may use the pool. If the pool is not in it any more, or is of
 * another kind there, its buffers are for their holders and for admins. */
static void find_rules(const struct config *c, struct pool_config *ret)
{
	ret->restricted = !c->auto_pools;
	if (c->auto_pools)
		config_restrict_mempool(c, ret);
	for (size_t i = 0; i < c->n_pools; i++) {
		const struct pool_config *it = &c->pools[i];

		if (it->kind != ret->kind || strcmp(it->name, ret->name) != 0)
			continue;
		ret->restricted = it->restricted;
		ret->allow_users = it->allow_users;
		ret->allow_groups = it->allow_groups;
		ret->share = it->share;
		ret->pending_max_age = it->pending_max_age;
	}
}

static int adopt_pool(const struct target *t, const Gpushm__Journal__Pool *m)
{
	struct pool_config config;
	struct device device = { .numa_node = -1 };
	struct pool *pool = NULL;
	int r;

	if (m->kind == 0 || m->kind >= KIND_END || m->granularity == 0)
		return 0;
	pool_config_default((enum pool_kind)m->kind, &config);
	copy_text(config.name, sizeof(config.name), m->name);
	find_rules(t->pools->config, &config);
	config.numa_node = m->numa_node;
	copy_text(device.name, sizeof(device.name), m->device_name);
	copy_text(device.pci_id, sizeof(device.pci_id), m->pci_id);
	if (m->device_uuid.len == sizeof(device.uuid))
		memcpy(device.uuid, m->device_uuid.data, sizeof(device.uuid));
	r = pools_adopt(t->pools, &config, m->id, m->size_bytes, m->granularity,
			m->has_device_uuid ? &device : NULL, take(t, 'p', m->id), &pool);
	if (r < 0)
		log_error_id(LOG_ID_STATE_NOT_READ, "pool \"%s\" can't be restored: %s",
			     config.name, strerror(-r));
	return is_shortage(r) ? r : 0;
}

/* ---- buffers ---- */

static void fill(struct buffer *to, const Gpushm__Journal__Buffer *m)
{
	BUFFER_FIELDS(READ)
	if (!m->has_key)
		to->key = NULL;
	to->fd_index = m->slot;
	to->evicted = m->evicted;
	to->death = (struct death){ .ns = m->dirty_ns, .pid = m->dirty_pid, .uid = m->dirty_uid };
	copy_text(to->death.command, sizeof(to->death.command), m->dirty_command);
}

/* The daemon may have died before it forgot the memory. */
static int adopt_evicted(const struct target *t, struct buffer *b, const Gpushm__Journal__Buffer *m,
			 int *table)
{
	if (m->table && *table < 0)
		return -EBADF;
	forget(t, 'm', m->slot);
	b->table_fd = take_fd(table);
	return 0;
}

static int adopt_block(const struct target *t, struct buffer *b, const Gpushm__Journal__Buffer *m)
{
	_cleanup_(close_fd) int memory = take(t, 'm', m->slot);
	_cleanup_(close_fd) int table = take(t, 't', m->slot);
	bool of_pool = kind_opens_pool(b->pool->config.kind);
	struct block block;
	int r;

	if (m->evicted)
		return adopt_evicted(t, b, m, &table);
	if ((!of_pool && memory < 0) || (of_pool && b->pool->pool_fd < 0) ||
	    (m->table && table < 0) || (of_pool && m->record.len != RECORD_BYTES))
		return -EBADF;
	r = pool_adopt_block(b->pool, m->allocated_bytes, memory, b->state == BUFFER_SEALED,
			     of_pool ? m->record.data : NULL, &block);
	if (r < 0)
		return r;
	buffer_take_block(b, &block);
	take_fd(&memory);
	b->table_fd = take_fd(&table);
	buffer_drop_originals(b);
	return 0;
}

static int make_buffer(const struct target *t, const Gpushm__Journal__Buffer *m)
{
	struct fault ignored;
	struct buffer *b;
	int r;

	if ((m->state != BUFFER_SEALED && m->state != BUFFER_SHARED) || m->bytes == 0 ||
	    (m->allocated_bytes < m->bytes && !m->evicted) || m->key.len > KEY_MAX)
		return -EBADMSG;
	b = buffer_alloc((const char *)m->key.data, m->key.len);
	if (!b)
		return -ENOMEM;
	fill(b, m);
	b->pool = pools_by_id(t->pools, m->pool);
	r = b->pool ? buffer_charge(&t->catalog->accounts, b, UINT64_MAX, &ignored) : -ENODEV;
	if (r == 0)
		r = adopt_block(t, b, m);
	if (r < 0)
		buffer_free(b);
	else
		catalog_adopt_buffer(t->catalog, b);
	return r;
}

static void tell_lost(struct catalog *c, const Gpushm__Journal__Buffer *m, const char *why)
{
	char key[KEY_MAX + 1];

	copy_text(key, sizeof(key), m->key);
	log_write(LOG_ERR, &(struct log_about){ LOG_ID_LOST, .name = key, .buffer = m->id },
		  "buffer \"%s\" is lost: %s", key, why);
	if (m->has_key)
		lost_add(&c->lost, key, why);
	event_log_add(&c->events, .type = EVENT_LOST, .key = key, .id = m->id, .text = why,
		      .rights = &(struct rights){ m->uid, m->gid, m->mode });
}

static int adopt_buffer(struct target *t, const Gpushm__Journal__Buffer *m)
{
	int r = make_buffer(t, m);

	if (r == 0)
		t->buffers++;
	if (r == 0 || is_shortage(r))
		return r;
	t->dropped++;
	forget(t, 'm', m->slot);
	forget(t, 't', m->slot);
	tell_lost(t->catalog, m, r == -EBADF ? "its memory's fd was not kept" : strerror(-r));
	return 0;
}

/* ---- streams ---- */

static void fill_shape(struct stream_shape *to, const Gpushm__Journal__Stream *m)
{
	SHAPE_FIELDS(READ)
}

static void fill_stream(struct stream *to, const Gpushm__Journal__Stream *m)
{
	STREAM_FIELDS(READ)
	to->head->fd_index = m->head;
	to->group->fd_index = m->group;
	/* RUNNING only with its producer: adopt_producer(). */
	to->state = m->state == STREAM_ENDED ? STREAM_ENDED : STREAM_ORPHANED;
	to->before = stream_counts(to);
}

/* Without its pages it is a shared buffer. */
static void tell_no_stream(const struct buffer *b, int error)
{
	log_write(LOG_ERR,
		  &(struct log_about){ LOG_ID_STATE_NOT_READ, .name = b->key, .buffer = b->id },
		  "stream \"%s\" can't be restored: %s; its processes go on, but nobody can join "
		  "it, and nobody learns of their deaths",
		  b->key ? b->key : "",
		  error == -EBADF ? "its pages were not kept" : strerror(-error));
}

static int adopt_stream(const struct target *t, const Gpushm__Journal__Stream *m)
{
	struct buffer *b = catalog_by_id(t->catalog, m->buffer);
	struct stream_shape shape;
	struct stream *s = NULL;
	struct fault f;
	int r;

	if (!b || b->stream)
		return 0;
	fill_shape(&shape, m);
	r = b->state == BUFFER_SHARED ? stream_check_shape(&shape, b->bytes, &f) : -EBADMSG;
	if (r == 0)
		r = stream_adopt(&t->catalog->accounts, b->uid, &shape, take(t, 's', m->head),
				 take(t, 's', m->group), &s);
	if (r == 0) {
		fill_stream(s, m);
		catalog_insert_stream(t->catalog, b, s);
		return 0;
	}
	if (is_shortage(r))
		return r;
	forget(t, 's', m->head);
	forget(t, 's', m->group);
	tell_no_stream(b, r);
	return 0;
}

/* ---- leases ---- */

static struct process holder_of(const Gpushm__Journal__Lease *m)
{
	struct process holder = { 0 }, *to = &holder;

	PROCESS_FIELDS(READ)
	copy_text(holder.command, sizeof(holder.command), m->command);
	return holder;
}

/* A connection of the earlier daemon that holds leases. */
struct session {
	struct hashtable_link link; /* target::sessions */
	struct process *process;
};

static struct process *find_process(const struct target *t, uint64_t session)
{
	struct session *it;

	hashtable_foreach (it, &t->sessions, hashtable_hash_u64(session), link)
		if (it->process->session == session)
			return it->process;
	return NULL;
}

/* Where records name several kept pidfds of one process, one of them is enough. */
static void take_over_pidfd(struct target *t, struct pidfd *pidfd, uint64_t name, bool kept)
{
	struct fault ignored;

	if (!pidfd->charge.account)
		charge(&t->catalog->accounts, pidfd->uid, ACCOUNT_FDS, 1, UINT64_MAX,
		       &pidfd->charge, &ignored);
	if (kept && pidfd->session)
		forget(t, 'k', name);
	else if (kept && charge(&t->catalog->accounts, pidfd->uid, ACCOUNT_KEPT_PIDS, 1, UINT64_MAX,
				&pidfd->kept_charge, &ignored) == 0)
		t->store->pidfds++;
	if (!pidfd->session)
		pidfd->session = name;
}

/* The first lease of a session adopts its process, the others find it. */
static int find_holder(struct target *t, const Gpushm__Journal__Lease *m, struct process **ret)
{
	const struct process holder = holder_of(m);
	uint64_t name = m->has_pidfd ? m->pidfd : m->session;
	int pidfd, r;
	bool kept;

	*ret = find_process(t, m->session);
	if (*ret)
		return 0;
	pidfd = take(t, 'k', name);
	kept = pidfd >= 0;
	r = process_adopt(&t->reaper->pidfds, &holder, pidfd, ret);
	if (r < 0 && kept && !is_shortage(r))
		forget(t, 'k', name);
	if (r < 0)
		return r;
	take_over_pidfd(t, (*ret)->pidfd, name, kept);
	t->next->process = *ret;
	hashtable_insert(&t->sessions, &t->next->link, hashtable_hash_u64(m->session));
	t->next++;
	reaper_adopt(t->reaper, *ret);
	return 0;
}

static int adopt_lease(struct target *t, const Gpushm__Journal__Lease *m)
{
	struct buffer *b = catalog_by_id(t->catalog, m->buffer);
	struct process *p = NULL;
	struct fault f;
	int r;

	if (!b)
		return -ENOENT;
	if (m->access != ACCESS_READ && m->access != ACCESS_WRITE)
		return -EBADMSG;
	r = find_holder(t, m, &p);
	if (r == -ESRCH && m->access == ACCESS_WRITE && !b->stream && !m->away) {
		const struct process gone = holder_of(m);

		catalog_mark_dirty(t->catalog, b, &gone);
	}
	if (r < 0)
		return r;
	if (m->parked && p->pidfd && p->pidfd->park.state != PARK_PARKED)
		catalog_set_parking(t->catalog, p->pidfd, PARK_PARKED, NULL);
	return catalog_adopt_lease(t->catalog, p, b, (enum access)m->access, m->id, m->since_ns,
				   m->away, &f);
}

static int sessions_init(struct target *t, const struct list *leases)
{
	size_t n = 1;

	for (const struct list *at = leases->next; at != leases; at = at->next)
		n++;
	t->next = t->memory = calloc(n, sizeof(*t->memory));
	return t->memory ? hashtable_init(&t->sessions) : -ENOMEM;
}

static int adopt_leases(struct replay *r, struct target *t)
{
	struct item *it;
	int err = sessions_init(t, &r->leases);

	if (err < 0)
		return err;
	list_foreach (it, &r->leases, link) {
		err = adopt_lease(t, (Gpushm__Journal__Lease *)it->message);
		if (is_shortage(err))
			return err;
		if (err == 0)
			t->leases++;
		else
			t->ended++;
	}
	return 0;
}

/* ---- who produces a stream, and who follows it ---- */

static struct process producer_of(struct replay *r, uint64_t lease)
{
	struct item *it;

	list_foreach (it, &r->leases, link)
		if (it->id == lease)
			return holder_of((Gpushm__Journal__Lease *)it->message);
	return (struct process){ 0 };
}

/* It may have died while no daemon ran. */
static void adopt_producer(struct replay *r, const struct target *t,
			   const Gpushm__Journal__Stream *m)
{
	struct buffer *b = catalog_by_id(t->catalog, m->buffer);
	struct lease *l = m->producer ? catalog_lease_by_id(t->catalog, m->producer) : NULL;

	if (!b || !b->stream || !m->producer)
		return;
	if (l && l->buffer == b && l->access == ACCESS_WRITE) {
		stream_adopt_producer(b->stream, l);
	} else {
		const struct process gone = producer_of(r, m->producer);

		catalog_producer_left(t->catalog, b, &gone, false);
	}
}

static int adopt_seat(const struct target *t, struct stream *s, const Gpushm__Journal__Reader *m,
		      struct lease *l)
{
	struct stream_reader reader = { .lease = l }, *to = &reader;
	/* The page is charged to its reader; to the stream's owner while it is taken away. */
	uid_t uid = l ? l->process->uid : s->buffer->uid;
	int r;

	if (m->follow < STREAM_EVERY || m->follow > STREAM_SHARE)
		return -EBADMSG;
	READER_FIELDS(READ)
	r = stream_adopt_seat(&t->catalog->accounts, s, uid, &reader, m->reader,
			      take(t, 's', m->page));
	if (r < 0)
		return r;
	s->readers[m->reader].page->fd_index = m->page;
	if (l)
		lease_follow(l, (int)m->reader);
	if (!l || m->dropped)
		return 0;
	if (stream_was_dropped(s, m->reader))
		stream_drop(s, m->reader);
	else if (!stream_has_joined(s, m->reader))
		stream_join(s, m->reader, l->process->pid);
	return 0;
}

/* A reader that died while no daemon ran keeps no frame any more. */
static int adopt_reader(const struct target *t, const Gpushm__Journal__Reader *m)
{
	struct buffer *b = catalog_by_id(t->catalog, m->buffer);
	struct lease *l = catalog_lease_by_id(t->catalog, m->lease);
	int r;

	if (!b || !b->stream)
		return 0;
	if (l && (l->buffer != b || l->access != ACCESS_READ || l->reader >= 0))
		return 0;
	r = adopt_seat(t, b->stream, m, l);
	if (is_shortage(r))
		return r;
	if (r == 0 && l)
		return 0;
	forget(t, 's', m->page);
	if (r == 0) {
		stream_leave(b->stream, m->reader);
		stream_free_seat(b->stream, m->reader, &t->catalog->retired_pages);
	} else {
		log_error_id(LOG_ID_STATE_NOT_READ,
			     "a reader of stream \"%s\" can't be restored: %s; it is dropped",
			     b->key ? b->key : "", strerror(-r));
	}
	return 0;
}

/* Seats of readers that are not in the journal, because its end is damaged. */
static void clear_seats(struct stream *s)
{
	for (uint32_t i = 0; i < s->words.shape.readers; i++)
		if (!s->readers[i].page)
			stream_clear_seat(s, i);
}

/* A producer's end comes behind that of readers: what a dead member held is there before that. */

static int adopt_members(struct replay *r, struct target *t)
{
	struct stream *s;
	struct item *it;
	int err = 0;

	list_foreach (it, &r->readers, link)
		if (err == 0)
			err = adopt_reader(t, (Gpushm__Journal__Reader *)it->message);
	if (err < 0)
		return err;
	list_foreach (s, &t->catalog->streams, link)
		clear_seats(s);
	list_foreach (it, &r->streams, link)
		adopt_producer(r, t, (Gpushm__Journal__Stream *)it->message);
	list_foreach (s, &t->catalog->streams, link)
		if (s->state != STREAM_RUNNING)
			catalog_find_leaving(s);
	return 0;
}

/* 0; -ENOENT: its bytes are nowhere else. */
static int adopt_clean(struct target *t, struct buffer *b, const Gpushm__Journal__Buffer *m)
{
	int r = m->has_twin ? catalog_adopt_twin(t->catalog, b, m->twin) : -ENOENT;

	if (!m->source || catalog_cache(t->catalog, b) < 0)
		return r;
	b->cached->source = true;
	return 0;
}

/* After the leases: without twin and source an evicted buffer is lost, and they end with it. */
static void adopt_twins(struct replay *r, struct target *t)
{
	struct item *it;

	list_foreach (it, &r->buffers, link) {
		const Gpushm__Journal__Buffer *m = (Gpushm__Journal__Buffer *)it->message;
		struct buffer *b = catalog_by_id(t->catalog, m->id);

		if (!b || (!m->has_twin && !m->evicted && !m->source))
			continue;
		if (adopt_clean(t, b, m) < 0) {
			if (b->evicted)
				catalog_memory_lost(t->catalog, b, "its twin did not come back");
			continue;
		}
		b->cached->keeps = m->has_keep_ms;
		b->cached->keep_ms = m->keep_ms;
		b->cached->priority = m->priority;
	}
}

static int adopt_all(struct replay *r, struct target *t)
{
	struct item *it;
	int err = 0;

	list_foreach (it, &r->pools, link)
		if (err == 0)
			err = adopt_pool(t, (Gpushm__Journal__Pool *)it->message);
	pools_replace_retired(t->pools);
	list_foreach (it, &r->buffers, link)
		if (err == 0)
			err = adopt_buffer(t, (Gpushm__Journal__Buffer *)it->message);
	list_foreach (it, &r->streams, link)
		if (err == 0)
			err = adopt_stream(t, (Gpushm__Journal__Stream *)it->message);
	if (err == 0)
		err = adopt_leases(r, t);
	if (err == 0)
		adopt_twins(r, t);
	return err < 0 ? err : adopt_members(r, t);
}

/* Our ids start at the clock, so they are higher unless the clock was set back. */
static void continue_ids(const struct replay *r, struct target *t)
{
	struct catalog *c = t->catalog;

	if (c->next_buffer < r->next_buffer)
		c->next_buffer = r->next_buffer;
	if (c->next_lease < r->next_lease)
		c->next_lease = r->next_lease;
	if (t->pools->last_id + 1 < r->daemon->next_pool)
		t->pools->last_id = r->daemon->next_pool - 1;
}

/* A later gpushmd may know more codes. */
static void adopt_refusals(const Gpushm__Journal__Refusals *m, struct refusals *refusals)
{
	for (size_t i = 0; m && i < m->n_counts && i < CODE_COUNT; i++)
		refusals->counts[i] = m->counts[i];
}

static void count_restart(const Gpushm__Journal__Restarts *before, const struct target *t)
{
	struct restarts *now = &t->catalog->restarts;

	if (before)
		*now = (struct restarts){ before->restarts, before->restored, before->lost };
	now->n++;
	now->restored += t->buffers;
	now->lost += t->dropped;
}

int deserialize(struct fdstore *store, struct catalog *catalog, struct reaper *reaper,
		struct pools *pools, struct refusals *refusals, unsigned char id[DAEMON_ID_BYTES],
		uint64_t *ret_generation)
{
	struct target t = { .store = store, .catalog = catalog, .reaper = reaper, .pools = pools };
	struct replay r;
	int err = replay(store, &r, ret_generation);

	if (err < 0)
		return err == -ENOENT ? 0 : err;
	memcpy(id, r.daemon->id.data, DAEMON_ID_BYTES);
	continue_ids(&r, &t);
	adopt_refusals(r.refusals, refusals);
	err = adopt_all(&r, &t);
	count_restart(r.restarts, &t);
	hashtable_done(&t.sessions);
	free(t.memory);
	replay_done(&r);
	if (err < 0)
		log_error_id(
			LOG_ID_STATE_NOT_READ,
			"what an earlier gpushmd left can't be restored: %s; it is kept for the "
			"next start (LimitNOFILE)",
			strerror(-err));
	else
		log_notice("restored %u buffers and %u leases; %u buffers were lost, %u leases "
			   "ended with their processes",
			   t.buffers, t.leases, t.dropped, t.ended);
	return err;
}
