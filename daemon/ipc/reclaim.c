/* SPDX-License-Identifier: MIT
 *
 * RECLAIM: a client that lost its connection, to a daemon that died or to one that hung up on it,
 * says on a new one what it still holds. Nothing is believed but that the kernel shows the same
 * process as before: pid, start time and user.
 */
#include "daemon/ipc/verb.h"
#include "proto/base/own.h"

static struct process *find_former(struct session *s, uint64_t session)
{
	struct process *p = NULL;

	while ((p = reaper_find_same(&s->service->reaper, s->process, p)))
		if (p->session == session)
			return p;
	return NULL;
}

/* Of whichever session it is: the daemon may have died in the midst of an earlier RECLAIM. A client
 * names thousands, and thousands of connections may have gone: each is looked up, not searched for.
 */
static bool move(struct session *s, uint64_t id)
{
	struct catalog *c = &s->service->catalog;
	struct lease *l = catalog_lease_by_id(c, id);

	return l && l->process->suspect_ns && process_is_same(l->process, s->process) &&
	       catalog_move(c, l, s->process) == 0;
}

/* What that session had beyond what was moved ends, and so do the sessions that have nothing left.
 */
static void release(struct session *s, struct process *former)
{
	struct reaper *reaper = &s->service->reaper;
	struct process *p = reaper_find_same(reaper, s->process, NULL), *next;

	for (; p; p = next) {
		next = reaper_find_same(reaper, s->process, p);
		if (p == former || list_empty(&p->leases))
			reaper_release(reaper, p);
	}
}

int request_reclaim(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		    struct fault *f)
{
	const Gpushm__Proto__Reclaim *m = q->reclaim;
	Gpushm__Proto__ReclaimReply *reply = &a->u.reclaimed;
	uint64_t *lost;

	if (!m->has_session)
		return request_bad(f, "RECLAIM", "a session is missing");
	arena_reset(&s->service->build);
	lost = reply_build(s->service, m->n_leases * sizeof(*lost));
	if (!lost)
		return reply_no_memory(f);
	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__reclaim_reply__init(reply);
	for (size_t i = 0; i < m->n_leases; i++)
		if (!move(s, m->leases[i]))
			lost[reply->n_lost++] = m->leases[i];
	reply->lost = lost;
	if (m->has_last && m->last)
		release(s, find_former(s, m->session));
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_RECLAIMED;
	a->reply.reclaimed = reply;
	return 0;
}
