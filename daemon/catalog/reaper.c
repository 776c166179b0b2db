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
#include "proto/base/size.h"

#include <string.h>

#define AT_ONCE 64u /* names or leases that end with the request or the connection */

int reaper_init(struct reaper *r, uv_loop_t *loop, struct catalog *catalog, struct turns *turns)
{
	*r = (struct reaper){ .loop = loop, .catalog = catalog, .turns = turns };
	catalog->reaper = r;
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
		log_write(LOG_ERR, &(struct log_about){ LOG_ID_SUSPECT, LOG_PROCESS(p) },
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
	const struct log_about about = { LOG_ID_SUSPECT_STAYS, LOG_PROCESS(p) };

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

/* ---- memory that was not given back ---- */

static struct buffer *add_kept(struct catalog *c, struct pool *pool, const struct buffer *evicted,
			       uid_t uid, uint64_t bytes)
{
	struct buffer *b = buffer_alloc("", 0);
	struct block block;
	struct fault ignored;

	if (!b)
		return NULL;
	b->key = NULL;
	b->id = b->memory = c->next_buffer++;
	b->state = BUFFER_FILLING; /* so the journal leaves it out: nobody can map it */
	b->pool = pool;
	b->uid = uid;
	b->bytes = evicted->bytes;
	b->created_ns = clock_realtime_ns();
	b->last_key = strdup(buffer_name(evicted));
	if (buffer_charge(&c->accounts, b, UINT64_MAX, &ignored) < 0 ||
	    pool_adopt_block(pool, bytes, -1, true, NULL, &block) < 0)
		return buffer_free(b);
	block.unverified = false;
	buffer_take_block(b, &block);
	catalog_adopt_buffer(c, b);
	return b;
}

/* The bytes are not those of a connection, which its client could close. */
static int add_liar(struct reaper *r, const struct process *told, struct buffer *b)
{
	struct process *p;
	struct fault ignored;
	int e = process_adopt(&r->pidfds, told, -1, &p);

	if (e < 0)
		return e;
	p->told = p->liar = true;
	p->filling = 0;
	reaper_adopt(r, p);
	return catalog_adopt_lease(r->catalog, p, b, ACCESS_READ, r->catalog->next_lease++,
				   clock_realtime_ns(), true, &ignored);
}

static void tell_liar(struct reaper *r, const struct process *p, const struct buffer *b)
{
	const struct log_about about = { LOG_ID_SUSPECT_STAYS, LOG_PROCESS(p),
					 .name = buffer_name(b) };

	log_write(LOG_WARNING, &about,
		  "process %d (%s) has suspended buffer \"%s\", which was evicted, and its %s did "
		  "not become free: they count for uid %u until that process ends",
		  p->pid, p->command, buffer_name(b), size_format(b->block.bytes).text, b->uid);
	event_log_add(&r->catalog->events, .type = EVENT_SUSPECT, .who = p, .buffer = b,
		      .text = "the memory that it says it has let go of did not become free");
}

static bool has_lease_of(const struct buffer *b, const struct process *p)
{
	const struct lease *l;

	list_foreach (l, &b->leases, buffer_link)
		if (process_is_same(l->process, p))
			return true;
	return false;
}

/* Of several users nobody knows which one it is: the bytes stay the owner's. */
static uid_t find_payer(const struct buffer *b)
{
	uid_t uid = list_first(&b->leases, struct lease, buffer_link)->process->uid;
	const struct lease *l;

	list_foreach (l, &b->leases, buffer_link)
		if (l->process->uid != uid)
			return b->uid;
	return uid;
}

void reaper_suspect_away(void *reaper, uint64_t buffer, struct pool *pool, uint64_t bytes)
{
	struct reaper *r = reaper;
	struct buffer *b = catalog_by_id(r->catalog, buffer), *kept;
	struct lease *l;

	if (r->ending || !b || b->away == 0)
		return;
	kept = add_kept(r->catalog, pool, b, find_payer(b), bytes);
	if (!kept)
		return;
	catalog_hold(kept);
	list_foreach (l, &b->leases, buffer_link)
		if (l->away && !l->process->over && !has_lease_of(kept, l->process) &&
		    add_liar(r, l->process, kept) == 0)
			tell_liar(r, l->process, kept);
	catalog_release(r->catalog, kept);
}

struct process *reaper_find_same(const struct process *like, const struct process *after)
{
	const struct list *all = like->pidfd ? &like->pidfd->suspects : NULL;
	const struct list *at = after ? &after->pidfd_link : all;

	while (all && at->next != all) {
		struct process *p = container_of(at->next, struct process, pidfd_link);

		if (!p->liar)
			return p;
		at = at->next;
	}
	return NULL;
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
