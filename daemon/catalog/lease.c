/* SPDX-License-Identifier: MIT
 *
 * A lease is in its process's list and in its buffer's, and the buffer counts its readers and
 * writers. The catalog decides what the end of a lease means for the buffer.
 */
#include "daemon/catalog/lease.h"

#include "proto/base/clock.h"

#include <stdlib.h>

static uint32_t *count_of(const struct lease *l)
{
	return l->access == ACCESS_WRITE ? &l->buffer->writers : &l->buffer->readers;
}

int lease_new(struct accounts *accounts, struct process *p, struct buffer *b, enum access access,
	      uint64_t id, uint64_t slack, struct lease **ret, struct fault *f)
{
	struct lease *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
	r = charge(accounts, p->uid, ACCOUNT_LEASES, 1, slack, &l->charge, f);
	if (r < 0) {
		free(l);
		return r;
	}
	l->process = p;
	l->buffer = b;
	l->access = access;
	l->id = id;
	l->since_ns = clock_realtime_ns();
	list_insert(&p->leases, &l->process_link);
	list_insert(&b->leases, &l->buffer_link);
	++*count_of(l);
	if (p->uid != b->uid)
		b->foreign = true;
	*ret = l;
	return 0;
}

struct lease *lease_free(struct lease *l)
{
	--*count_of(l);
	list_drop(&l->process_link);
	list_drop(&l->buffer_link);
	discharge(&l->charge);
	free(l);
	return NULL;
}

void lease_make_read_only(struct lease *l)
{
	--*count_of(l);
	l->access = ACCESS_READ;
	++*count_of(l);
}

bool lease_all_suspect(const struct buffer *b)
{
	struct lease *l;

	list_foreach (l, &b->leases, buffer_link)
		if (!l->process->suspect_ns)
			return false;
	return !list_empty(&b->leases);
}
