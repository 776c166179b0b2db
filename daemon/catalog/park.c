/* SPDX-License-Identifier: MIT
 *
 * Parked processes: another process lets the driver freeze them, and they have nothing on a GPU. A
 * process that has other processes' memory imported then never comes back, so all
 * its leases must be away; a client unmaps before it tells the daemon so. The state is that of the
 * process, whatever its connections, and ends with it.
 */
#include "daemon/catalog/catalog.h"

#include "daemon/util/log.h"

int catalog_check_parkable(const struct catalog *c, const struct pidfd *p, struct fault *f)
{
	const struct buffer *b, *mapped = NULL;
	const struct lease *l;
	unsigned n = 0;
	int r;

	list_foreach (b, &c->buffers, all_link)
		list_foreach (l, &b->leases, buffer_link) {
			if (l->process->pidfd != p || l->away)
				continue;
			r = b->state == BUFFER_FILLING ? 0 : catalog_check_suspendable(b, f);
			if (r < 0)
				return r;
			mapped = b;
			n++;
		}
	if (!mapped)
		return 0;
	return fault(f, CODE_STATE,
		     "process %d has not suspended all: %u still, buffer \"%s\" among them", p->pid,
		     n, buffer_name(mapped));
}

void catalog_set_parking(struct catalog *c, struct pidfd *p, enum parking state, const char *text)
{
	const struct process who = { .pid = p->pid, .uid = p->uid };
	bool was = p->park.state == PARK_PARKED, is = state == PARK_PARKED;
	struct buffer *b;
	struct lease *l;

	p->park.state = state;
	p->all->parked += (uint32_t)is - (uint32_t)was;
	if (text)
		log_info("process %d of uid %u may not come back: %s", p->pid, p->uid, text);
	if (text || was != is)
		event_log_add(&c->events, .who = &who, .text = text,
			      .type = text ? EVENT_STUCK
				      : is ? EVENT_PARKED
					   : EVENT_UNPARKED);
	if (was != is)
		list_foreach (b, &c->buffers, all_link)
			list_foreach (l, &b->leases, buffer_link)
				if (l->process->pidfd == p)
					catalog_record(c, record_lease, l, LEASE_CHANGED);
}
