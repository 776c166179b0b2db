/* SPDX-License-Identifier: MIT
 *
 * A lease is a member of its process's list and of its buffer's, and is charged to the process's
 * user. The catalog decides what the end of a lease means for the buffer.
 */
#include "daemon/catalog/lease.h"

#include "proto/base/clock.h"

#include <stdlib.h>

int lease_new(struct accounts *accounts, struct process *process, enum access access, uint64_t id,
	      uint64_t slack, struct lease **ret, struct fault *f)
{
	struct lease *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
	r = charge(accounts, process->uid, ACCOUNT_LEASES, 1, slack, &l->charge, f);
	if (r < 0) {
		free(l);
		return r;
	}
	l->process = process;
	l->access = access;
	l->id = id;
	l->since_ns = clock_realtime_ns();
	list_init(&l->buffer_link);
	list_insert(&process->leases, &l->process_link);
	*ret = l;
	return 0;
}

struct lease *lease_free(struct lease *l)
{
	list_drop(&l->process_link);
	list_drop(&l->buffer_link);
	discharge(&l->charge);
	free(l);
	return NULL;
}
