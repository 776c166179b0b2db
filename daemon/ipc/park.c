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

static int find(const struct session *s, const Gpushm__Proto__Park *m, struct pidfd **ret,
		struct fault *f)
{
	const struct process *p = s->process;

	if (!p->pid || m->self != p->pid || p->unmapped)
		return fault(f, CODE_UNIDENTIFIED,
			     "park: your process and the daemon are in different PID or user "
			     "namespaces");
	*ret = pidfd_find(&s->service->reaper.pidfds, p->uid, m->pid, pidfd_start_time(m->pid));
	if (!*ret)
		return fault(f, CODE_NOT_FOUND,
			     "process %d is none of uid %u that is connected to gpushmd", m->pid,
			     p->uid);
	return 0;
}

static int check(const struct session *s, const struct pidfd *p, struct fault *f)
{
	if (!p->park.may)
		return fault(f, CODE_UNSUPPORTED, "process %d may not be parked: %s", p->pid,
			     p->park.unless[0]
				     ? p->park.unless
				     : "its program has not called gpushm_may_park(), by which it "
				       "says that it has no imports that gpushm does not know");
	if (p->park.has_pool)
		return fault(f, CODE_UNSUPPORTED,
			     "process %d may not be parked: it has used a mempool, and keeps that "
			     "imported",
			     p->pid);
	return catalog_check_parkable(&s->service->catalog, p, f);
}

static int check_free(const struct pidfd *p, struct fault *f)
{
	if (!p->park.by || kill(p->park.by, 0) < 0)
		return 0;
	return fault(f, CODE_STATE, "process %d is being parked or unparked by process %d", p->pid,
		     p->park.by);
}

static int ask(struct session *s, struct pidfd *p, struct fault *f)
{
	int r = p->park.state == PARK_PARKED ? 0 : check_free(p, f);

	if (r < 0 || p->park.state == PARK_PARKED)
		return r;
	r = check(s, p, f);
	if (r < 0 && f->code != CODE_STATE)
		return r;
	p->park.state = PARK_ASKED;
	return r;
}

#define STEP(name) GPUSHM__PROTO__PARK_STEP__PARK_##name

/* What the client may do next is checked; what it has done is believed. */
static int step(struct session *s, struct pidfd *p, const Gpushm__Proto__Park *m, const char *text,
		struct fault *f)
{
	bool takes = m->step == STEP(FREEZE) || m->step == STEP(THAW);
	int r = m->step == STEP(ASK) ? ask(s, p, f) : takes ? check_free(p, f) : 0;

	if (m->step == STEP(UNASK) && p->park.state == PARK_ASKED)
		p->park.state = PARK_NONE;
	if (r == 0 && m->step == STEP(FREEZE))
		r = check(s, p, f);
	if (r < 0 || m->step == STEP(ASK) || m->step == STEP(UNASK))
		return r;
	p->park.by = takes ? s->process->pid : 0;
	if (m->step == STEP(FREEZE))
		p->park.state = PARK_CHANGING;
	else if (m->step != STEP(THAW))
		catalog_set_parking(&s->service->catalog, p,
				    m->step == STEP(DONE)   ? PARK_PARKED
				    : m->step == STEP(BACK) ? PARK_NONE
							    : p->park.state,
				    m->step == STEP(STUCK) ? text : NULL);
	return 0;
}

int request_park(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		 struct fault *f)
{
	const Gpushm__Proto__Park *m = q->park;
	char text[PARK_TEXT_MAX + 1];
	struct pidfd *p = s->process->pidfd;
	enum parking before;
	int r = 0;

	if (m->text.len > PARK_TEXT_MAX)
		return request_bad(f, "PARK", "the text is too long");
	snprintf(text, sizeof(text), "%.*s", (int)m->text.len, (const char *)m->text.data);
	if (m->step == STEP(PROMISE)) {
		if (!p)
			return fault(f, CODE_UNIDENTIFIED,
				     "a process that can't be watched can't "
				     "be parked");
		pidfd_promise(p, !*text, text, strlen(text));
		return reply_result(reply, 0);
	}
	r = find(s, m, &p, f);
	if (r < 0)
		return r;
	before = p->park.state;
	r = step(s, p, m, text, f);
	if ((before == PARK_NONE) != (p->park.state == PARK_NONE))
		waiters_tell_wanted(&s->service->waiters);
	if (r < 0)
		return r;
	reply_done(reply);
	SET(&reply->u.done, parked, p->park.state == PARK_PARKED);
	return 0;
}
