/* SPDX-License-Identifier: MIT
 *
 * Writing. An fd goes to its keeper before the record that speaks of it, so that a record never
 * names an fd that nobody has; an fd without a record is dropped by the next daemon. A name is a
 * letter and a number: j and a journal's generation, p and a pool's id, m and t and a buffer's
 * slot, for its memory and its table, k and a session, for the pidfd of a process in a namespace
 * that we don't see. Of a host buffer's two fds the one for writing is
 * kept: the next daemon makes the other from it.
 */
#include "daemon/state/serialize.h"

#include "daemon/util/log.h"
#include "journal.pb-c.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PIDFDS_MAX 1024u /* names of 15 bytes, in the variable that slots.h tells of */
#define DEAD_MIN 4096u	 /* below that a new journal is not worth its fds */

static ProtobufCBinaryData bytes_of(const void *data, size_t len)
{
	return (ProtobufCBinaryData){ len, (uint8_t *)data };
}

static int append(struct archive *a, uint16_t type, const ProtobufCMessage *m)
{
	unsigned char body[JOURNAL_BODY_MAX];

	if (protobuf_c_message_get_packed_size(m) > sizeof(body))
		return -EMSGSIZE;
	return journal_append(&a->journal, type, body, protobuf_c_message_pack(m, body));
}

static int write_head(struct archive *a, const struct archive_head *head)
{
	Gpushm__Journal__Daemon m = GPUSHM__JOURNAL__DAEMON__INIT;

	m.has_id = m.has_software = m.has_next_buffer = m.has_next_lease = m.has_next_pool = 1;
	m.id = bytes_of(head->daemon, sizeof(head->daemon));
	m.software = bytes_of(GPUSHM_VERSION, strlen(GPUSHM_VERSION));
	m.next_buffer = head->next_buffer;
	m.next_lease = head->next_lease;
	m.next_pool = head->next_pool;
	return append(a, GPUSHM__JOURNAL__TYPE__TYPE_DAEMON, &m.base);
}

int archive_init(struct archive *a, struct fdstore *store, struct fd_index *slots,
		 uint64_t generation, const struct archive_head *head)
{
	int r;

	*a = (struct archive){ .store = store, .slots = slots, .journal = JOURNAL_NONE };
	r = journal_new(generation, &a->journal);
	if (r == 0)
		r = write_head(a, head);
	return r;
}

void archive_done(struct archive *a)
{
	journal_done(&a->journal);
}

static int keep(struct archive *a, char kind, uint64_t id, int fd)
{
	char name[FDSTORE_NAME_MAX + 1];

	fdstore_name(name, kind, id);
	return a->keeps ? fdstore_keep(a->store, name, fd) : 0;
}

static void forget(struct fdstore *s, char kind, uint64_t id)
{
	char name[FDSTORE_NAME_MAX + 1];

	fdstore_name(name, kind, id);
	fdstore_forget(s, name);
}

int archive_complete(struct archive *a)
{
	Gpushm__Journal__Complete m = GPUSHM__JOURNAL__COMPLETE__INIT;
	int r;

	m.has_records = 1;
	m.records = (uint32_t)a->journal.sequence;
	r = append(a, GPUSHM__JOURNAL__TYPE__TYPE_COMPLETE, &m.base);
	a->keeps = true;
	if (r == 0)
		r = keep(a, 'j', a->journal.generation, a->journal.fd);
	if (r == 0 && a->journal.generation > 0)
		forget(a->store, 'j', a->journal.generation - 1);
	return r;
}

int archive_pool(struct archive *a, const struct pool *p)
{
	Gpushm__Journal__Pool m = GPUSHM__JOURNAL__POOL__INIT;
	int r = p->pool_fd >= 0 ? keep(a, 'p', p->id, p->pool_fd) : 0;

	if (r < 0)
		return r;
	m.has_id = m.has_name = m.has_kind = m.has_size_bytes = m.has_granularity = 1;
	m.id = p->id;
	m.name = bytes_of(p->config.name, strlen(p->config.name));
	m.kind = p->config.kind;
	m.size_bytes = p->size;
	m.granularity = p->granularity;
	m.has_numa_node = 1;
	m.numa_node = p->numa_node;
	if (p->device) {
		m.has_device_uuid = m.has_device_name = m.has_pci_id = 1;
		m.device_uuid = bytes_of(p->device->uuid, sizeof(p->device->uuid));
		m.device_name = bytes_of(p->device->name, strlen(p->device->name));
		m.pci_id = bytes_of(p->device->pci_id, strlen(p->device->pci_id));
	}
	a->live++;
	return append(a, GPUSHM__JOURNAL__TYPE__TYPE_POOL, &m.base);
}

void archive_forget_pool(struct fdstore *s, const struct pool *p)
{
	if (p->config.kind == POOL_MEMPOOL)
		forget(s, 'p', p->id);
}

/* A buffer above what the keeper takes is in the journal without it: for an exec that is enough.
 */
static int keep_buffer(struct archive *a, struct buffer *b)
{
	int r;

	if (b->fd_index == FD_INDEX_NONE)
		b->fd_index = fd_index_take(a->slots);
	if (b->fd_index >= FD_INDEX_KEPT)
		return 0;
	r = b->block.fd >= 0 ? keep(a, 'm', b->fd_index, b->block.fd) : 0;
	return r < 0 || b->table_fd < 0 ? r : keep(a, 't', b->fd_index, b->table_fd);
}

static void fill_death(Gpushm__Journal__Buffer *m, const struct death *d)
{
	m->has_dirty_pid = m->has_dirty_uid = m->has_dirty_command = m->has_dirty_ns = 1;
	m->dirty_pid = d->pid;
	m->dirty_uid = d->uid;
	m->dirty_command = bytes_of(d->command, strlen(d->command));
	m->dirty_ns = d->ns;
}

static void fill_buffer(Gpushm__Journal__Buffer *m, const struct buffer *b)
{
	m->has_id = m->has_pool = m->has_state = m->has_uid = m->has_gid = m->has_mode = 1;
	m->id = b->id;
	m->has_key = b->key != NULL;
	m->key = bytes_of(b->key, b->key ? strlen(b->key) : 0);
	m->pool = b->pool->id;
	m->state = b->state;
	m->uid = b->uid;
	m->gid = b->gid;
	m->mode = b->mode;
	m->has_transient = m->has_foreign = m->has_bytes = m->has_allocated_bytes = 1;
	m->transient = b->transient;
	m->foreign = b->foreign;
	m->bytes = b->bytes;
	m->allocated_bytes = b->block.bytes;
	if (b->block.pointer) {
		m->has_record = 1;
		m->record = bytes_of(b->block.pointer->record, RECORD_BYTES);
	}
	m->has_table = m->has_table_bytes = m->has_digest = m->has_arrays = 1;
	m->table = b->table_fd >= 0;
	m->table_bytes = b->table_bytes;
	m->digest = b->digest;
	m->arrays = b->arrays;
	m->has_created_ns = m->has_published_ns = 1;
	m->created_ns = b->created_ns;
	m->published_ns = b->published_ns;
	m->has_slot = 1;
	m->slot = b->fd_index;
	m->has_dirty = m->dirty = b->dirty;
	if (b->dirty)
		fill_death(m, &b->death);
}

static int write_buffer(struct archive *a, const struct buffer *b)
{
	Gpushm__Journal__Buffer m = GPUSHM__JOURNAL__BUFFER__INIT;

	fill_buffer(&m, b);
	return append(a, GPUSHM__JOURNAL__TYPE__TYPE_BUFFER, &m.base);
}

void archive_change(struct archive *a, const struct buffer *b)
{
	int r = write_buffer(a, b);

	a->dead++;
	if (r < 0)
		log_error("the journal can't be written: %s; a restart would not know what "
			  "happened to buffer %" PRIu64,
			  strerror(-r), b->id);
}

int archive_buffer(struct archive *a, struct buffer *b)
{
	int r = keep_buffer(a, b);

	if (r == 0 && b->fd_index == FD_INDEX_NONE)
		r = -ENOSPC;
	if (r < 0)
		return r;
	a->live++;
	return write_buffer(a, b);
}

static int write_lease(struct archive *a, const struct lease *l)
{
	Gpushm__Journal__Lease m = GPUSHM__JOURNAL__LEASE__INIT;
	const struct process *p = l->process;

	m.has_id = m.has_buffer = m.has_access = m.has_since_ns = m.has_session = 1;
	m.id = l->id;
	m.buffer = l->buffer->id;
	m.access = l->access;
	m.since_ns = l->since_ns;
	m.session = p->session;
	m.has_pid = m.has_start_time = m.has_uid = m.has_gid = m.has_command = 1;
	m.pid = p->pid;
	m.start_time = p->start_time;
	m.uid = p->uid;
	m.gid = p->gid;
	m.command = bytes_of(p->command, strlen(p->command));
	return append(a, GPUSHM__JOURNAL__TYPE__TYPE_LEASE, &m.base);
}

/* Beyond those they are watched as long as this daemon lives. */
static int keep_process(struct archive *a, struct process *p)
{
	int r;

	if (p->kept || !a->keeps || !process_needs_pidfd(p) || a->store->pidfds >= PIDFDS_MAX)
		return 0;
	r = keep(a, 'k', p->session, p->pidfd);
	p->kept = r == 0;
	a->store->pidfds += p->kept;
	return r;
}

int archive_lease(struct archive *a, const struct lease *l)
{
	int r = keep_process(a, l->process);

	if (r < 0)
		return r;
	a->live++;
	return write_lease(a, l);
}

/* What it said before is dead. */
int archive_move(struct archive *a, const struct lease *l)
{
	int r = keep_process(a, l->process);

	if (r == 0)
		r = write_lease(a, l);
	a->dead += r == 0;
	return r;
}

/* The record that this one ends is dead from now on, and so is this one. Where it could not be
 * written there is none that was counted. */
static void end(struct archive *a, Gpushm__Journal__Type type, uint64_t id, unsigned ended)
{
	Gpushm__Journal__Id m = GPUSHM__JOURNAL__ID__INIT;
	int r;

	m.has_id = 1;
	m.id = id;
	a->dead += ended + 1;
	a->live -= ended < a->live ? ended : a->live;
	r = append(a, (uint16_t)type, &m.base);
	if (r < 0)
		log_error("the journal can't be written: %s; a restart would find what has ended",
			  strerror(-r));
}

void archive_unlink(struct archive *a, const struct buffer *b)
{
	end(a, GPUSHM__JOURNAL__TYPE__TYPE_UNLINK, b->id, 0);
}

void archive_gone(struct archive *a, struct buffer *b)
{
	end(a, GPUSHM__JOURNAL__TYPE__TYPE_GONE, b->id, 1);
	if (b->block.fd >= 0 && b->fd_index < FD_INDEX_KEPT)
		forget(a->store, 'm', b->fd_index);
	if (b->table_fd >= 0 && b->fd_index < FD_INDEX_KEPT)
		forget(a->store, 't', b->fd_index);
	fd_index_give(a->slots, b->fd_index);
	b->fd_index = FD_INDEX_NONE;
}

void archive_close(struct archive *a, const struct lease *l)
{
	end(a, GPUSHM__JOURNAL__TYPE__TYPE_CLOSE, l->id, 1);
}

void archive_forget_process(struct archive *a, struct process *p)
{
	if (!p->kept)
		return;
	forget(a->store, 'k', p->session);
	p->kept = false;
	a->store->pidfds--;
}

/* ---- for an exec ---- */

static int list_fd(struct fd_list *m, char kind, uint64_t number, int fd)
{
	char name[FDSTORE_NAME_MAX + 1];

	fdstore_name(name, kind, number);
	return fd < 0 ? 0 : fd_list_add(m, name, fd);
}

int archive_list(const struct archive *a, struct fd_list *m)
{
	return list_fd(m, 'j', a->journal.generation, a->journal.fd);
}

int archive_list_pool(const struct pool *p, struct fd_list *m)
{
	return list_fd(m, 'p', p->id, p->pool_fd);
}

int archive_list_buffer(const struct buffer *b, struct fd_list *m)
{
	int r = list_fd(m, 'm', b->fd_index, b->block.fd);

	return r < 0 ? r : list_fd(m, 't', b->fd_index, b->table_fd);
}

int archive_list_process(const struct process *p, struct fd_list *m)
{
	return list_fd(m, 'k', p->session, p->pidfd);
}

bool archive_is_stale(const struct archive *a)
{
	return a->dead > DEAD_MIN && a->dead > a->live;
}
