/* SPDX-License-Identifier: MIT
 *
 * OPEN and CLOSE: the beginning and the end of a lease; SUSPEND, RESUME and USE, in between. OPEN
 * makes no CUDA call: the memory was exported when it was created. The client's half is
 * client/lib/buffer/open.c and suspend.c.
 */
#include "daemon/ipc/request.h"

#include "daemon/ipc/service.h"

#include <inttypes.h>

/* A client takes a table that is larger than it reads for a broken one. */
static int refuse_large_table(const struct session *s, const char *key, const struct buffer *b,
			      struct fault *f)
{
	if (b->arrays <= s->arrays_max)
		return 0;
	return fault(f, CODE_VERSION,
		     "buffer \"%s\" has %" PRIu32
		     " arrays; this client's library reads at most %" PRIu32 ": upgrade it",
		     key, b->arrays, s->arrays_max);
}

static int try_open(struct session *s, const char *key, struct reply *reply, struct fault *f)
{
	struct catalog *c = &s->service->catalog;
	enum access access = s->pending.u.open.access;
	struct buffer *b = NULL;
	struct lease *l = NULL;
	int r = catalog_lookup_for_open(c, s->process, key, s->pending.waiter.published, access, &b,
					f);

	if (r == 0 && s->pending.u.open.refuse_dirty)
		r = catalog_refuse_dirty(b, f);
	if (r == 0 && !s->pending.u.open.away)
		r = catalog_refuse_evicted(b, f);
	if (r == 0)
		r = refuse_large_table(s, key, b, f);
	if (r == 0 && access == ACCESS_WRITE)
		r = catalog_check_writer(b, s->pending.u.open.produce, f);
	if (r == 0)
		r = catalog_grant(c, s->process, b, access, &l, f);
	if (r < 0)
		return r;
	if (s->pending.u.open.produce)
		r = catalog_produce(c, l, f);
	else if (b->evicted)
		r = catalog_set_away(c, l, true, f);
	if (r < 0) {
		catalog_end_lease(c, l);
		return r;
	}
	if (!b->evicted)
		catalog_count_use(c, b);
	b->opens++;
	reply_attach(reply, s, l, false);
	return 0;
}

/* Who has a lease on the buffer may read its bytes. */
static int open_twin(struct session *s, uint64_t of, struct reply *reply, struct fault *f)
{
	struct catalog *c = &s->service->catalog;
	struct lease *l = NULL, *twins = NULL;
	int r = request_lease(s, "OPEN", true, of, &l, f);

	if (r == 0 && (!l->buffer->twin || l->buffer->twin->lost))
		r = fault(f, CODE_NOT_FOUND, "buffer \"%s\" has no twin", buffer_name(l->buffer));
	if (r == 0)
		r = catalog_grant(c, s->process, l->buffer->twin, ACCESS_READ, &twins, f);
	if (r == 0)
		reply_attach(reply, s, twins, false);
	return r;
}

int request_open(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		 struct fault *f)
{
	const Gpushm__Proto__Open *m = q->open;
	char key[KEY_MAX + 1];
	int r;

	if (m->has_twin_of)
		return open_twin(s, m->twin_of, reply, f);
	r = request_key(s, "OPEN", m->has_name, m->name, key, f);
	if (r < 0)
		return r;
	if (m->has_access && m->access != GPUSHM__PROTO__ACCESS__ACCESS_READ &&
	    m->access != GPUSHM__PROTO__ACCESS__ACCESS_WRITE)
		return request_bad(f, "OPEN", "access must be read or write");
	s->pending.u.open.access = m->has_access ? (enum access)m->access : ACCESS_READ;
	s->pending.u.open.refuse_dirty = m->has_refuse_dirty && m->refuse_dirty;
	s->pending.u.open.produce = m->has_produce && m->produce;
	s->pending.u.open.away = m->has_away && m->away;
	s->pending.waits_for_producer = s->pending.u.open.produce;
	if (s->pending.u.open.produce && s->pending.u.open.access != ACCESS_WRITE)
		return request_bad(f, "OPEN", "a producer opens for writing");
	return request_attempt_or_wait(s, key, m->wait_ms, m->has_while_filling && m->while_filling,
				       try_open, reply, f);
}

int request_close(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		  struct fault *f)
{
	struct lease *l = NULL;
	int r = request_lease(s, "CLOSE", q->close->has_lease, q->close->lease, &l, f);

	reply->silent = q->close->has_quiet && q->close->quiet;
	if (r == 0)
		catalog_close_lease(&s->service->catalog, l, q->close->discard);
	return reply_result(reply, r);
}

/* Also over another connection of the process: the lease's own may have a request that waits for
 * the memory which this gives back. */
static int find_lease(struct session *s, const Gpushm__Proto__Suspend *m, struct lease **ret,
		      struct fault *f)
{
	struct lease *l = catalog_lease_by_id(&s->service->catalog, m->lease);

	if (!m->has_lease || !l || !process_is_same(l->process, s->process))
		return request_lease(s, "SUSPEND", m->has_lease, m->lease, ret, f);
	*ret = l;
	return 0;
}

int request_suspend(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		    struct fault *f)
{
	const Gpushm__Proto__Suspend *m = q->suspend;
	struct lease *l = NULL;
	int r = find_lease(s, m, &l, f);

	if (r == 0)
		r = catalog_set_away(&s->service->catalog, l, true, f);
	if (r == 0 && m->has_damaged_twin)
		r = catalog_drop_twin(&s->service->catalog, l, m->damaged_twin, f);
	return reply_result(reply, r);
}

int request_resume(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		   struct fault *f)
{
	const Gpushm__Proto__Resume *m = q->resume;
	struct catalog *c = &s->service->catalog;
	struct lease *l = NULL;
	char key[KEY_MAX + 1];
	int r = request_lease(s, "RESUME", m->has_lease, m->lease, &l, f);

	if (r == 0 && m->has_name)
		r = request_key(s, "RESUME", true, m->name, key, f);
	if (r == 0 && (m->has_name || m->has_buffer))
		r = catalog_follow(c, l, m->has_name ? key : NULL, m->buffer, f);
	if (r == 0 && !l->buffer->evicted)
		r = catalog_set_away(c, l, false, f);
	if (r < 0)
		return r;
	if (!l->buffer->evicted)
		catalog_count_use(c, l->buffer);
	reply_attach(reply, s, l, true);
	return 0;
}

int request_use(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		struct fault *f)
{
	struct lease *l = NULL;
	int r = request_lease(s, "USE", q->use->has_lease, q->use->lease, &l, f);

	reply->silent = true;
	if (r == 0)
		catalog_touch(&s->service->catalog, l->buffer);
	return reply_result(reply, r);
}
