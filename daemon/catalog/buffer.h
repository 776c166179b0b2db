/* SPDX-License-Identifier: MIT
 *
 * A buffer: one allocation of a pool with a name, an owner, a mode and a life.
 *
 *	filling -> sealed | shared -> unlinked -> freed
 *
 * It owns its block, its table and its charges, and frees them when it has neither a name nor a
 *lease.
 */
#ifndef GPUSHM_DAEMON_CATALOG_BUFFER_H
#define GPUSHM_DAEMON_CATALOG_BUFFER_H

#include "daemon/catalog/lease.h"
#include "daemon/pool/pool.h"
#include "proto/status_page.h"
#include "proto/table.h"

enum buffer_state { BUFFER_FILLING = 1, BUFFER_SEALED = 2, BUFFER_SHARED = 3 }; /* enum State */

#define BUFFER_NOT_KEPT UINT32_MAX

/* Who was gone while it held a buffer for writing, and when that was noticed. */
struct death {
	uint64_t ns; /* CLOCK_REALTIME */
	pid_t pid;
	uid_t uid;
	char command[16];
};

/* There may be 100,000 of them: what one has for a while is elsewhere, and no room is lost between
 * members. */
struct buffer {
	struct hashtable_link by_name; /* catalog::by_name, while it has a name */
	struct hashtable_link by_id;   /* catalog::by_id */
	struct list all_link;	       /* catalog::buffers */
	uint64_t id;
	char *key; /* its name; NULL once unlinked */
	enum buffer_state state;
	uid_t uid;
	gid_t gid;
	mode_t mode;
	bool transient, dirty;
	bool foreign; /* another uid than the owner's has had it mapped: its memory is not reused */
	bool keep_memory;  /* the daemon ends while processes have it: its memory is not freed under
			    * them
			    */
	uint32_t fd_index; /* in the names of its kept fds; BUFFER_NOT_KEPT: they have none */
	uint64_t created_ns, published_ns; /* CLOCK_REALTIME */
	struct death death;		   /* where dirty: the first since it was clean */

	struct pool *pool;
	struct making *making; /* owned; NULL once there is a block */
	struct block block;
	uint64_t bytes; /* as asked for; block.bytes is what it got */
	struct charge bytes_charge, buffer_charge, table_charge;

	struct table_builder *table; /* while filling; NULL: no array and no attribute so far */
	uint64_t table_bytes, digest;
	uint32_t arrays;
	int table_fd; /* once published, where there is anything in it; else -1 */

	struct list leases; /* lease::buffer_link */
	uint32_t readers, writers;

	uint32_t cell; /* its index on the status page; STATUS_PAGE_NONE: it has none */
	char name[];   /* its memory goes with the buffer's, also once unlinked */
};

/* What a buffer has while its memory is being allocated, and not for the rest of its life. */
struct making {
	struct pool_request request;
	struct buffer *buffer;
	struct catalog *catalog;
	/* Who is told; NULL: it was abandoned. */
	void (*on_made)(struct buffer *b, int result, const struct fault *f, void *arg);
	void *arg;
};

/* What CREATE asks for; strings are borrowed. */
struct buffer_spec {
	const char *key;
	const char *pool; /* empty: the default */
	uint64_t bytes;
	mode_t mode;
	gid_t gid;
	bool transient;
	const struct table_attr *attrs;
	size_t n_attrs;
	uint64_t wait_ms; /* for room in the pool; UINT64_MAX: for ever */
};

/* One that has its key, of len bytes, and nothing else. NULL where there is no memory. */
struct buffer *buffer_alloc(const char *key, size_t len);

/* A buffer without a block yet, charged to the process's user. 0, or -errno with *f filled in. */
int buffer_new(struct accounts *accounts, const struct process *owner, struct pool *pool,
	       const struct buffer_spec *spec, struct buffer **ret, struct fault *f);

/* The block is the buffer's from now on, and its user's. */
void buffer_take_block(struct buffer *b, const struct block *block);

/* Frees what it has; a block goes onto its pool's pending list. It is in no index, has no lease,
 * and its memory is not being allocated. NULL is allowed. Returns NULL. */
struct buffer *buffer_free(struct buffer *b);

/* Whether the mode lets the process do that. Admins may all. */
bool buffer_allows(const struct buffer *b, const struct process *p, enum access access);
bool buffer_owned_by(const struct buffer *b, const struct process *p); /* or it is an admin */

/* Adds an array to a buffer that is being filled; and forgets those after the first n, where a
 * batch failed. */
int buffer_describe(struct buffer *b, const struct table_array *array, struct fault *f);
void buffer_forget_arrays(struct buffer *b, uint32_t n);

/* Writes the table's memfd and seals the memory where the kind can. The state changes on success
 * only. */
int buffer_publish(struct buffer *b, enum buffer_state state, struct fault *f);

/* Ties a lease to the buffer; lease_free() unties it, after buffer_unlease(). */
void buffer_lease(struct buffer *b, struct lease *l);
void buffer_unlease(struct buffer *b, struct lease *l);

/* All its leases are of processes whose connection has closed, and there is one. */
bool buffer_suspect(const struct buffer *b);

/* What a table error is on the wire. */
enum code buffer_table_code(const struct table_error *e);

#endif
