/* SPDX-License-Identifier: MIT
 *
 * An fd goes to systemd before the record that names it, so that a record never names an fd that
 * nobody has; the next daemon drops an fd without a record. The name of an fd is a letter and a
 * number: j and the journal's generation, p and the pool's id, m and t (memory, table) and the
 * buffer's fd index, s and a number for each page of a stream, k and the session for the pidfd of a
 * process in a PID namespace that we don't see. Of a host buffer's fds systemd keeps the one that
 * is never lent; the next daemon makes the others from it.
 */
#include "daemon/state/serialize.h"

#include "daemon/state/fields.h"
#include "daemon/util/log.h"
#include "journal.pb-c.h"
#include "proto/base/own.h"
#include "proto/message.h"

#include <inttypes.h>
#include <string.h>

#define DEAD_MIN 4096u /* with fewer dead records a new journal is not worth its fds */
_Static_assert(BUFFER_NOT_KEPT == FD_INDEX_NONE, "buffer::fd_index");

/* For the lists of fields.h: from a struct to the message. */
#define WRITE(field) SET(&m, field, from->field);

static ProtobufCBinaryData bytes_of(const void *data, size_t len)
{
	return (ProtobufCBinaryData){ len, (uint8_t *)data };
}

static int append(struct serializer *s, uint16_t type, const ProtobufCMessage *m)
{
	unsigned char body[JOURNAL_BODY_MAX];

	if (protobuf_c_message_get_packed_size(m) > sizeof(body))
		return -EMSGSIZE;
	return journal_append(&s->journal, type, body, protobuf_c_message_pack(m, body));
}

static int keep(struct serializer *s, char kind, uint64_t number, int fd)
{
	return s->keeps && fd >= 0 ? fdstore_keep(s->store, fdstore_name(kind, number).text, fd)
				   : 0;
}

static void forget(struct fdstore *store, char kind, uint64_t number)
{
	fdstore_forget(store, fdstore_name(kind, number).text);
}

/* ---- the journal's ends ---- */

static int write_head(struct serializer *s, const struct serialize_head *head)
{
	Gpushm__Journal__Daemon m = GPUSHM__JOURNAL__DAEMON__INIT;

	SET(&m, id, bytes_of(head->daemon, sizeof(head->daemon)));
	SET(&m, software, bytes_of(GPUSHM_VERSION, strlen(GPUSHM_VERSION)));
	SET(&m, next_buffer, head->next_buffer);
	SET(&m, next_lease, head->next_lease);
	SET(&m, next_pool, head->next_pool);
	return append(s, GPUSHM__JOURNAL__TYPE__TYPE_DAEMON, &m.base);
}

int serialize_complete(struct serializer *s)
{
	Gpushm__Journal__Complete m = GPUSHM__JOURNAL__COMPLETE__INIT;
	int r;

	SET(&m, records, (uint32_t)s->journal.sequence);
	r = append(s, GPUSHM__JOURNAL__TYPE__TYPE_COMPLETE, &m.base);
	s->keeps = true;
	if (r == 0)
		r = keep(s, 'j', s->journal.generation, s->journal.fd);
	if (r == 0 && s->journal.generation > 0)
		forget(s->store, 'j', s->journal.generation - 1);
	return r;
}

bool serialize_is_stale(const struct serializer *s)
{
	return s->dead > DEAD_MIN && s->dead > s->live;
}

/* ---- objects ---- */

int serialize_pool(struct serializer *s, const struct pool *p)
{
	Gpushm__Journal__Pool m = GPUSHM__JOURNAL__POOL__INIT;
	int r = keep(s, 'p', p->id, p->pool_fd);

	if (r < 0)
		return r;
	SET(&m, id, p->id);
	SET(&m, name, bytes_of(p->config.name, strlen(p->config.name)));
	SET(&m, kind, p->config.kind);
	SET(&m, size_bytes, p->size);
	SET(&m, granularity, p->granularity);
	SET(&m, numa_node, p->numa_node);
	if (p->device) {
		SET(&m, device_uuid, bytes_of(p->device->uuid, sizeof(p->device->uuid)));
		SET(&m, device_name, bytes_of(p->device->name, strlen(p->device->name)));
		SET(&m, pci_id, bytes_of(p->device->pci_id, strlen(p->device->pci_id)));
	}
	s->live++;
	return append(s, GPUSHM__JOURNAL__TYPE__TYPE_POOL, &m.base);
}

/* The record before it is dead. */
int serialize_refusals(struct serializer *s, struct refusals *refusals)
{
	Gpushm__Journal__Refusals m = GPUSHM__JOURNAL__REFUSALS__INIT;
	int r;

	m.n_counts = CODE_COUNT;
	m.counts = refusals->counts;
	r = append(s, GPUSHM__JOURNAL__TYPE__TYPE_REFUSALS, &m.base);
	s->dead++;
	refusals->changed = r < 0;
	return r;
}

int serialize_restarts(struct serializer *s, const struct restarts *restarts)
{
	Gpushm__Journal__Restarts m = GPUSHM__JOURNAL__RESTARTS__INIT;

	SET(&m, restarts, restarts->n);
	SET(&m, restored, restarts->restored);
	SET(&m, lost, restarts->lost);
	s->dead++;
	return append(s, GPUSHM__JOURNAL__TYPE__TYPE_RESTARTS, &m.base);
}

void serialize_forget_pool(struct fdstore *store, const struct pool *p)
{
	if (kind_opens_pool(p->config.kind))
		forget(store, 'p', p->id);
}

static uint32_t take_index(struct fdstore *store, struct buffer *b)
{
	uint32_t index =
		fd_indices_take(&store->buffers, !store->systemd || buffer_take_place(b, 0));

	/* An administrator's share has no end, but the places have. */
	if (index >= FD_INDEX_KEPT)
		discharge(&b->kept_charge);
	return index;
}

static int keep_memory(struct serializer *s, const struct buffer *b)
{
	if (b->fd_index >= FD_INDEX_KEPT)
		return 0;
	return keep(s, 'm', b->fd_index,
		    b->block.fd_original < 0 ? b->block.fd : b->block.fd_original);
}

/* The record of a buffer that systemd has no space for is written all the same: for an exec that is
 * enough. */
static int keep_buffer(struct serializer *s, struct buffer *b)
{
	int r;

	if (b->fd_index == BUFFER_NOT_KEPT)
		b->fd_index = take_index(s->store, b);
	if (b->fd_index >= FD_INDEX_KEPT)
		return b->fd_index == FD_INDEX_NONE ? -ENOSPC : 0;
	r = keep_memory(s, b);
	return r < 0 ? r : keep(s, 't', b->fd_index, b->table_fd);
}

static void fill_death(Gpushm__Journal__Buffer *m, const struct death *d)
{
	SET(m, dirty_pid, d->pid);
	SET(m, dirty_uid, d->uid);
	SET(m, dirty_command, bytes_of(d->command, strlen(d->command)));
	SET(m, dirty_ns, d->ns);
}

/* replaced: NULL, or the buffer that had its name before. */
static int write_buffer(struct serializer *s, const struct buffer *b, const struct buffer *replaced)
{
	Gpushm__Journal__Buffer m = GPUSHM__JOURNAL__BUFFER__INIT;
	const struct buffer *from = b;

	BUFFER_FIELDS(WRITE)
	if (b->key)
		SET(&m, key, bytes_of(b->key, strlen(b->key)));
	SET(&m, pool, b->pool->id);
	/* 0.2, which starts after a crash, then says that the memory was not kept. */
	SET(&m, allocated_bytes, b->evicted ? b->bytes : b->block.bytes);
	if (b->block.pointer)
		SET(&m, record, bytes_of(b->block.pointer->record, RECORD_BYTES));
	SET(&m, table, b->table_fd >= 0);
	SET(&m, slot, b->fd_index);
	SET(&m, evicted, b->evicted);
	if (b->twin)
		SET(&m, twin, b->twin->id);
	if (b->cached && b->cached->keeps) {
		SET(&m, keep_ms, b->cached->keep_ms);
		SET(&m, priority, b->cached->priority);
	}
	SET(&m, source, b->cached && b->cached->source);
	if (b->dirty)
		fill_death(&m, &b->death);
	if (replaced)
		SET(&m, replaces, replaced->id);
	return append(s, GPUSHM__JOURNAL__TYPE__TYPE_BUFFER, &m.base);
}

int serialize_buffer(struct serializer *s, struct buffer *b, const struct buffer *replaced)
{
	int r = keep_buffer(s, b);

	if (r < 0)
		return r;
	s->live++;
	return write_buffer(s, b, replaced);
}

/* ---- streams ---- */

/* Beyond the indices that systemd keeps there is only place for an exec. */
static int keep_page(struct serializer *s, struct stream_page *p)
{
	struct fd_indices *indices = &s->store->pages;

	if (p->fd_index == STREAM_PAGE_NOT_KEPT)
		p->fd_index = fd_indices_take(indices, true);
	if (p->fd_index == FD_INDEX_NONE || (s->store->systemd && p->fd_index >= FD_PAGES_KEPT)) {
		fd_indices_give(indices, p->fd_index);
		p->fd_index = STREAM_PAGE_NOT_KEPT;
		return -ENOSPC;
	}
	return keep(s, 's', p->fd_index, p->fd_original < 0 ? p->fd : p->fd_original);
}

static void forget_page(struct serializer *s, struct stream_page *p)
{
	if (p->fd_index < FD_PAGES_KEPT)
		forget(s->store, 's', p->fd_index);
	fd_indices_give(&s->store->pages, p->fd_index);
	p->fd_index = STREAM_PAGE_NOT_KEPT;
}

#define WRITE_SHAPE(field) SET(m, field, from->field);
static void fill_shape(Gpushm__Journal__Stream *m, const struct stream_shape *from)
{
	SHAPE_FIELDS(WRITE_SHAPE)
}

static int write_stream(struct serializer *s, const struct buffer *b)
{
	Gpushm__Journal__Stream m = GPUSHM__JOURNAL__STREAM__INIT;
	const struct stream *from = b->stream;

	STREAM_FIELDS(WRITE)
	fill_shape(&m, &from->words.shape);
	SET(&m, buffer, b->id);
	SET(&m, state, from->state);
	SET(&m, producer, from->producer ? from->producer->id : 0);
	SET(&m, head, from->head->fd_index);
	SET(&m, group, from->group->fd_index);
	return append(s, GPUSHM__JOURNAL__TYPE__TYPE_STREAM, &m.base);
}

static int write_reader(struct serializer *s, const struct buffer *b, uint32_t index)
{
	Gpushm__Journal__Reader m = GPUSHM__JOURNAL__READER__INIT;
	const struct stream_reader *from = &b->stream->readers[index];

	READER_FIELDS(WRITE)
	SET(&m, lease, from->lease->id);
	SET(&m, buffer, b->id);
	SET(&m, reader, index);
	SET(&m, page, from->page->fd_index);
	return append(s, GPUSHM__JOURNAL__TYPE__TYPE_READER, &m.base);
}

static int keep_stream(struct serializer *s, const struct buffer *b)
{
	struct stream *stream = b->stream;
	int r = stream ? keep_page(s, stream->head) : 0;

	if (!stream || r < 0)
		return r;
	r = keep_page(s, stream->group);
	if (r == 0)
		r = write_stream(s, b);
	s->live += r == 0;
	return r;
}

static int keep_reader(struct serializer *s, const struct buffer *b, uint32_t index)
{
	int r = keep_page(s, b->stream->readers[index].page);

	return r < 0 ? r : write_reader(s, b, index);
}

static int serialize_stream(struct serializer *s, const struct buffer *b)
{
	int r = keep_stream(s, b);

	for (uint32_t i = 0; b->stream && i < b->stream->words.shape.readers && r == 0; i++) {
		if (!b->stream->readers[i].page)
			continue;
		r = keep_reader(s, b, i);
		s->live += r == 0;
	}
	return r;
}

/* ---- leases ---- */

static bool take_pid_place(struct serializer *s, struct pidfd *p)
{
	struct fault ignored;

	return s->store->pidfds < FD_PIDFDS_KEPT && p->charge.account &&
	       charge(p->charge.account->accounts, p->uid, ACCOUNT_KEPT_PIDS, 1, 0, &p->kept_charge,
		      &ignored) == 0;
}

/* Pidfds above a user's share are not kept: the daemon watches those processes as long as it lives.
 */
static int keep_process(struct serializer *s, const struct process *p)
{
	struct pidfd *pidfd = p->pidfd;
	int r;

	if (!s->keeps || !process_needs_pidfd(p) || pidfd->kept || !take_pid_place(s, pidfd))
		return 0;
	r = keep(s, 'k', pidfd->session, pidfd->fd);
	pidfd->kept = r == 0;
	if (r < 0)
		discharge(&pidfd->kept_charge);
	s->store->pidfds += pidfd->kept;
	return r;
}

static int write_lease(struct serializer *s, const struct lease *l)
{
	Gpushm__Journal__Lease m = GPUSHM__JOURNAL__LEASE__INIT;
	const struct process *from = l->process;
	int r = keep_process(s, from);

	if (r < 0)
		return r;
	PROCESS_FIELDS(WRITE)
	SET(&m, id, l->id);
	SET(&m, buffer, l->buffer->id);
	SET(&m, access, l->access);
	SET(&m, since_ns, l->since_ns);
	if (l->away)
		SET(&m, away, true);
	if (process_is_parked(from))
		SET(&m, parked, true);
	if (process_needs_pidfd(from))
		SET(&m, pidfd, from->pidfd->session);
	SET(&m, command, bytes_of(from->command, strlen(from->command)));
	return append(s, GPUSHM__JOURNAL__TYPE__TYPE_LEASE, &m.base);
}

int serialize_lease(struct serializer *s, const struct lease *l)
{
	s->live++;
	return write_lease(s, l);
}

int serialize_catalog(struct serializer *s, const struct catalog *c)
{
	struct buffer *b;
	const struct pool *pool;
	const struct lease *l;
	int r = 0;

	list_foreach (pool, c->pools, link)
		if (r == 0)
			r = serialize_pool(s, pool);
	list_foreach (b, &c->buffers, all_link) {
		if (r < 0 || b->state == BUFFER_FILLING)
			continue;
		r = serialize_buffer(s, b, NULL);
		list_foreach (l, &b->leases, buffer_link)
			if (r == 0)
				r = serialize_lease(s, l);
		if (r == 0)
			r = serialize_stream(s, b);
	}
	return r;
}

/* ---- what happens in the catalog ---- */

/* Both this record and the one that it ends are dead; a record that could not be written was never
 * counted as live. These records may be late without harm: at worst a restart brings back a lease
 * that has ended, until its process is gone. */
static void end(struct serializer *s, Gpushm__Journal__Type type, uint64_t id, unsigned ended)
{
	Gpushm__Journal__Id m = GPUSHM__JOURNAL__ID__INIT;
	int r;

	SET(&m, id, id);
	s->dead += ended + 1;
	s->live -= ended < s->live ? ended : s->live;
	r = append(s, (uint16_t)type, &m.base);
	if (r < 0)
		log_error_id(
			LOG_ID_STATE_NOT_WRITTEN,
			"the journal can't be written: %s; a restart would find what has ended",
			strerror(-r));
}

/* Its leases and its stream go first: the buffer's own record makes all of them count at once. A
 * daemon that dies before it leaves a buffer that was never published; one that dies after it, a
 * buffer that its creator still holds. */
static void on_published(struct serializer *s, struct buffer *b, const struct buffer *replaced)
{
	const struct lease *l;
	int r = 0;

	list_foreach (l, &b->leases, buffer_link)
		if (r == 0)
			r = serialize_lease(s, l);
	if (r == 0)
		r = keep_stream(s, b);
	if (r == 0)
		r = serialize_buffer(s, b, replaced);
	if (r == 0)
		return;
	discharge(&b->kept_charge);
	log_error_id(LOG_ID_STATE_NOT_WRITTEN, "buffer %" PRIu64 " would not survive a restart: %s",
		     b->id, strerror(-r));
	if (replaced)
		end(s, GPUSHM__JOURNAL__TYPE__TYPE_UNLINK, replaced->id, 0);
}

/* The new record replaces the one before, which is dead. A buffer whose publication could not be
 * written has no fd index, and stays unknown to the journal. */
static int on_renamed(struct serializer *s, const struct buffer *b, const struct buffer *replaced)
{
	int r;

	if (b->fd_index == BUFFER_NOT_KEPT) {
		if (replaced)
			end(s, GPUSHM__JOURNAL__TYPE__TYPE_UNLINK, replaced->id, 0);
		return 0;
	}
	r = write_buffer(s, b, replaced);
	s->dead += r == 0;
	return r;
}

static void on_changed(struct serializer *s, const struct buffer *b)
{
	int r = write_buffer(s, b, NULL);

	s->dead++;
	if (r < 0)
		log_error_id(LOG_ID_STATE_NOT_WRITTEN,
			     "the journal can't be written: %s; a restart would not know what "
			     "happened to buffer %" PRIu64,
			     strerror(-r), b->id);
}

static void on_freed(struct serializer *s, struct buffer *b)
{
	end(s, GPUSHM__JOURNAL__TYPE__TYPE_GONE, b->id, 1);
	if (b->block.fd >= 0 && b->fd_index < FD_INDEX_KEPT)
		forget(s->store, 'm', b->fd_index);
	if (b->table_fd >= 0 && b->fd_index < FD_INDEX_KEPT)
		forget(s->store, 't', b->fd_index);
	fd_indices_give(&s->store->buffers, b->fd_index);
	discharge(&b->kept_charge);
	b->fd_index = BUFFER_NOT_KEPT;
	if (!b->stream)
		return;
	forget_page(s, b->stream->head);
	forget_page(s, b->stream->group);
	s->dead++;
}

/* The journal knows nothing of a buffer that is being filled: a successor can't publish it. */
static void record_buffer(struct catalog_observer *o, struct buffer *b, enum buffer_event event)
{
	struct serializer *s = container_of(o, struct serializer, observer);

	if (b->state == BUFFER_FILLING)
		return;
	if (event == BUFFER_UNLINKED)
		end(s, GPUSHM__JOURNAL__TYPE__TYPE_UNLINK, b->id, 0);
	else if (event == BUFFER_FREED)
		on_freed(s, b);
	else
		on_changed(s, b);
}

static int record_name(struct catalog_observer *o, struct buffer *b, enum buffer_event event,
		       const struct buffer *replaced)
{
	struct serializer *s = container_of(o, struct serializer, observer);

	if (event == BUFFER_RENAMED)
		return on_renamed(s, b, replaced);
	on_published(s, b, replaced);
	return 0;
}

/* A descriptor is kept before the record counts on it, and forgotten after: each once, because a
 * supervisor keeps another one of the same name beside the first. */
static int record_residence(struct catalog_observer *o, struct buffer *b, bool moved)
{
	struct serializer *s = container_of(o, struct serializer, observer);
	int r = 0;

	if (b->fd_index == BUFFER_NOT_KEPT)
		return 0;
	if (moved && !b->evicted)
		r = keep_memory(s, b);
	if (r == 0)
		r = write_buffer(s, b, NULL);
	s->dead += r == 0;
	if (moved && b->evicted == (r == 0) && b->fd_index < FD_INDEX_KEPT)
		forget(s->store, 'm', b->fd_index);
	return r;
}

static int record_lease(struct catalog_observer *o, const struct lease *l, enum lease_event event)
{
	struct serializer *s = container_of(o, struct serializer, observer);
	int r = 0;

	if (l->buffer->state == BUFFER_FILLING)
		return 0;
	if (event == LEASE_GRANTED)
		return serialize_lease(s, l);
	if (event == LEASE_CHANGED)
		r = write_lease(s, l);
	else
		end(s, GPUSHM__JOURNAL__TYPE__TYPE_CLOSE, l->id, 1);
	s->dead += event == LEASE_CHANGED && r == 0;
	return r;
}

/* A stream whose publication could not be written stays unknown to the journal. */
static int record_stream(struct catalog_observer *o, struct buffer *b)
{
	struct serializer *s = container_of(o, struct serializer, observer);

	if (b->stream->group->fd_index == STREAM_PAGE_NOT_KEPT)
		return 0;
	s->dead++;
	return write_stream(s, b);
}

static int record_reader(struct catalog_observer *o, const struct lease *l, enum reader_event event)
{
	struct serializer *s = container_of(o, struct serializer, observer);
	struct stream_page *page = l->buffer->stream->readers[l->reader].page;
	bool known = page->fd_index != STREAM_PAGE_NOT_KEPT;
	int r;

	if (event == READER_GONE) {
		if (known)
			end(s, GPUSHM__JOURNAL__TYPE__TYPE_LEFT, l->id, 1);
		forget_page(s, page);
		return 0;
	}
	/* systemd has the page's fd, and would keep another one of the same name beside it. */
	if (known) {
		s->dead++;
		return write_reader(s, l->buffer, (uint32_t)l->reader);
	}
	r = keep_reader(s, l->buffer, (uint32_t)l->reader);
	s->live += r == 0;
	return r;
}

static void record_process_end(struct catalog_observer *o, struct process *p)
{
	struct serializer *s = container_of(o, struct serializer, observer);

	/* Another connection of the process may have a lease, or get one. */
	if (!p->pidfd || !p->pidfd->kept || p->pidfd->users > 1)
		return;
	forget(s->store, 'k', p->pidfd->session);
	p->pidfd->kept = false;
	discharge(&p->pidfd->kept_charge);
	s->store->pidfds--;
}

int serializer_init(struct serializer *s, struct fdstore *store, uint64_t generation,
		    const struct serialize_head *head)
{
	int r;

	*s = (struct serializer){ .store = store, .journal = JOURNAL_NONE };
	s->observer = (struct catalog_observer){ .record_buffer = record_buffer,
						 .record_name = record_name,
						 .record_residence = record_residence,
						 .record_lease = record_lease,
						 .record_stream = record_stream,
						 .record_reader = record_reader,
						 .record_process_end = record_process_end };
	list_init(&s->observer.link);
	r = journal_new(generation, &s->journal);
	return r < 0 ? r : write_head(s, head);
}

void serializer_done(struct serializer *s)
{
	list_drop(&s->observer.link);
	journal_done(&s->journal);
}

/* ---- for an exec ---- */

static int list_fd(struct fd_list *l, char kind, uint64_t number, int fd)
{
	return fd < 0 ? 0 : fd_list_add(l, fdstore_name(kind, number).text, fd);
}

/* Each process once, whatever number of leases and connections it has. */
static int list_processes(const struct catalog *c, struct fd_list *l)
{
	const struct buffer *b;
	const struct lease *it;
	int r = 0;

	list_foreach (b, &c->buffers, all_link)
		list_foreach (it, &b->leases, buffer_link)
			if (it->process->pidfd)
				it->process->pidfd->listed = !process_needs_pidfd(it->process);
	list_foreach (b, &c->buffers, all_link) {
		list_foreach (it, &b->leases, buffer_link) {
			struct pidfd *p = it->process->pidfd;

			if (r == 0 && p && !p->listed)
				r = list_fd(l, 'k', p->session, p->fd);
			if (p)
				p->listed = true;
		}
	}
	return r;
}

static int list_pages(const struct stream *stream, struct fd_list *l)
{
	int r = list_fd(l, 's', stream->head->fd_index, stream->head->fd);

	if (r == 0)
		r = list_fd(l, 's', stream->group->fd_index, stream->group->fd);
	for (uint32_t i = 0; i < stream->words.shape.readers && r == 0; i++)
		if (stream->readers[i].page)
			r = list_fd(l, 's', stream->readers[i].page->fd_index,
				    stream->readers[i].page->fd);
	return r;
}

int serialize_list_fds(const struct serializer *s, const struct catalog *c, struct fd_list *l)
{
	const struct buffer *b;
	const struct pool *pool;
	int r = list_fd(l, 'j', s->journal.generation, s->journal.fd);

	list_foreach (pool, c->pools, link)
		if (r == 0)
			r = list_fd(l, 'p', pool->id, pool->pool_fd);
	list_foreach (b, &c->buffers, all_link) {
		if (b->state == BUFFER_FILLING)
			continue;
		if (r == 0)
			r = list_fd(l, 'm', b->fd_index, b->block.fd);
		if (r == 0)
			r = list_fd(l, 't', b->fd_index, b->table_fd);
		if (r == 0 && b->stream)
			r = list_pages(b->stream, l);
	}
	return r < 0 ? r : list_processes(c, l);
}
