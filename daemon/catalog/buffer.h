/* SPDX-License-Identifier: MIT
 *
 * A buffer: one allocation of a pool with a name, an owner, a mode and a life.
 *
 *	filling -> sealed | shared -> unlinked -> freed
 *
 * It owns its block, its table and its charges. The catalog frees it when it has neither a name nor
 * a lease: a lease is one process's hold on it.
 */
#pragma once

#include "daemon/catalog/process.h"
#include "daemon/catalog/stream.h"
#include "daemon/pool/pool.h"
#include "proto/status_page.h"
#include "proto/table.h"

enum access { ACCESS_READ = 1, ACCESS_WRITE = 2 };				/* enum Access */
enum buffer_state { BUFFER_FILLING = 1, BUFFER_SEALED = 2, BUFFER_SHARED = 3 }; /* enum State */

#define BUFFER_NOT_KEPT UINT32_MAX

/* The process that died while it held a buffer for writing, and when the daemon noticed. */
struct death {
	uint64_t ns; /* CLOCK_REALTIME */
	pid_t pid;
	uid_t uid;
	char command[16];
};

/* There may be 100,000 buffers, so this struct is small: what a buffer has only for a while is in
 * struct making, and the order of the members leaves no holes. */
struct buffer {
	struct hashtable_link by_name; /* catalog::by_name, while it has a name */
	struct hashtable_link by_id;   /* catalog::by_id */
	struct list all_link;	       /* catalog::buffers */
	uint64_t id;
	char *key;	/* its name: `name`, or owned after a rename; NULL once unlinked */
	char *last_key; /* the name that it lost when it was unlinked, as key; else NULL */
	enum buffer_state state;
	uid_t uid;
	gid_t gid;
	mode_t mode;
	bool transient, dirty;
	bool lost;	  /* its memory: nobody may open it any more */
	bool foreign;	  /* another uid than the owner's has mapped it: its memory is not reused */
	bool keep_memory; /* the daemon ends while processes have it: its memory is not freed under
			   * them
			   */
	uint32_t fd_index; /* in the names of its kept fds; BUFFER_NOT_KEPT: they have none */
	uint64_t created_ns, published_ns; /* CLOCK_REALTIME */
	struct death death;		   /* where dirty: the first since it was clean */

	struct pool *pool;
	struct making *making; /* owned; NULL once there is a block */
	struct block block;
	uint64_t memory;   /* the id of the buffer that its block was made for */
	uint64_t bytes;	   /* as asked for; block.bytes is what it got */
	uint64_t reserved; /* counted in account::making; 0 once there is a block */
	struct charge bytes_charge, buffer_charge, table_charge, fds_charge;
	struct charge kept_charge; /* while it has a place at systemd */

	struct table_builder *table; /* while filling; NULL: no array and no attribute so far */
	uint64_t table_bytes, digest;
	uint32_t arrays;
	int table_fd; /* once published, where there is anything in it; else -1 */

	struct stream *stream; /* owned; NULL: an ordinary buffer */
	struct buffer *twin; /* held: sealed, with the same bytes, in the host's memory; or NULL */
	struct cached *cached;	/* owned; NULL: it never had a twin or source, and nobody has asked
				   for it */
	struct buffer *twin_of; /* whose twin it is; or NULL */
	bool evicted;		/* it has no block */

	struct list leases; /* lease::buffer_link */
	uint32_t readers, writers;
	uint32_t away;	/* of these: their processes have suspended the buffer */
	uint32_t holds; /* catalog_hold() */
	uint32_t opens; /* OPENs that got a lease since the daemon started; it wraps */

	uint32_t cell; /* its index on the status page; STATUS_PAGE_NONE: it has none */
	char name[];   /* as it was created; its memory goes with the buffer's */
};

/* What a buffer needs only while its memory is being allocated. */
struct making {
	struct pool_request request;
	struct buffer *buffer;
	struct catalog *catalog;
	/* Called when the memory is there, or can't be had; NULL: nobody waits for it any more. */
	void (*on_made)(struct buffer *b, int result, const struct fault *f, void *arg);
	void *arg;
	bool asks; /* counted in catalog::n_asking */
};

/* A buffer whose memory may go when it is needed. */
struct cached {
	struct list
		link; /* catalog::cached, the one that was not used for the longest time first */
	struct buffer *buffer;
	uint64_t used_ns;  /* CLOCK_MONOTONIC: when a process last opened, suspended, resumed or
			      closed it */
	uint64_t keep_ms;  /* how long it stays after that; UINT64_MAX: always */
	int32_t priority;  /* buffers of a higher priority are asked for later */
	bool keeps;	   /* keep_ms is its own, and not the configuration's */
	bool wanted;	   /* its processes are asked to suspend it: memory is needed */
	bool asked;	   /* the same, because somebody wants them to */
	uint64_t asked_ns; /* CLOCK_MONOTONIC: since when */
	bool source;	   /* its owner says that its processes can load the bytes again */
};

static inline bool cached_is_wanted(const struct cached *it)
{
	return it->wanted || it->asked;
}

/* The parameters of a CREATE; strings are borrowed. */
struct buffer_spec {
	const char *key;
	const char *pool; /* empty: the default */
	uint64_t bytes;
	mode_t mode;
	gid_t gid;
	bool transient;
	const struct table_attr *attrs;
	size_t n_attrs;
	uint64_t wait_ms; /* for space in the pool; UINT64_MAX: for ever */
};

/* Its name, or the last one that it had; "": it never had one. */
static inline const char *buffer_name(const struct buffer *b)
{
	return b->key ? b->key : b->last_key ? b->last_key : "";
}

/* A buffer with a key of len bytes and nothing else. NULL without memory. */
struct buffer *buffer_alloc(const char *key, size_t len);

/* Frees a key that the buffer has had; NULL is allowed. */
void buffer_free_key(struct buffer *b, char *key);

/* The bytes that a process's user may hold in a pool; UINT64_MAX: no limit but the pool's. */
uint64_t buffer_share(const struct accounts *a, const struct process *p, const struct pool *pool);

/* Charges the owner for the buffer, its bytes, its table and its fds; the owner may exceed its
 * limits by `slack`. 0, or -errno with *f filled in. */
int buffer_charge(struct accounts *a, struct buffer *b, uint64_t slack, struct fault *f);

/* Whether it is published and has a place at systemd: it survives the daemon's death. */
static inline bool buffer_is_kept(const struct buffer *b)
{
	return b->kept_charge.account;
}

/* Charges the owner for such a place, if there is one for it; `slack` as above. Returns whether
 * there is. */
static inline bool buffer_take_place(struct buffer *b, uint64_t slack)
{
	struct fault ignored;

	return charge(b->buffer_charge.account->accounts, b->uid, ACCOUNT_KEPT, 1, slack,
		      &b->kept_charge, &ignored) == 0;
}

/* A buffer without a block yet, charged to the process's user. 0, or -errno with *f filled in. */
int buffer_new(struct accounts *accounts, const struct process *owner, struct pool *pool,
	       const struct buffer_spec *spec, struct buffer **ret, struct fault *f);

/* The buffer owns the block from now on; it counts for its user. */
void buffer_take_block(struct buffer *b, const struct block *block);

/* The block, and what is charged for it, becomes another buffer's of the same user and pool, which
 * has none. */
void buffer_move_block(struct buffer *from, struct buffer *to);

/* It is published, and systemd has what it keeps of it: from now on only fds are left that are
 * lent. */
void buffer_drop_originals(struct buffer *b);

/* The buffer has neither a name nor a lease any more: closes the fds that were lent. Returns
 * whether a process still has the memory or the table; what is free is given back.
 * buffer_is_held() looks again. */
bool buffer_withdraw(struct buffer *b);
bool buffer_is_held(struct buffer *b);
uint64_t buffer_held_bytes(const struct buffer *b);

/* Frees it and what it owns; the block goes to the pool's deferred frees. The buffer must be in no
 * index, have no lease, and not be in allocation. NULL is allowed. Returns NULL. */
struct buffer *buffer_free(struct buffer *b);

/* Who may open a buffer, as for a file. */
struct rights {
	uid_t uid;
	gid_t gid;
	mode_t mode;
};
struct rights buffer_rights(const struct buffer *b);

/* Whether the mode allows the process that access. Admins may do everything. */
bool rights_allow(const struct rights *r, const struct process *p, enum access access);
bool buffer_allows(const struct buffer *b, const struct process *p, enum access access);
bool buffer_owned_by(const struct buffer *b, const struct process *p);

/* 0 for such a process; else CODE_ACCESS, which says that only they may do `what`. */
int buffer_check_owner(const struct buffer *b, const struct process *p, const char *what,
		       struct fault *f); /* also true for admins */

/* Makes space for n more arrays in a buffer that is being filled. -ERESTART: a part is done; call
 * it again, after other users. */
int buffer_reserve_arrays(struct buffer *b, size_t n, struct fault *f);

/* Adds an array to a buffer that is being filled. When a batch fails, buffer_forget_arrays()
 * removes all but the first n. */
int buffer_describe(struct buffer *b, const struct table_array *array, struct fault *f);
void buffer_forget_arrays(struct buffer *b, uint32_t n);

/* Sets attributes of a buffer that is being filled; an empty value removes one. All or nothing. */
int buffer_change_attrs(struct buffer *b, const struct table_attr *attrs, size_t n,
			struct fault *f);

/* Writes the table's memfd and seals the memory where the kind can. The state changes on success
 * only. -ERESTART: a part of a large table is written; call it again. */
int buffer_publish(struct buffer *b, enum buffer_state state, struct fault *f);

/* Of a buffer that is not published. BUFFER_SEALED: nobody may write to its memory any more, where
 * the kind can see to that; BUFFER_SHARED: its creator can't forbid that. */
int buffer_seal_memory(struct buffer *b, enum buffer_state state, struct fault *f);

/* ---- leases ---- */

/* One process's hold on one buffer, to read or to write. It ends with CLOSE, or when its process is
 * gone; never only because a socket closed. */
struct lease {
	struct hashtable_link link; /* catalog::leases, by id */
	struct list process_link;   /* process::leases */
	struct list reader_link;    /* process::readers, while it follows a stream */
	struct list buffer_link;    /* buffer::leases */
	struct charge charge;	    /* against the holder's account */
	struct process *process;
	struct buffer *buffer;
	uint64_t id;
	enum access access;
	bool filling;	   /* counted in process::filling */
	bool away;	   /* its process has unmapped the memory, and means to come back */
	bool left;	   /* it was the stream's producer, or one of its readers */
	int8_t reader;	   /* the index of its seat; -1: it follows no stream */
	uint64_t since_ns; /* CLOCK_REALTIME */
};

/* A lease of the process on the buffer, charged to the process's user, who may exceed the limit by
 * `slack`. 0, or -errno with *f filled in. */
int lease_new(struct accounts *accounts, struct process *p, struct buffer *b, enum access access,
	      uint64_t id, uint64_t slack, struct lease **ret, struct fault *f);

/* Makes it a lease of this process. */
void lease_move(struct lease *l, struct process *p);

/* It has this seat of its buffer's stream; -1: it has none any more. */
void lease_follow(struct lease *l, int reader);

/* Its buffer is not filled any more, or nobody needs to know. */
void lease_fill_no_more(struct lease *l);

/* Its process has unmapped the buffer, or has it again. */
void lease_set_away(struct lease *l, bool away);

/* It is a lease of this buffer from now on. */
void lease_change_buffer(struct lease *l, struct buffer *to);

/* Unlinks it from both and discharges. Returns NULL. */
struct lease *lease_free(struct lease *l);

/* The holder of a write lease has published the buffer sealed: it may only read from now on. */
void lease_make_read_only(struct lease *l);

/* Whether the buffer has leases, all of them of processes whose connection has closed. */
bool lease_all_suspect(const struct buffer *b);
