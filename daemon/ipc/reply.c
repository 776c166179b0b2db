/* SPDX-License-Identifier: MIT
 *
 * The answers to the verbs that attach, and to those that only say yes or no. Everything an answer
 * points to is a member of it or of the buffer whose lease it carries, so it costs no allocation:
 * OPEN is the hot path. Answers that look around are in answer_buffer.c and answer_pool.c.
 */
#include "daemon/ipc/reply.h"

#include "proto/wire.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>

ProtobufCBinaryData reply_bytes(const void *data, size_t len)
{
	return (ProtobufCBinaryData){ len, (uint8_t *)data };
}

void *reply_build(struct service *s, size_t bytes)
{
	return s->build.allocator.alloc(s->build.allocator.allocator_data, bytes ? bytes : 1);
}

int reply_no_memory(struct fault *f)
{
	return fault(f, CODE_NO_MEMORY, "the daemon has no room to build the answer");
}

void reply_fault(struct reply *a, const struct fault *f)
{
	a->fault = *f;
	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__error__init(&a->u.error);
	a->n_fds = 0;
	a->lease = NULL;
	a->pool_bit = 0;
	a->small = true;
	a->u.error.has_code = a->u.error.has_message = 1;
	a->u.error.code = (Gpushm__Proto__Code)f->code;
	a->u.error.message = reply_bytes(a->fault.text, strlen(a->fault.text));
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_ERROR;
	a->reply.error = &a->u.error;
}

void reply_done(struct reply *a)
{
	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__done__init(&a->u.done);
	a->small = true;
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_DONE;
	a->reply.done = &a->u.done;
}

/* The attach law: as many fds as the reply counts, memory or pool first, the table's last. */
static void lend_fds(struct reply *a, const struct session *s, const struct lease *l)
{
	const struct buffer *b = l->buffer;
	Gpushm__Proto__Attach *m = &a->u.attach;
	bool is_pool = b->block.fd < 0;
	uint64_t bit = (uint64_t)1 << b->pool->index;

	if (!is_pool || !(s->pools_lent & bit)) {
		a->fds[a->n_fds++] = pool_lend_fd(b->pool, &b->block, l->access == ACCESS_WRITE);
		TELL(m, memory_fd, !is_pool);
		TELL(m, pool_fd, is_pool);
		a->pool_bit = is_pool ? bit : 0;
	}
	if (b->table_fd >= 0) {
		a->fds[a->n_fds++] = b->table_fd;
		TELL(m, table_fd, true);
		TELL(m, table_bytes, b->table_bytes);
	}
	TELL(m, fds, (uint32_t)a->n_fds);
}

void reply_attach(struct reply *a, struct session *s, struct lease *l)
{
	struct buffer *b = l->buffer;
	Gpushm__Proto__Attach *m = &a->u.attach;

	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__attach__init(m);
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_ATTACH;
	a->reply.attach = m;
	a->n_fds = 0;
	a->pool_bit = 0;
	a->lease = l;
	a->small = true;
	TELL(m, buffer, b->id);
	TELL(m, lease, l->id);
	TELL(m, pool, b->pool->id);
	TELL(m, size_bytes, b->bytes);
	TELL(m, allocated_bytes, b->block.bytes);
	TELL(m, state, (Gpushm__Proto__State)b->state);
	TELL(m, access, (Gpushm__Proto__Access)l->access);
	TELL(m, mode, b->mode);
	TELL(m, uid, b->uid);
	TELL(m, digest, b->digest);
	TELL(m, dirty, b->dirty);
	m->has_slot = b->notice != STATUS_PAGE_NONE;
	m->slot = b->notice;
	if (b->block.pointer) {
		m->has_record = 1;
		m->record = reply_bytes(b->block.pointer->record, RECORD_BYTES);
	}
	lend_fds(a, s, l);
}

/* To measure a message costs as much as to pack it: what fits for certain is not measured. */
int reply_send(struct reply *a, int socket)
{
	static unsigned char frame[FRAME_MAX];
	size_t len;
	int r;

	if (!a->small && gpushm__proto__reply__get_packed_size(&a->reply) > sizeof(frame))
		return -EMSGSIZE;
	len = gpushm__proto__reply__pack(&a->reply, frame);
	assert(!a->small || len <= REPLY_SMALL);
	r = wire_send(socket, frame, len, a->fds, a->n_fds, MSG_DONTWAIT);
	if (r == 0)
		a->sent = len;
	return r;
}
