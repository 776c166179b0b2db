/* SPDX-License-Identifier: MIT
 *
 * OPEN and STAT. Both may wait for a name: then the request's rest is kept in the session, and
 * tried again when the name is published, or cleaned, or the deadline has come.
 */
#include "daemon/ipc/verb.h"
#include "proto/base/own.h"

#include <string.h>

static int try_open(struct session *s, const char *key, struct reply *a, struct fault *f)
{
	struct buffer *b = NULL;
	struct lease *l = NULL;
	int r = catalog_find(&s->service->catalog, s->process, key, s->access, &b, f);

	if (r == 0 && s->refuses_dirty)
		r = catalog_refuse_dirty(b, f);
	if (r == 0)
		r = catalog_grant(&s->service->catalog, s->process, b, s->access, &l, f);
	if (r == 0)
		reply_attach(a, s, l);
	return r;
}

static int try_stat(struct session *s, const char *key, struct reply *a, struct fault *f)
{
	struct buffer *b = NULL;
	int r = catalog_look(&s->service->catalog, s->process, key, &b, f);

	return r < 0 ? r : reply_stat(a, s, b, s->wants_holders, f);
}

/* A STAT that waits, waits for the publication: a buffer that is being filled is not there yet, for
 * its owner either. */
static int try_stat_published(struct session *s, const char *key, struct reply *a, struct fault *f)
{
	struct buffer *b = NULL;
	int r = catalog_find(&s->service->catalog, s->process, key, ACCESS_READ, &b, f);

	return r < 0 ? r : reply_stat(a, s, b, s->wants_holders, f);
}

/* What time may heal. */
static bool may_change(enum code code)
{
	return code == CODE_NOT_FOUND || code == CODE_NOT_PUBLISHED || code == CODE_DIRTY;
}

static void on_wake(struct waiter *w, bool timed_out)
{
	struct session *s = container_of(w, struct session, waiter);
	struct reply a = { 0 };
	struct fault f = { 0 };
	int r = s->waits_for_stat ? try_stat_published(s, w->key, &a, &f)
				  : try_open(s, w->key, &a, &f);

	if (r < 0 && !timed_out && may_change(f.code)) {
		waiters_resume(&s->service->waiters, w);
		return;
	}
	if (r < 0 && may_change(f.code))
		fault(&f, CODE_TIMED_OUT, "buffer \"%s\" was not %s in time", w->key,
		      f.code == CODE_DIRTY ? "cleaned" : "published");
	if (r < 0)
		reply_fault(&a, &f);
	s->on_answer(s, &a);
}

/* Where the name is not there or not published, and the client asked to wait: it waits. */
static int or_wait(struct session *s, const char *key, bool has, uint64_t wait_ms, int r,
		   const struct fault *f)
{
	if (!has || wait_ms == 0 || r == 0 || !may_change(f->code))
		return r;
	strcpy(s->waiter.key, key);
	s->waiter.on_wake = on_wake;
	waiters_insert(&s->service->waiters, &s->waiter, wait_ms);
	return -EINPROGRESS;
}

int request_open(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		 struct fault *f)
{
	const Gpushm__Proto__Open *m = q->open;
	char key[KEY_MAX + 1];
	int r = request_key(s, "OPEN", m->has_name, m->name, key, f);

	if (r < 0)
		return r;
	if (m->has_access && m->access != GPUSHM__PROTO__ACCESS__ACCESS_READ &&
	    m->access != GPUSHM__PROTO__ACCESS__ACCESS_WRITE)
		return request_bad(f, "OPEN", "access must be read or write");
	s->access = m->has_access ? (enum access)m->access : ACCESS_READ;
	s->refuses_dirty = m->has_refuse_dirty && m->refuse_dirty;
	s->waits_for_stat = false;
	return or_wait(s, key, m->has_wait_ms, m->wait_ms, try_open(s, key, a, f), f);
}

int request_stat(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		 struct fault *f)
{
	const Gpushm__Proto__Stat *m = q->stat;
	char key[KEY_MAX + 1];
	int r = request_key(s, "STAT", m->has_name, m->name, key, f);

	if (r < 0)
		return r;
	s->wants_holders = m->has_holders && m->holders;
	s->waits_for_stat = true;
	if (!m->has_wait_ms || m->wait_ms == 0)
		return try_stat(s, key, a, f);
	return or_wait(s, key, true, m->wait_ms, try_stat_published(s, key, a, f), f);
}
