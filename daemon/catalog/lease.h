/* SPDX-License-Identifier: MIT
 *
 * A lease: one process's hold on one buffer, to read or to write. It ends at CLOSE, or when
 * its process has gone; never because a socket closed.
 */
#ifndef GPUSHM_DAEMON_CATALOG_LEASE_H
#define GPUSHM_DAEMON_CATALOG_LEASE_H

#include "daemon/catalog/process.h"
#include "proto/base/list.h"

enum access { ACCESS_READ = 1, ACCESS_WRITE = 2 }; /* enum Access of gpushm.proto */

struct buffer;

struct lease {
	struct hashtable_link link; /* catalog::leases, by id */
	struct list process_link;   /* process::leases */
	struct list buffer_link;    /* buffer::leases */
	struct charge charge;	    /* against the holder's account */
	struct process *process;
	struct buffer *buffer;
	uint64_t id;
	enum access access;
	uint64_t since_ns; /* CLOCK_REALTIME */
};

/* Charges the process's user, who may exceed the limit by `slack`, and links the lease to the
 * process; buffer_lease() links it to the buffer. 0, or -errno with *f filled in. */
int lease_new(struct accounts *accounts, struct process *process, enum access access, uint64_t id,
	      uint64_t slack, struct lease **ret, struct fault *f);

/* Unlinks both sides and discharges. Returns NULL. */
struct lease *lease_free(struct lease *l);

#endif
