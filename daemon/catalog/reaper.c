/* SPDX-License-Identifier: MIT
 *
 * The one place where a lease ends without a CLOSE. A pidfd becomes readable when its process has
 * exited and the kernel has freed what it had, its GPU context included (measured: 52 to 57 ms
 * after a SIGKILL, against 0.3 ms for the socket). Until then its buffers count, and nobody gets
 * their memory. For a process without a pidfd (unwatched-clients=trust) the closed
 * socket is used instead.
 */
#include "daemon/catalog/reaper.h"

#include "daemon/util/log.h"
#include "proto/base/clock.h"

#include <string.h>

void reaper_init(struct reaper *r, uv_loop_t *loop, struct catalog *catalog)
{
	*r = (struct reaper){ .loop = loop, .catalog = catalog };
	list_init(&r->suspects);
}

static void on_poll_closed(uv_handle_t *handle)
{
	process_free(handle->data);
}

/* The leases have ended. */
static void drop(struct process *p)
{
	list_drop(&p->link);
	p->reaper->n--;
	catalog_forget_process(p->reaper->catalog, p);
	if (p->watched)
		uv_close((uv_handle_t *)&p->poll, on_poll_closed);
	else
		process_free(p);
}

static void holder_died(struct process *p)
{
	struct lease *l;

	list_foreach (l, &p->leases, process_link)
		catalog_holder_died(p->reaper->catalog, l);
	drop(p);
}

static void on_gone(uv_poll_t *handle, int status, int events)
{
	struct process *p = handle->data;

	log_write(LOG_INFO, &(struct log_about){ .pid = p->pid, .uid = p->uid },
		  "process %d (%s) has gone: its leases end", p->pid, p->command);
	holder_died(p);
}

/* If the pidfd can't be watched, the leases can't end: until a restart nobody gets the memory. */
static void watch(struct reaper *r, struct process *p)
{
	int e;

	p->poll.data = p;
	e = uv_poll_init(r->loop, &p->poll, p->pidfd);
	p->watched = e == 0;
	if (e == 0)
		e = uv_poll_start(&p->poll, UV_READABLE, on_gone);
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
	p->suspect_ns = clock_realtime_ns();
	list_insert(&r->suspects, &p->link);
	r->n++;
	if (p->pidfd >= 0)
		watch(r, p);
	else if (!r->ending)
		holder_died(p);
}

void reaper_take(struct reaper *r, struct process *p)
{
	/* Only the charge for the connection ends with it. */
	discharge(&p->charge);
	if (list_empty(&p->leases)) {
		catalog_forget_process(r->catalog, p);
		process_free(p);
		return;
	}
	reaper_adopt(r, p);
}

struct process *reaper_find_same(const struct reaper *r, const struct process *like,
				 const struct process *after)
{
	const struct list *at = after ? after->link.next : r->suspects.next;

	for (; at != &r->suspects; at = at->next) {
		struct process *p = container_of(at, struct process, link);

		if (process_is_same(p, like))
			return p;
	}
	return NULL;
}

void reaper_release(struct reaper *r, struct process *p)
{
	struct lease *l;

	/* The client lives and never learned of these leases, so it has written to nothing. */
	list_foreach (l, &p->leases, process_link)
		catalog_end_lease(r->catalog, l);
	drop(p);
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
}
