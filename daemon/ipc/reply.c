/* SPDX-License-Identifier: MIT
 *
 * The replies that attach, and those that say only yes or no. All that such a reply points to is a
 * member of the reply or of the buffer whose lease it carries. So it costs no allocation: OPEN is
 * the hot path.
 */
#include "daemon/ipc/reply.h"

#include "daemon/ipc/service.h"
#include "daemon/ipc/session.h"
#include "proto/wire.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>

ProtobufCBinaryData reply_bytes(const void *data, size_t len)
{
	return (ProtobufCBinaryData){ len, (uint8_t *)data };
}

ProtobufCBinaryData reply_text(const char *text)
{
	return reply_bytes(text, strlen(text));
}

void *reply_alloc(struct service *service, size_t bytes)
{
	ProtobufCAllocator *allocator = &service->build.allocator;

	return allocator->alloc(allocator->allocator_data, bytes ? bytes : 1);
}

void *reply_message(struct service *service, const ProtobufCMessageDescriptor *type)
{
	void *m = reply_alloc(service, type->sizeof_message);

	if (m)
		protobuf_c_message_init(type, m);
	return m;
}

int reply_name(struct session *s, const char *key, ProtobufCBinaryData *ret)
{
	char *name = reply_alloc(s->service, KEY_MAX + 1);

	if (!name)
		return -ENOMEM;
	*ret = reply_bytes(name, private_names_shown(s->process, key, name));
	return 0;
}

int reply_no_memory(struct fault *f)
{
	return fault(f, CODE_NO_MEMORY, "the daemon has no room to build the answer");
}

void reply_fault(struct reply *reply, const struct fault *f)
{
	Gpushm__Proto__Error *m = reply_begin(reply, error, ERROR, error);

	reply->n_fds = 0;
	reply->lease = NULL;
	reply->pool_bit = 0;
	reply->fault = *f;
	reply->small = true;
	m->has_code = m->has_message = 1;
	m->code = (Gpushm__Proto__Code)f->code;
	m->message = reply_text(reply->fault.text);
}

void reply_done(struct reply *reply)
{
	reply_begin(reply, done, DONE, done);
	reply->small = true;
}

int reply_result(struct reply *reply, int r)
{
	if (r == 0)
		reply_done(reply);
	return r;
}

/* The attach law: exactly as many fds as the reply counts; the memory's or the pool's first, the
 * table's last. */
static void lend_fds(struct reply *reply, const struct session *s, const struct lease *l,
		     bool with_table)
{
	const struct buffer *b = l->buffer;
	Gpushm__Proto__Attach *m = &reply->u.attach;
	bool is_pool = kind_opens_pool(b->pool->config.kind);
	uint64_t bit = (uint64_t)1 << b->pool->index;

	if (is_pool ? !(s->pools_lent & bit) : !b->evicted) {
		reply->fds[reply->n_fds++] =
			pool_lend_fd(b->pool, &b->block, l->access == ACCESS_WRITE);
		SET_SOME(m, memory_fd, !is_pool);
		SET_SOME(m, pool_fd, is_pool);
		reply->pool_bit = is_pool ? bit : 0;
	}
	if (with_table && b->table_fd >= 0) {
		reply->fds[reply->n_fds++] = b->table_fd;
		SET(m, table_fd, true);
		SET_SOME(m, table_bytes, b->table_bytes);
	}
	SET_SOME(m, fds, (uint32_t)reply->n_fds);
}

void reply_attach(struct reply *reply, struct session *s, struct lease *l, bool again)
{
	const struct buffer *b = l->buffer;
	Gpushm__Proto__Attach *m = reply_begin(reply, attach, ATTACH, attach);

	reply->n_fds = 0;
	reply->pool_bit = 0;
	reply->lease = again ? NULL : l;
	reply->small = true;
	SET_SOME(m, buffer, b->id);
	SET_SOME(m, lease, l->id);
	SET_SOME(m, pool, b->pool->id);
	SET_SOME(m, size_bytes, b->bytes);
	SET_SOME(m, allocated_bytes, b->evicted ? pool_round(b->pool, b->bytes) : b->block.bytes);
	SET_SOME(m, state, (Gpushm__Proto__State)b->state);
	SET_SOME(m, access, (Gpushm__Proto__Access)l->access);
	SET_SOME(m, mode, b->mode);
	SET_SOME(m, uid, b->uid);
	SET_SOME(m, digest, b->digest);
	SET_SOME(m, memory, b->memory);
	SET_SOME(m, dirty, b->dirty);
	SET_SOME(m, not_kept, s->service->kept && b->state != BUFFER_FILLING && !buffer_is_kept(b));
	m->has_slot = b->cell != STATUS_PAGE_NONE;
	m->slot = b->cell;
	if (b->block.pointer)
		SET(m, record, reply_bytes(b->block.pointer->record, RECORD_BYTES));
	lend_fds(reply, s, l, !again);
}

bool reply_hold(const struct reply *reply, struct session *s)
{
	struct pidfd *p = s->process->pidfd;

	if (reply->message.result_case != GPUSHM__PROTO__REPLY__RESULT_ATTACH || !p ||
	    p->park.state < PARK_CHANGING)
		return false;
	s->pending.held_lease = reply->u.attach.lease;
	s->pending.held_again = !reply->lease;
	list_insert(&p->park.held, &s->pending.held_link);
	return true;
}

/* Measuring a message costs as much as packing it, so a small one is not measured. */
int reply_send(struct reply *reply, int socket)
{
	static unsigned char frame[FRAME_MAX];
	size_t len;
	int r;

	if (!reply->small && gpushm__proto__reply__get_packed_size(&reply->message) > sizeof(frame))
		return -EMSGSIZE;
	len = gpushm__proto__reply__pack(&reply->message, frame);
	assert(!reply->small || len <= REPLY_SMALL);
	r = wire_send(socket, frame, len, reply->fds, reply->n_fds, MSG_DONTWAIT);
	if (r == 0)
		reply->sent = len;
	return r;
}
