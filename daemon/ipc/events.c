/* SPDX-License-Identifier: MIT
 *
 * EVENTS: the client says which event it saw last, and gets those that came since, or waits for
 * one. The daemon remembers nothing about a follower but its one request. A request that waits
 * looks at each event once; it is woken at most every WAITER_EVENTS_MS, however much happens, and
 * works in its user's turns. The client's half is client/lib/buffer/events.c.
 */
#include "daemon/ipc/request.h"
#include "daemon/ipc/service.h"

#include <string.h>

#define REPLY_EVENTS_MAX 512u
#define REPLY_BYTES (FRAME_MAX - 256u) /* of events; the rest is for the reply around them */

_Static_assert((int)EVENT_RESTORED == (int)GPUSHM__PROTO__EVENT_TYPE__EVENT_RESTORED &&
		       (int)EVENT_REFUSED == (int)GPUSHM__PROTO__EVENT_TYPE__EVENT_REFUSED &&
		       (int)EVENT_FREED == (int)GPUSHM__PROTO__EVENT_TYPE__EVENT_FREED,
	       "enum event_type differs from gpushm.proto");

#define SET_TEXT(m, field, text) \
	((void)(*(text) && (SET(m, field, reply_bytes(text, strlen(text))), 1)))

/* The names as the client says them. */
static int fill_names(Gpushm__Proto__Event *m, struct session *s, const struct event *e,
		      enum event_type type, bool all)
{
	const char *key = e->strings, *former = e->strings + e->former;
	bool renamed = type == EVENT_RENAMED || (all && type == EVENT_PUBLISHED);

	if (type == EVENT_UNLINKED && e->type == EVENT_RENAMED)
		key = former;
	m->has_name = *key != '\0';
	m->has_former = renamed && *former;
	if (m->has_name && reply_name(s, key, &m->name) < 0)
		return -ENOMEM;
	return m->has_former ? reply_name(s, former, &m->former) : 0;
}

static void fill_process(Gpushm__Proto__Event *m, const struct event *e)
{
	SET(m, uid, e->uid);
	SET_SOME(m, pid, e->pid);
	SET_TEXT(m, command, e->command);
}

/* The texts lie in the ring: the reply is packed before the next event. */
static int fill(Gpushm__Proto__Event *m, struct session *s, const struct event *e,
		enum event_type type)
{
	bool all = event_may_see_process(e, s->process);

	SET_SOME(m, number, e->number);
	SET_SOME(m, type, (uint32_t)type);
	SET_SOME(m, time_ns, e->ns);
	SET_SOME(m, buffer, e->buffer);
	m->has_owner = e->buffer != 0;
	m->owner = e->rights.uid;
	SET_SOME(m, size_bytes, e->bytes);
	SET_TEXT(m, pool, e->strings + e->pool);
	SET_SOME(m, access, (Gpushm__Proto__Access)e->access);
	SET_SOME(m, state, (Gpushm__Proto__State)e->state);
	SET_SOME(m, code, e->code);
	SET_TEXT(m, text, e->strings + e->text);
	if (e->verb)
		SET(m, verb, reply_text(e->verb));
	if (e->by_process && all)
		fill_process(m, e);
	return fill_names(m, s, e, type, all);
}

/* What the client may see and wants to; 0: nothing. */
static enum event_type wanted(const struct session *s, const struct event *e)
{
	enum event_type type = event_seen_as(e, s->process);

	return type && s->pending.u.events.types >> type & 1 ? type : 0;
}

/* Adds the events that came since the last one that the request has looked at. */
static int add_events(struct session *s, Gpushm__Proto__EventsReply *m)
{
	struct pending_events *at = &s->pending.u.events;
	const struct event_log *all = &s->service->catalog.events;
	const struct event *e;
	size_t bytes = 0;

	for (; (e = event_log_after(all, at->after)); at->after = e->number) {
		enum event_type type = wanted(s, e);
		Gpushm__Proto__Event *item;

		if (!type)
			continue;
		if (m->n_events == REPLY_EVENTS_MAX || bytes > REPLY_BYTES - EVENT_BYTES_MAX) {
			SET(m, more, true);
			return 0;
		}
		item = reply_append(s->service, m, events, event);
		if (!item || fill(item, s, e, type) < 0)
			return -ENOMEM;
		bytes += gpushm__proto__event__get_packed_size(item) + 4;
	}
	at->after = all->next - 1;
	return 0;
}

static int collect(struct session *s, struct reply *reply, struct fault *f)
{
	Gpushm__Proto__EventsReply *m = reply_build(s, reply, events, EVENTS, events_reply);
	struct pending_events *at = &s->pending.u.events;
	const struct event_log *all = &s->service->catalog.events;
	uint64_t before = at->after;

	reply_list(s->service, m, events, REPLY_EVENTS_MAX);
	if (add_events(s, m) < 0)
		return reply_no_memory(f);
	at->lost += event_log_lost(all, before, at->after);
	SET_SOME(m, last, at->after);
	SET_SOME(m, lost, at->lost);
	SET_SOME(m, first, all->first);
	return 0;
}

static void on_wake(struct waiter *w, bool timed_out)
{
	struct session *s = container_of(w, struct session, pending.waiter);
	struct reply reply = { 0 };
	struct fault f = { 0 };
	int r = collect(s, &reply, &f);

	if (r == 0 && !timed_out && reply.u.events.n_events == 0)
		return;
	if (r < 0)
		reply_fault(&reply, &f);
	s->followed_ms = uv_now(s->service->waiters.timer.loop);
	s->on_reply(s, &reply);
	waiters_drop(&s->service->waiters, w);
	discharge(&w->charge);
}

static int wait_for_event(struct session *s, uint64_t wait_ms, struct fault *f)
{
	struct waiter *w = &s->pending.waiter;
	int r = charge(&s->service->catalog.accounts, s->process->uid, ACCOUNT_WATCHED, 1, 0,
		       &w->charge, f);

	if (r < 0)
		return r;
	w->key[0] = '\0';
	w->on_wake = on_wake;
	waiters_insert(&s->service->waiters, w, s->account, wait_ms);
	waiters_follow_events(&s->service->waiters, w);
	return -EINPROGRESS;
}

/* A follower that comes back at once waits until more has happened: a reply for each event would
 * cost its user many turns. */
int request_events(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		   struct fault *f)
{
	const Gpushm__Proto__Events *m = q->events;
	const struct event_log *all = &s->service->catalog.events;
	uint64_t now = uv_now(s->service->waiters.timer.loop), since = now - s->followed_ms;
	bool waits = m->has_wait_ms && m->wait_ms > 0;
	int r;

	s->pending.u.events =
		(struct pending_events){ .after = m->after, .types = m->types ? m->types : ~0ull };
	/* A later number than ours is of a daemon whose clock was ahead. */
	if (m->after >= all->next)
		s->pending.u.events.after = m->after == UINT64_MAX ? all->next - 1 : 0;
	if (waits && since < WAITER_EVENTS_MS) {
		r = wait_for_event(s, m->wait_ms, f);
		if (r == -EINPROGRESS)
			waiters_tell_event(&s->service->waiters);
		return r;
	}
	r = collect(s, reply, f);
	if (r == 0 && waits && reply->u.events.n_events == 0)
		return wait_for_event(s, m->wait_ms, f);
	if (r == 0)
		s->followed_ms = now;
	return r;
}
