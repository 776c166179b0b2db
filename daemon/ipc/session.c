/* SPDX-License-Identifier: MIT
 *
 * The beginning and the end of a session. Its end is not the end of its leases: those are the
 * process's, and the reaper watches it from then on.
 */
#include "daemon/ipc/session.h"

#include "proto/base/own.h"

void session_init(struct session *s, struct service *service, struct process *process)
{
	s->service = service;
	s->process = process;
	waiter_init(&s->waiter);
	list_init(&s->flush.link);
	list_init(&s->restarter.link);
	service->peers++;
}

void session_forget_watched(struct session *s)
{
	free(take_ptr(s->waiter.watched));
	s->waiter.n_watched = 0;
}

bool session_busy(const struct session *s)
{
	return s->creating || !list_empty(&s->waiter.link) || !list_empty(&s->flush.link) ||
	       !list_empty(&s->restarter.link);
}

void session_done(struct session *s)
{
	s->service->peers--;
	free(take_ptr(s->refusal));
	waiters_drop(&s->service->waiters, &s->waiter);
	session_forget_watched(s);
	list_drop(&s->flush.link);
	list_drop(&s->restarter.link);
	if (s->creating)
		catalog_abandon(&s->service->catalog, take_ptr(s->creating));
	if (!s->process)
		return;
	catalog_disconnect(&s->service->catalog, s->process);
	reaper_take(&s->service->reaper, take_ptr(s->process));
}
