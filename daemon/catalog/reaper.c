/* SPDX-License-Identifier: MIT
 *
 * The one place where a lease ends without a CLOSE. A pidfd becomes readable when its process has
 * exited and the kernel has freed what it had, its GPU context included (measured: 52 to 57 ms
 * after a SIGKILL, against 0.3 ms for the socket; stops, in proto/facts.h). Until then its buffers
 * count, and nobody gets their memory. For a process without a pidfd (unwatched-clients=trust) the
 * closed socket is used instead.
 */
#include "daemon/catalog/reaper.h"

#include "daemon/util/log.h"
#include "proto/base/clock.h"

#include <string.h>

#define AT_ONCE 64u /* names or leases that end with the request or the connection */

int reaper_init(struct reaper *r, uv_loop_t *loop, struct catalog *catalog, struct turns *turns)
{
	*r = (struct reaper){ .loop = loop, .catalog = catalog, .turns = turns };
	list_init(&r->suspects);
	return pidfds_init(&r->pidfds);
}

/* The leases have ended. A pidfd stays readable, so it is polled only while it has suspects. */
static void drop(struct process *p)
{
	struct pidfd *pidfd = p->pidfd;

	list_drop(&p->link);
	list_drop(&p->pidfd_link);
	work_drop(&p->work);
	p->reaper->n--;
	p->reaper->deaths[p->role]++;
	if (pidfd && pidfd->watched && list_empty(&pidfd->suspects))
		uv_poll_stop(&pidfd->poll);
	catalog_notify(p->reaper->catalog, record_process_end, p);
	process_free(p);
}

/* ---- what takes long is done in the user's turns ---- */

static enum role role_of(const struct lease *l)
{
	if (l->buffer->state == BUFFER_FILLING)
		return ROLE_CREATOR;
	return l->access == ACCESS_WRITE ? ROLE_WRITER : ROLE_READER;
}

static void end_after_death(struct process *p, struct lease *l)
{
	if (p->role < role_of(l))
		p->role = role_of(l);
	catalog_holder_died(p->reaper->catalog, l);
}

/* One name, or one lease. */
static bool take_turn(struct work *w)
{
	struct process *p = container_of(w, struct process, work);
	struct catalog *c = p->reaper->catalog;
	struct lease *l = list_first(&p->leases, struct lease, process_link);

	if (!p->over)
		return catalog_unlink_unpublished(c, p, 1);
	if (p->died)
		end_after_death(p, l);
	else
		catalog_end_lease(c, l);
	if (!list_empty(&p->leases))
		return true;
	drop(p);
	return false;
}

/* The process has a lease. */
static void queue(struct process *p)
{
	struct lease *l = list_first(&p->leases, struct lease, process_link);

	turns_add(p->reaper->turns, l->charge.account, &p->work);
}

static void holder_died(struct process *p)
{
	p->over = p->died = true;
	if (list_empty(&p->leases))
		drop(p);
	else
		queue(p);
}

static void on_gone(uv_poll_t *handle, int status, int events)
{
	struct pidfd *pidfd = handle->data;
	static const struct ratelimit_cause cause = { NULL,
						      "processes that ended with buffers open" };
	struct process *p = list_first(&pidfd->suspects, struct process, pidfd_link);

	if (ratelimit_pass(&p->reaper->catalog->death_lines, &cause, p->uid, clock_monotonic_ns()))
		log_write(LOG_INFO, &(struct log_about){ .pid = p->pid, .uid = p->uid },
			  "process %d (%s) has gone: its leases end", p->pid, p->command);
	uv_poll_stop(handle);
	/* The last one releases the pidfd, whose memory stays until its poll handle is closed. */
	list_foreach (p, &pidfd->suspects, pidfd_link)
		holder_died(p);
}

/* If the pidfd can't be watched, the leases can't end: until a restart nobody gets the memory. */
static void watch(struct reaper *r, struct process *p)
{
	struct pidfd *pidfd = p->pidfd;
	int e = 0;

	if (!pidfd->watched) {
		pidfd->poll.data = pidfd;
		e = uv_poll_init(r->loop, &pidfd->poll, pidfd->fd);
		pidfd->watched = e == 0;
	}
	if (e == 0 && !uv_is_active((uv_handle_t *)&pidfd->poll))
		e = uv_poll_start(&pidfd->poll, UV_READABLE, on_gone);
	if (e < 0)
		log_write(LOG_ERR,
			  &(struct log_about){ LOG_ID_SUSPECT, .pid = p->pid, .uid = p->uid,
					       .of_user = true },
			  "process %d (%s) can't be watched: %s; its memory is kept", p->pid,
			  p->command, uv_strerror(e));
}

void reaper_adopt(struct reaper *r, struct process *p)
{
	p->reaper = r;
	work_init(&p->work, take_turn);
	p->suspect_ns = clock_realtime_ns();
	p->socket = -1;
	catalog_suspect_readers(p);
	list_insert(&r->suspects, &p->link);
	r->n++;
	if (p->pidfd)
		list_insert(&p->pidfd->suspects, &p->pidfd_link);
	if (p->pidfd)
		watch(r, p);
	else if (!r->ending)
		holder_died(p);
}

void reaper_take(struct reaper *r, struct process *p)
{
	if (list_empty(&p->leases)) {
		catalog_notify(r->catalog, record_process_end, p);
		process_free(p);
		return;
	}
	reaper_adopt(r, p);
	if (catalog_unlink_unpublished(r->catalog, p, AT_ONCE))
		queue(p);
}

static void tell_suspect(struct reaper *r, struct process *p)
{
	static const struct ratelimit_cause cause = { LOG_ID_SUSPECT_STAYS,
						      "processes that keep what they had open" };
	const struct log_about about = { LOG_ID_SUSPECT_STAYS, .pid = p->pid, .uid = p->uid,
					 .of_user = true };

	p->told = true;
	if (ratelimit_pass(&r->catalog->death_lines, &cause, p->uid, clock_monotonic_ns()))
		log_write(LOG_NOTICE, &about,
			  "process %d (%s) closed its connection %u s ago, still runs, and keeps "
			  "what it had open",
			  p->pid, p->command, REAPER_PATIENCE_S);
	event_log_add(&r->catalog->events, .type = EVENT_SUSPECT, .who = p);
}

/* A process that is killed is a suspect for a moment. The list is in the order of the times, so
 * those before one that was told have been told. */
void reaper_tell_suspects(struct reaper *r)
{
	uint64_t before = clock_realtime_ns() - REAPER_PATIENCE_S * 1000000000ull;

	for (struct list *at = r->suspects.prev; at != &r->suspects; at = at->prev) {
		struct process *p = container_of(at, struct process, link);

		if (p->told)
			return;
		if (p->suspect_ns > before || p->over)
			continue;
		tell_suspect(r, p);
	}
}

struct process *reaper_find_same(const struct process *like, const struct process *after)
{
	const struct list *all = like->pidfd ? &like->pidfd->suspects : NULL;
	const struct list *at = after ? &after->pidfd_link : all;

	return !all || at->next == all ? NULL : container_of(at->next, struct process, pidfd_link);
}

/* The client lives and never learned of these leases, so it has written to nothing. */
void reaper_release(struct reaper *r, struct process *p)
{
	p->over = true;
	for (unsigned i = 0; i < AT_ONCE && !list_empty(&p->leases); i++)
		catalog_end_lease(r->catalog, list_first(&p->leases, struct lease, process_link));
	if (list_empty(&p->leases))
		drop(p);
	else
		queue(p);
}

void reaper_done(struct reaper *r)
{
	struct process *p;
	struct lease *l;

	list_foreach (p, &r->suspects, link) {
		/* No holder has died: nothing is dirty. */
		list_foreach (l, &p->leases, process_link) {
			l->buffer->keep_memory = true;
			catalog_end_lease(r->catalog, l);
		}
		drop(p);
	}
	pidfds_done(&r->pidfds);
}
