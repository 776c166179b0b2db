/* SPDX-License-Identifier: MIT
 *
 * HELLO and RECLAIM: the beginning of a connection, and of one that continues an earlier one. A
 * client that lost its connection, because the daemon died or hung up, lists on the new connection
 * which leases it still holds. The daemon believes it only if the kernel shows the same process as
 * before: the same pid, start time and user. The client's half is client/lib/link/hello.c.
 */
#include "daemon/ipc/request.h"
#include "daemon/ipc/service.h"

#include <unistd.h>

/* ---- HELLO ---- */

static const Gpushm__Proto__Limits limits = {
	PROTOBUF_C_MESSAGE_INIT(&gpushm__proto__limits__descriptor),
	.has_frame_bytes = 1,
	.frame_bytes = FRAME_MAX,
	.has_name_bytes = 1,
	.name_bytes = BUFFER_NAME_MAX,
	.has_dimensions = 1,
	.dimensions = DIMENSIONS_MAX,
	.has_arrays = 1,
	.arrays = ARRAYS_MAX,
	.has_attr_bytes = 1,
	.attr_bytes = ATTR_BYTES_MAX,
	.has_table_bytes = 1,
	.table_bytes = TABLE_BYTES_MAX,
};

static int fill_hello(struct reply *reply, struct session *s, bool status_page, struct fault *f)
{
	Gpushm__Proto__HelloReply *m = reply_build(s, reply, hello, HELLO, hello_reply);
	const struct service *service = s->service;

	SET(m, daemon, reply_bytes(service->id, sizeof(service->id)));
	SET(m, software, reply_text(QUERY_SOFTWARE));
	m->limits = (Gpushm__Proto__Limits *)&limits;
	SET_SOME(m, version, PROTOCOL_VERSION);
	SET_SOME(m, uid, s->process->uid);
	SET_SOME(m, admin, s->process->admin);
	SET_SOME(m, kept, service->kept);
	SET(m, quiet_close, true);
	SET(m, rename, true);
	SET(m, streams, true);
	SET(m, suspend, true);
	SET(m, park, true);
	SET_SOME(m, session, s->process->session);
	SET_SOME(m, pid, getpid());
	if (status_page && service->catalog.page) {
		SET(m, board_fd, true);
		reply->fds[reply->n_fds++] = service->catalog.page->fd_read_only;
	}
	return query_pools(s, &m->n_pools, &m->pools, f);
}

int request_hello(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		  struct fault *f)
{
	const Gpushm__Proto__Hello *m = q->hello;

	if (!m->has_version_min || !m->has_version_max)
		return request_bad(f, "HELLO", "version_min and version_max are needed");
	if (m->version_min > PROTOCOL_VERSION || m->version_max < PROTOCOL_VERSION)
		return fault(f, CODE_VERSION,
			     "the client speaks versions %u to %u, gpushmd " GPUSHM_VERSION
			     " version %u: upgrade the older one",
			     m->version_min, m->version_max, PROTOCOL_VERSION);
	if (m->software.len > SOFTWARE_MAX)
		return request_bad(f, "HELLO", "software is longer than 63 bytes");
	s->greeted = true;
	if (m->has_park && s->process->pidfd)
		request_promise(s->process->pidfd, m->park == 1, NULL);
	s->arrays_max = m->has_arrays ? m->arrays : ARRAYS_READ_DEFAULT;
	return fill_hello(reply, s, m->has_board && m->board, f);
}

/* ---- RECLAIM ---- */

static struct process *find_former(struct session *s, uint64_t session)
{
	struct process *p = NULL;

	while ((p = reaper_find_same(s->process, p)))
		if (p->session == session)
			return p;
	return NULL;
}

/* The lease may belong to any earlier session of the process: the daemon may have died in the
 * middle of an earlier RECLAIM. It is looked up by its id, because a client names thousands of
 * leases and there may be thousands of suspects. */
static bool move(struct session *s, uint64_t id)
{
	struct catalog *c = &s->service->catalog;
	struct lease *l = catalog_lease_by_id(c, id);

	return l && l->process->suspect_ns && !l->process->liar &&
	       process_is_same(l->process, s->process) && catalog_move_lease(c, l, s->process) == 0;
}

/* Ends what the former session still has, and each session of the process that has no lease left.
 */
static void release(struct session *s, struct process *former)
{
	struct reaper *reaper = &s->service->reaper;
	struct process *p = reaper_find_same(s->process, NULL), *next;

	for (; p; p = next) {
		next = reaper_find_same(s->process, p);
		if (p == former || list_empty(&p->leases))
			reaper_release(reaper, p);
	}
}

int request_reclaim(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		    struct fault *f)
{
	const Gpushm__Proto__Reclaim *asked = q->reclaim;
	Gpushm__Proto__ReclaimReply *m = reply_build(s, reply, reclaimed, RECLAIMED, reclaim_reply);

	if (!asked->has_session)
		return request_bad(f, "RECLAIM", "a session is missing");
	m->lost = reply_alloc(s->service, asked->n_leases * sizeof(*m->lost));
	if (!m->lost)
		return reply_no_memory(f);
	for (size_t i = 0; i < asked->n_leases; i++)
		if (!move(s, asked->leases[i]))
			m->lost[m->n_lost++] = asked->leases[i];
	if (asked->has_last && asked->last)
		release(s, find_former(s, asked->session));
	return 0;
}
