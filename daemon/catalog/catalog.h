/* SPDX-License-Identifier: MIT
 *
 * The catalog: from names and ids to buffers, from lease ids to leases, and every rule about their
 * lives. All that a client can do to a buffer is one function here; each checks in the order
 * shape, right, room, name, act.
 */
#ifndef GPUSHM_DAEMON_CATALOG_CATALOG_H
#define GPUSHM_DAEMON_CATALOG_CATALOG_H

#include "daemon/catalog/buffer.h"
#include "daemon/catalog/lease.h"
#include "daemon/catalog/status_page.h"
#include "daemon/state/serialize.h"

struct catalog {
	struct hashtable by_name, by_id, leases;
	struct list buffers; /* buffer::all_link, in the order of their ids */
	uint32_t n_buffers, n_leases;
	uint64_t next_buffer, next_lease;
	struct accounts accounts;
	struct archive *archive;  /* borrowed; NULL: nothing outlives the daemon */
	struct status_page *page; /* borrowed; NULL: nobody is told */
	struct list lost;	  /* struct lost: names of buffers whose memory is gone */
	struct hashtable lost_by_name;
	struct list *pools;	  /* pool::link; borrowed */
	const char *default_pool; /* borrowed */

	/* Somebody may be waiting for it. Called after the buffer was published, or cleaned. */
	void (*on_published)(const struct buffer *b, void *arg);
	/* Something has happened to the buffer that has, or had, that key; NULL: it has none any
	 * more. Called in the middle of it: nothing of the catalog may be changed from here. */
	void (*on_changed)(const struct buffer *b, const char *key, void *arg);
	void *arg;
};

/* 0 or -ENOMEM. */
int catalog_init(struct catalog *c, const struct config *config, struct list *pools);

/* What an earlier daemon had: the buffer goes into the catalog as it is; the lease gets its old id
 * and time. */
void catalog_adopt_buffer(struct catalog *c, struct buffer *b);
int catalog_adopt_lease(struct catalog *c, struct process *p, struct buffer *b, enum access access,
			uint64_t id, uint64_t since_ns, struct fault *f);

/* The lease is another process's from now on: of a new connection of the same client. 0; or -errno,
 * and it is whose it was. */
int catalog_move_lease(struct catalog *c, struct lease *l, struct process *p);

/* Finds the places of adopted buffers on the board, which an earlier daemon may have written, and
 * says there what has become of all of its buffers. */
void catalog_adopt_page(struct catalog *c);

/* Something that the board tells of the buffer has changed. */
void catalog_notice(struct catalog *c, const struct buffer *b);

/* What the board says of the buffer now, as told to who asks. */
uint32_t catalog_status_word(const struct catalog *c, const struct buffer *b);

/* The process has no lease any more. */
void catalog_forget_process(struct catalog *c, struct process *p);

/* Marks the slots that adopted buffers have as taken. */
void catalog_take_slots(const struct catalog *c, struct fd_index *slots);

/* Writes everything that is to survive into an archive. 0 or -errno. */
int catalog_archive(const struct catalog *c, struct archive *a);

/* Lists the fds of everything that is in the archive. 0 or -ENOMEM. */
int catalog_list(const struct catalog *c, struct fd_list *m);

/* The daemon ends, and what it has is kept: no memory is given back to a driver. */
void catalog_keep_memory(struct catalog *c);

/* Frees what nobody holds and nobody can name, after everything has been adopted and archived. */
void catalog_free_unused(struct catalog *c);

/* The buffer's memory is gone, and nobody freed it: its name is free, its leases end, its charges
 * return, and it with them. Who asks for the name is told why, until it is created again. */
void catalog_memory_lost(struct catalog *c, struct buffer *b, const char *why);

/* What catalog_missing() says of a name. */
void catalog_remember_lost(struct catalog *c, const char *key, const char *why);
void catalog_forget_lost(struct catalog *c, const char *key);
void catalog_forget_all_lost(struct catalog *c);

/* At the daemon's end, when no lease is left: every name goes, and with it every buffer that is not
 * being allocated just now. */
void catalog_unlink_all(struct catalog *c);

/* When catalog_unlink_all() was called and no allocation is under way any more. */
void catalog_done(struct catalog *c);

/* The pool of that name, or the default one for an empty name. CODE_NOT_FOUND, with the names that
 * there are. */
int catalog_lookup_pool(const struct catalog *c, const char *name, struct pool **ret,
			struct fault *f);

/* Whether the process may create in the pool; and what it is told if not. */
bool catalog_pool_is_open_to(const struct pool *pool, const struct process *p);
int catalog_refuse_pool(const struct pool *pool, const struct process *p, struct fault *f);

/* Takes the name and asks the pool for memory. 0: *ret_lease is the creator's write lease.
 * -EINPROGRESS: *ret_buffer, and later on_made(); until then catalog_cancel_create() may call it
 * off. Else refused. */
int catalog_create(struct catalog *c, struct process *p, const struct buffer_spec *spec,
		   struct buffer **ret_buffer, struct lease **ret_lease, struct fault *f);

/* Adds to what a client is told of a pool without room who holds the most of it. */
void catalog_tell_full(struct catalog *c, const struct pool *pool, struct fault *f);

/* After on_made with result 0: the creator's lease. */
int catalog_grant(struct catalog *c, struct process *p, struct buffer *b, enum access access,
		  struct lease **ret, struct fault *f);

/* The creator has gone while the memory was being allocated: the name is free at once, the memory
 * when it comes. */
void catalog_cancel_create(struct catalog *c, struct buffer *b);

/* Whether the process may attach to buffers of the pool: of a mempool, its users only. */
bool catalog_may_attach(const struct pool *pool, const struct process *p);

/* NULL where there is none. */
struct buffer *catalog_by_key(const struct catalog *c, const char *key);
int catalog_missing(const struct catalog *c, const char *key, struct fault *f); /* -ENOENT */

/* A published buffer that the process may open so. -ENOENT, -EAGAIN while it is being filled,
 * -EACCES, -EROFS. */
int catalog_lookup_for_open(struct catalog *c, const struct process *p, const char *key,
			    enum access access, struct buffer **ret, struct fault *f);

/* Any buffer that the process may see: published and readable, or its own. */
int catalog_lookup_visible(struct catalog *c, const struct process *p, const char *key,
			   struct buffer **ret, struct fault *f);
bool catalog_visible(const struct buffer *b, const struct process *p);

/* Whosever it is; NULL where there is none. */
struct lease *catalog_lease_by_id(const struct catalog *c, uint64_t id);

/* A lease of this process. -EBADF. */
int catalog_lookup_lease(struct catalog *c, const struct process *p, uint64_t id,
			 struct lease **ret, struct fault *f);

int catalog_publish(struct catalog *c, struct lease *l, enum buffer_state state, struct fault *f);

/* The lease has really ended. A buffer that was being filled goes with its creator's lease. */
void catalog_end_lease(struct catalog *c, struct lease *l);

/* The lease has really ended, for its process has gone and never closed it. A shared buffer that it
 * could write to is dirty from now on. */
void catalog_holder_died(struct catalog *c, struct lease *l);

/* A process that held the buffer for writing has gone without a CLOSE: a shared one is dirty from
 * now on. */
void catalog_mark_dirty(struct catalog *c, struct buffer *b, const struct process *p);

/* 0, or CODE_DIRTY where a writer died. */
int catalog_refuse_dirty(const struct buffer *b, struct fault *f);

/* The buffer is not dirty any more, says its owner or an admin. id as for catalog_unlink(). */
int catalog_clean(struct catalog *c, const struct process *p, const char *key, uint64_t id,
		  struct fault *f);

/* The connection of a process has closed: what it was filling loses its name at once. Its leases go
 * on. */
void catalog_unlink_unpublished(struct catalog *c, struct process *p);

/* id 0: whatever buffer the key means. */
int catalog_unlink(struct catalog *c, const struct process *p, const char *key, uint64_t id,
		   struct fault *f);

/* NULL where there is none. */
struct buffer *catalog_by_id(const struct catalog *c, uint64_t id);

/* The first buffer with an id above `after`, in list order; NULL at the end. */
struct buffer *catalog_next(const struct catalog *c, uint64_t after);

#endif
