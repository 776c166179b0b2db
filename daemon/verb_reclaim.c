/* SPDX-License-Identifier: MIT
 *
 * RECLAIM: a client that lost its connection, to a daemon that died or to one that hung up on it,
 * says on a new one what it still holds. Nothing is believed but that the kernel shows the same
 * process as before: pid, start time and user.
 */
#include "daemon/verb.h"
#include "proto/own.h"

static struct process *find_former(struct session *s, uint64_t session)
{
	const struct process *p = s->process;
	struct process *former = reaper_find(&s->service->reaper, session);

	if (!former || former->pid != p->pid || former->uid != p->uid ||
	    former->start_time != p->start_time || p->start_time == 0)
		return NULL;
	return former;
}

static bool move(struct session *s, struct process *former, uint64_t id)
{
	struct lease *l = NULL;
	struct fault ignored;

	return former && catalog_lease(&s->service->catalog, former, id, &l, &ignored) == 0 &&
	       catalog_move(&s->service->catalog, l, s->process) == 0;
}

int verb_reclaim(struct session *s, const Gpushm__Proto__Request *q, struct answer *a,
		 struct fault *f)
{
	const Gpushm__Proto__Reclaim *m = q->reclaim;
	Gpushm__Proto__ReclaimReply *reply = &a->u.reclaimed;
	struct process *former;
	uint64_t *lost;

	if (!m->has_session)
		return verb_bad_request(f, "RECLAIM", "a session is missing");
	arena_reset(&s->service->build);
	lost = answer_build(s->service, m->n_leases * sizeof(*lost));
	if (!lost)
		return answer_no_memory(f);
	former = find_former(s, m->session);
	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__reclaim_reply__init(reply);
	for (size_t i = 0; i < m->n_leases; i++)
		if (!move(s, former, m->leases[i]))
			lost[reply->n_lost++] = m->leases[i];
	reply->lost = lost;
	if (former && m->has_last && m->last)
		reaper_release(&s->service->reaper, former);
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_RECLAIMED;
	a->reply.reclaimed = reply;
	return 0;
}
