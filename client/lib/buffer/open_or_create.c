/* SPDX-License-Identifier: MIT
 *
 * gpushm_open_or_create: single flight. An OPEN that waits only while another process fills the
 * buffer returns when it is published, or when the name is free because its creator died, closed it
 * or unlinked it. Then this process creates it. The daemon gives a name to one creator only; the
 * others get EEXIST and open again.
 */
#include "client/lib/buffer/buffer.h"
#include "proto/base/clock.h"

/* Takes from the time for space what this create used of it, for the next one. */
static int create(struct gpushm *c, const char *name, uint64_t bytes,
		  struct gpushm_create_options *o, struct gpushm_buffer **ret)
{
	uint64_t deadline = clock_deadline(o->wait_ms);
	int r = gpushm_create(c, name, bytes, o, ret);

	o->wait_ms = clock_wait_left_ms(o->wait_ms, deadline);
	return r;
}

int gpushm_open_or_create(struct gpushm *c, const char *name, enum gpushm_access access,
			  uint64_t timeout_ms, const struct gpushm_open_options *opening,
			  uint64_t bytes, const struct gpushm_create_options *creating,
			  struct gpushm_buffer **ret)
{
	uint64_t deadline = clock_deadline(timeout_ms);
	struct gpushm_create_options o;
	int r = buffer_create_options(creating, &o);

	if (r < 0)
		return r;
	for (;;) {
		r = buffer_open_name(c, name, access, clock_wait_left_ms(timeout_ms, deadline),
				     BUFFER_OPEN_WHILE_FILLING, opening, ret);
		if (r != -ENOENT)
			return r;
		r = create(c, name, bytes, &o, ret);
		if (r == 0)
			return GPUSHM_CREATED;
		if (r != -EEXIST)
			return r;
	}
}
