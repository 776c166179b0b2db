/* SPDX-License-Identifier: MIT
 *
 * A lease: one process's hold on one buffer, to read or to write. It ends at CLOSE, or when its
 * process is gone; never because a socket closed.
 */
#ifndef GPUSHM_DAEMON_CATALOG_LEASE_H
#define GPUSHM_DAEMON_CATALOG_LEASE_H

#include "daemon/catalog/buffer.h"

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

/* A lease of the process on the buffer, charged to the process's user, who may exceed the limit by
 * `slack`. 0, or -errno with *f filled in. */
int lease_new(struct accounts *accounts, struct process *p, struct buffer *b, enum access access,
	      uint64_t id, uint64_t slack, struct lease **ret, struct fault *f);

/* Unlinks it from both and discharges. Returns NULL. */
struct lease *lease_free(struct lease *l);

/* The holder of a write lease has published the buffer sealed: it may only read from now on. */
void lease_make_read_only(struct lease *l);

/* Whether the buffer has leases, all of them of processes whose connection has closed. */
bool lease_all_suspect(const struct buffer *b);

#endif
