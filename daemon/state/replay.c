/* SPDX-License-Identifier: MIT
 *
 * Each record adds a thing, changes it or ends it. The result is what the daemon had when it died,
 * or a moment before if the journal's end is damaged; the log says so. A record of a type that we
 * do not know comes from a later gpushmd and is skipped.
 */
#include "daemon/state/replay.h"

#include "daemon/state/journal.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"
#include "proto/limits.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_of(uint16_t type, uint64_t id)
{
	return hashtable_hash_u64(id * 16 + type);
}

static struct item *find(struct replay *r, uint16_t type, uint64_t id)
{
	struct item *it;

	hashtable_foreach (it, &r->by_id, hash_of(type, id), by_id)
		if (it->type == type && it->id == id)
			return it;
	return NULL;
}

static void drop(struct replay *r, struct item *it)
{
	if (!it)
		return;
	hashtable_drop(&r->by_id, &it->by_id);
	list_drop(&it->link);
	protobuf_c_message_free_unpacked(it->message, NULL);
	free(it);
}

static int add(struct replay *r, struct list *list, uint16_t type, uint64_t id,
	       ProtobufCMessage *message)
{
	struct item *it = calloc(1, sizeof(*it));

	if (!it) {
		protobuf_c_message_free_unpacked(message, NULL);
		return -ENOMEM;
	}
	drop(r, find(r, type, id)); /* a later record replaces it */
	it->type = type;
	it->id = id;
	it->message = message;
	list_insert(list, &it->link);
	hashtable_insert(&r->by_id, &it->by_id, hash_of(type, id));
	return 0;
}

/* The largest number has no next one. The daemon never writes it, but a damaged journal may. */
static void rise(uint64_t *next, uint64_t id)
{
	if (*next <= id)
		*next = id < UINT64_MAX ? id + 1 : id;
}

static int take_daemon(struct replay *r, Gpushm__Journal__Daemon *m)
{
	if (r->daemon || m->id.len != DAEMON_ID_BYTES) {
		gpushm__journal__daemon__free_unpacked(m, NULL);
		return -EBADMSG;
	}
	r->daemon = m;
	r->next_buffer = m->next_buffer;
	r->next_lease = m->next_lease;
	return 0;
}

static void unlink_buffer(struct replay *r, uint64_t id)
{
	struct item *it = find(r, GPUSHM__JOURNAL__TYPE__TYPE_BUFFER, id);

	if (it)
		((Gpushm__Journal__Buffer *)it->message)->has_key = 0;
}

static int take_buffer(struct replay *r, Gpushm__Journal__Buffer *m)
{
	rise(&r->next_buffer, m->id);
	if (m->has_replaces)
		unlink_buffer(r, m->replaces);
	return add(r, &r->buffers, GPUSHM__JOURNAL__TYPE__TYPE_BUFFER, m->id, &m->base);
}

static void rise_joins(struct replay *r, uint64_t buffer, uint64_t generation)
{
	struct item *it = find(r, GPUSHM__JOURNAL__TYPE__TYPE_STREAM, buffer);
	Gpushm__Journal__Stream *m = it ? (Gpushm__Journal__Stream *)it->message : NULL;

	if (m && m->joins < generation)
		m->joins = generation;
}

static int take_reader(struct replay *r, Gpushm__Journal__Reader *m)
{
	rise_joins(r, m->buffer, m->generation);
	return add(r, &r->readers, GPUSHM__JOURNAL__TYPE__TYPE_READER, m->lease, &m->base);
}

static int take_lease(struct replay *r, Gpushm__Journal__Lease *m)
{
	rise(&r->next_lease, m->id);
	return add(r, &r->leases, GPUSHM__JOURNAL__TYPE__TYPE_LEASE, m->id, &m->base);
}

static int take_end(struct replay *r, uint16_t type, Gpushm__Journal__Id *m)
{
	if (type == GPUSHM__JOURNAL__TYPE__TYPE_UNLINK)
		unlink_buffer(r, m->id);
	if (type == GPUSHM__JOURNAL__TYPE__TYPE_GONE) {
		drop(r, find(r, GPUSHM__JOURNAL__TYPE__TYPE_BUFFER, m->id));
		drop(r, find(r, GPUSHM__JOURNAL__TYPE__TYPE_STREAM, m->id));
	}
	if (type == GPUSHM__JOURNAL__TYPE__TYPE_CLOSE)
		drop(r, find(r, GPUSHM__JOURNAL__TYPE__TYPE_LEASE, m->id));
	if (type == GPUSHM__JOURNAL__TYPE__TYPE_CLOSE || type == GPUSHM__JOURNAL__TYPE__TYPE_LEFT)
		drop(r, find(r, GPUSHM__JOURNAL__TYPE__TYPE_READER, m->id));
	gpushm__journal__id__free_unpacked(m, NULL);
	return 0;
}

#define MESSAGE(TYPE, name) \
	[GPUSHM__JOURNAL__TYPE__TYPE_##TYPE] = &gpushm__journal__##name##__descriptor
static const ProtobufCMessageDescriptor *const messages[] = {
	MESSAGE(DAEMON, daemon),     MESSAGE(COMPLETE, complete), MESSAGE(POOL, pool),
	MESSAGE(BUFFER, buffer),     MESSAGE(UNLINK, id),	  MESSAGE(GONE, id),
	MESSAGE(LEASE, lease),	     MESSAGE(CLOSE, id),	  MESSAGE(REFUSALS, refusals),
	MESSAGE(RESTARTS, restarts), MESSAGE(STREAM, stream),	  MESSAGE(READER, reader),
	MESSAGE(LEFT, id),
};

/* Owns the message, which is what `messages` has for that type. */
static int take(struct replay *r, uint16_t type, void *m)
{
	switch (type) {
	case GPUSHM__JOURNAL__TYPE__TYPE_DAEMON:
		return take_daemon(r, m);
	case GPUSHM__JOURNAL__TYPE__TYPE_REFUSALS:
		gpushm__journal__refusals__free_unpacked(r->refusals, NULL);
		r->refusals = m;
		return 0;
	case GPUSHM__JOURNAL__TYPE__TYPE_RESTARTS:
		gpushm__journal__restarts__free_unpacked(r->restarts, NULL);
		r->restarts = m;
		return 0;
	case GPUSHM__JOURNAL__TYPE__TYPE_COMPLETE:
		r->complete = true;
		gpushm__journal__complete__free_unpacked(m, NULL);
		return 0;
	case GPUSHM__JOURNAL__TYPE__TYPE_POOL:
		return add(r, &r->pools, type, ((Gpushm__Journal__Pool *)m)->id, m);
	case GPUSHM__JOURNAL__TYPE__TYPE_STREAM:
		return add(r, &r->streams, type, ((Gpushm__Journal__Stream *)m)->buffer, m);
	case GPUSHM__JOURNAL__TYPE__TYPE_BUFFER:
		return take_buffer(r, m);
	case GPUSHM__JOURNAL__TYPE__TYPE_LEASE:
		return take_lease(r, m);
	case GPUSHM__JOURNAL__TYPE__TYPE_READER:
		return take_reader(r, m);
	default:
		return take_end(r, type, m);
	}
}

static int on_record(uint16_t type, const void *body, size_t len, void *arg)
{
	void *m = NULL;

	if (type >= array_size(messages) || !messages[type])
		return 0;
	m = protobuf_c_message_unpack(messages[type], NULL, len, body);
	return m ? take(arg, type, m) : -EBADMSG;
}

static void drop_all(struct replay *r, struct list *list)
{
	struct item *it;

	list_foreach (it, list, link)
		drop(r, it);
}

void replay_done(struct replay *r)
{
	drop_all(r, &r->pools);
	drop_all(r, &r->buffers);
	drop_all(r, &r->leases);
	drop_all(r, &r->streams);
	drop_all(r, &r->readers);
	hashtable_done(&r->by_id);
	gpushm__journal__daemon__free_unpacked(r->daemon, NULL);
	gpushm__journal__refusals__free_unpacked(r->refusals, NULL);
	gpushm__journal__restarts__free_unpacked(r->restarts, NULL);
	r->daemon = NULL;
	r->refusals = NULL;
	r->restarts = NULL;
}

static int replay_init(struct replay *r)
{
	*r = (struct replay){ 0 };
	list_init(&r->pools);
	list_init(&r->buffers);
	list_init(&r->leases);
	list_init(&r->streams);
	list_init(&r->readers);
	return hashtable_init(&r->by_id);
}

static int read_journal(int *fd, struct replay *r)
{
	struct journal j = JOURNAL_NONE;
	size_t dropped = 0;
	int err = journal_adopt(fd, &j);

	if (err < 0)
		return err;
	err = journal_replay(&j, on_record, r, &dropped);
	journal_done(&j);
	if (dropped)
		log_warning_id(LOG_ID_STATE_NOT_READ,
			       "the journal is damaged: its last %zu bytes are dropped; leases and "
			       "buffers that they describe may be missing",
			       dropped);
	if (err < 0)
		return err;
	return r->complete && r->daemon ? 0 : -EBADMSG;
}

static void tell_useless(const struct named_fd *it, int error)
{
	if (error == -EPROTONOSUPPORT)
		log_error_id(
			LOG_ID_STATE_NOT_READ,
			"what an earlier gpushmd left is dropped: its journal (%s) has version "
			"%u, and gpushmd " GPUSHM_VERSION " reads versions %u to %u; what "
			"processes have mapped stays theirs, but has no name any more; gpushmctl "
			"restart refuses such a program beforehand",
			it->name, journal_version(it->fd), JOURNAL_VERSION_OLDEST, JOURNAL_VERSION);
	else
		log_error_id(LOG_ID_STATE_NOT_READ, "%s can't be used: %s", it->name,
			     strerror(-error));
}

/* From its name at systemd, which a flipped bit in the file does not change. */
static uint64_t generation_of(const struct named_fd *it)
{
	return strtoull(it->name + 1, NULL, 36);
}

/* There are two only if the daemon died while it wrote a new one. */
static struct named_fd *newest(struct fdstore *store)
{
	struct named_fd *found = NULL;
	uint64_t best = 0;

	for (size_t i = 0; i < store->received.n; i++) {
		struct named_fd *it = &store->received.items[i];
		uint64_t n;

		if (it->fd < 0 || it->name[0] != 'j')
			continue;
		n = generation_of(it);
		if (!found || n > best) {
			found = it;
			best = n;
		}
	}
	return found;
}

int replay(struct fdstore *store, struct replay *r, uint64_t *ret_generation)
{
	struct named_fd *it = newest(store);
	int err;

	if (!it)
		return -ENOENT;
	err = replay_init(r);
	if (err < 0)
		return err;
	err = read_journal(&it->fd, r);
	if (err < 0)
		tell_useless(it, err);
	close_fd(&it->fd);
	*ret_generation = generation_of(it);
	if (err == 0)
		return 0;
	replay_done(r);
	/* The next daemon may have enough memory. */
	if (err == -ENOMEM)
		return err;
	fdstore_forget(store, it->name);
	return replay(store, r, ret_generation);
}
