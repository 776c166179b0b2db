/* SPDX-License-Identifier: MIT
 *
 * PARK: the steps by which a client parks another process of its user and brings it back. The
 * daemon calls no driver for it, and waits for none: it says what the process has, and remembers
 * how far the client has come. The client's half is client/lib/buffer/park.c.
 */
#include "daemon/ipc/request.h"
#include "daemon/ipc/service.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define STEP(name) GPUSHM__PROTO__PARK_STEP__PARK_##name

void request_promise(struct pidfd *p, bool may, const char *unless)
{
	if (!unless && !may && !p->park.may && p->park.unless[0])
		return;
	p->park.may = may;
	strcpy(p->park.unless, unless ? unless : "it has said so, or has a mempool imported");
}

static int find(const struct session *s, const Gpushm__Proto__Park *m, struct pidfd **ret,
		struct fault *f)
{
	const struct process *p = s->process;

	if (!p->pid || m->self != p->pid || p->unmapped)
		return fault(f, CODE_UNIDENTIFIED,
			     "your process and the daemon are in different PID or user namespaces");
	*ret = pidfd_find(&s->service->reaper.pidfds, p->uid, m->pid, pidfd_start_time(m->pid));
	if (!*ret)
		return fault(f, CODE_NOT_FOUND,
			     "uid %u has no process %d that is connected to gpushmd", p->uid,
			     m->pid);
	return 0;
}

/* Whether it may be frozen, or asked to suspend what it has still. */
static int check(const struct session *s, const struct pidfd *p, struct fault *f)
{
	const char *why = p->park.has_pool    ? "it has used a mempool, and keeps that imported"
			  : p->park.unless[0] ? p->park.unless
					      : "its program has not promised, by "
						"gpushm_may_park(), that gpushm knows all its "
						"imports";

	if (p->park.may && !p->park.has_pool)
		return catalog_check_parkable(&s->service->catalog, p, f);
	return fault(f, CODE_UNSUPPORTED, "process %d may not be parked: %s", p->pid, why);
}

static int check_free(const struct pidfd *p, struct fault *f)
{
	if (!p->park.by || kill(p->park.by, 0) < 0)
		return 0;
	return fault(f, CODE_STATE, "process %d is being parked or unparked by process %d", p->pid,
		     p->park.by);
}

static int check_step(const struct session *s, const struct pidfd *p, int step, struct fault *f)
{
	bool changes = step == STEP(ASK) || step == STEP(FREEZE);
	int r = changes || step == STEP(THAW) ? check_free(p, f) : 0;

	return r == 0 && changes && p->park.state != PARK_PARKED ? check(s, p, f) : r;
}

/* The process is back, and may import what it has asked for meanwhile. */
static void attach_held(struct catalog *c, struct pidfd *p)
{
	static const struct fault ended = { CODE_NOT_FOUND, "its lease has ended meanwhile" };
	struct session *s;
	struct reply reply;

	list_drain (s, &p->park.held, pending.held_link) {
		struct lease *l = catalog_lease_by_id(c, s->pending.held_lease);

		reply_init(&reply);
		if (l)
			reply_attach(&reply, s, l, s->pending.held_again);
		else
			reply_fault(&reply, &ended);
		s->on_reply(s, &reply);
	}
}

/* What the client may do next is checked; what it has done is believed. */
static int step(struct session *s, struct pidfd *p, int step, const char *text, struct fault *f)
{
	struct catalog *c = &s->service->catalog;
	int r = check_step(s, p, step, f);
	bool may_ask = r == 0 || (step == STEP(ASK) && f->code == CODE_STATE);

	if (step == STEP(ASK) && may_ask && p->park.state == PARK_NONE)
		p->park.state = PARK_ASKED;
	if (step == STEP(UNASK) && p->park.state == PARK_ASKED)
		p->park.state = PARK_NONE;
	if (r < 0 || step == STEP(ASK) || step == STEP(UNASK))
		return r;
	p->park.by = step == STEP(FREEZE) || step == STEP(THAW) ? s->process->pid : 0;
	if (step == STEP(FREEZE))
		p->park.state = PARK_CHANGING;
	else if (step != STEP(THAW))
		catalog_set_parking(c, p,
				    step == STEP(DONE)	 ? PARK_PARKED
				    : step == STEP(BACK) ? PARK_NONE
							 : p->park.state,
				    step == STEP(STUCK) ? text : NULL);
	if (step == STEP(BACK))
		attach_held(c, p);
	return 0;
}

int request_park(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		 struct fault *f)
{
	const Gpushm__Proto__Park *m = q->park;
	char text[PARK_TEXT_MAX + 1];
	struct pidfd *p = s->process->pidfd;
	bool asked;
	int r;

	if (m->text.len > PARK_TEXT_MAX || !m->has_step || m->step > STEP(UNASK) || !p)
		return request_bad(f, "PARK",
				   "there is no such step, the text is too long, or your "
				   "process can't be watched");
	snprintf(text, sizeof(text), "%.*s", (int)m->text.len, (const char *)m->text.data);
	if (m->step == STEP(PROMISE)) {
		request_promise(p, !*text, text);
		return reply_result(reply, 0);
	}
	r = find(s, m, &p, f);
	if (r < 0)
		return r;
	asked = p->park.state != PARK_NONE;
	r = step(s, p, (int)m->step, text, f);
	if (asked != (p->park.state != PARK_NONE))
		waiters_tell_wanted(&s->service->waiters);
	if (r < 0)
		return r;
	reply_done(reply);
	SET_SOME(&reply->u.done, parked, p->park.state == PARK_PARKED);
	return 0;
}
