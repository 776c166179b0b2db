/* SPDX-License-Identifier: MIT
 *
 * The beginning and the end of a session.
 */
#include "daemon/ipc/session.h"

#include "daemon/ipc/service.h"
#include "proto/base/own.h"

void session_init(struct session *s, struct service *service, struct process *process,
		  struct account *account)
{
	s->service = service;
	s->process = process;
	s->account = account;
	list_init(&s->pending.waiter.link);
	list_init(&s->pending.waiter.event_link);
	list_init(&s->pending.flush.link);
	list_init(&s->pending.restarter.link);
	list_init(&s->pending.held_link);
	service->peers++;
}

void session_free_watched(struct session *s)
{
	free(take_ptr(s->pending.waiter.watched));
	s->pending.waiter.n_watched = 0;
	discharge(&s->pending.waiter.charge);
}

static void cancel(struct session *s)
{
	waiters_drop(&s->service->waiters, &s->pending.waiter);
	session_free_watched(s);
	list_drop(&s->pending.flush.link);
	list_drop(&s->pending.restarter.link);
	list_drop(&s->pending.held_link);
	if (s->pending.creating)
		catalog_cancel_create(&s->service->catalog, take_ptr(s->pending.creating));
}

void session_done(struct session *s)
{
	s->service->peers--;
	free(take_ptr(s->refusal));
	cancel(s);
	if (!s->process)
		return;
	s->process->groups = groups_release(s->process->groups);
	reaper_take(&s->service->reaper, take_ptr(s->process));
}
