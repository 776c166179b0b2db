/* SPDX-License-Identifier: MIT
 *
 * Computes anew, at each call, what a daemon counts as it goes along.
 */
#include "tests/model/model.h"

uint64_t model_bytes(const struct model *m, uid_t uid)
{
	const struct model_buffer *b;
	uint64_t sum = 0;

	list_foreach (b, &m->buffers, link)
		sum += b->uid == uid && !b->hollow ? b->bytes : 0;
	return sum;
}

uint64_t model_round(const struct model_pool *pool, uint64_t bytes)
{
	return (bytes + pool->granularity - 1) / pool->granularity * pool->granularity;
}

uint64_t model_bytes_in(const struct model *m, uid_t uid, const struct model_pool *pool)
{
	const struct model_buffer *b;
	uint64_t sum = 0;

	list_foreach (b, &m->buffers, link)
		sum += b->uid == uid && b->pool == pool && !b->hollow ? model_round(pool, b->bytes)
								      : 0;
	return sum;
}

unsigned model_buffers(const struct model *m, uid_t uid)
{
	const struct model_buffer *b;
	unsigned n = 0;

	list_foreach (b, &m->buffers, link)
		n += b->uid == uid;
	return n;
}

unsigned model_leases(const struct model *m, uid_t uid)
{
	const struct model_session *s;
	const struct model_lease *l;
	unsigned n = 0;

	list_foreach (s, &m->sessions, link)
		list_foreach (l, &s->leases, session_link)
			n += s->process->uid == uid;
	return n;
}

unsigned model_peers(const struct model *m, uid_t uid)
{
	const struct model_session *s;
	unsigned n = 0;

	list_foreach (s, &m->sessions, link)
		n += s->connected && s->process->uid == uid;
	return n;
}

unsigned model_suspects(const struct model *m)
{
	const struct model_session *s;
	unsigned n = 0;

	list_foreach (s, &m->sessions, link)
		n += !s->connected;
	return n;
}

unsigned model_waiting(const struct model *m)
{
	const struct model_session *s;
	unsigned n = 0;

	list_foreach (s, &m->waiters, wait_link)
		n++;
	return n;
}

unsigned model_holders(const struct model_buffer *b, enum model_access access)
{
	const struct model_lease *l;
	unsigned n = 0;

	list_foreach (l, &b->leases, buffer_link)
		n += l->access == access;
	return n;
}

unsigned model_away(const struct model_buffer *b)
{
	const struct model_lease *l;
	unsigned n = 0;

	list_foreach (l, &b->leases, buffer_link)
		n += l->away;
	return n;
}

unsigned model_suspect_holders(const struct model_buffer *b)
{
	const struct model_lease *l;
	unsigned n = 0;

	list_foreach (l, &b->leases, buffer_link)
		n += !l->session->connected;
	return n;
}

uint64_t model_suspect_bytes(const struct model *m, const struct model_pool *pool)
{
	const struct model_buffer *b;
	uint64_t sum = 0;

	list_foreach (b, &m->buffers, link)
		if (b->pool == pool && !list_empty(&b->leases) &&
		    model_suspect_holders(b) ==
			    model_holders(b, MODEL_READ) + model_holders(b, MODEL_WRITE))
			sum += b->allocated;
	return sum;
}

struct model_buffer *model_buffer_of_memory(struct model *m, uint64_t memory)
{
	struct model_buffer *b;

	list_foreach (b, &m->buffers, link)
		if (b->allocated && b->memory == memory)
			return b;
	return NULL;
}
