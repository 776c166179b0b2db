/* SPDX-License-Identifier: MIT
 *
 * The catalog: names, ids, buffers and leases, and the rules for when they begin and end. Each
 * thing that a client can do to a buffer is one function here. It checks before it acts:
 * catalog_create() checks the right to the pool, then the name, then the limits, the attributes and
 * the pool's space. A function that returns int returns 0, or -errno with *f filled in.
 */
#pragma once

#include "daemon/catalog/buffer.h"
#include "daemon/catalog/event_log.h"
#include "daemon/catalog/lost.h"
#include "daemon/catalog/status_page.h"

enum buffer_event {
	BUFFER_PUBLISHED,
	BUFFER_DIRTIED,	      /* a process died that held it for writing */
	BUFFER_CLEANED,	      /* its owner says that it is not dirty any more */
	BUFFER_MAPPED,	      /* for the first time by another user than its owner */
	BUFFER_RENAMED,	      /* it has another name */
	BUFFER_UNLINKED,      /* it has lost its name */
	BUFFER_LEASE_OVER,    /* of an unlinked buffer: fewer processes may see it */
	BUFFER_WANTED,	      /* or not any more; only on_buffer() is called */
	BUFFER_RESTORED,      /* it has memory again; only on_buffer() is called */
	BUFFER_PRODUCER_LEFT, /* a stream's: it died or closed it; only on_buffer() is called */
	BUFFER_FREED
};

enum lease_event {
	LEASE_GRANTED,
	LEASE_CHANGED, /* another connection has it, or it goes away, or comes back */
	LEASE_ENDED
};
enum reader_event {
	READER_JOINED, /* has a seat, or was dropped from the stream */
	READER_GONE    /* its seat is about to be freed */
};

/* An observer follows what happens to buffers and leases: the journal writes it down, and the
 * requests that wait for a change are woken. It is a member of the object that observes, and stays
 * in the catalog's list until list_drop(). The catalog does not call functions that are NULL. */
struct catalog_observer {
	struct list link; /* catalog::observers */

	/* Called before the status page is written and before a client learns of the event, so that
	 * no client knows something that the next daemon does not know if this one dies in between.
	 * record_lease() returns 0 or -errno; an error refuses LEASE_GRANTED and LEASE_CHANGED. */
	void (*record_buffer)(struct catalog_observer *o, struct buffer *b,
			      enum buffer_event event);
	/* BUFFER_PUBLISHED and BUFFER_RENAMED. replaced: NULL, or the buffer that loses its name to
	 * b in the same step, and has no event of its own. An error refuses BUFFER_RENAMED. */
	int (*record_name)(struct catalog_observer *o, struct buffer *b, enum buffer_event event,
			   const struct buffer *replaced);
	int (*record_lease)(struct catalog_observer *o, const struct lease *l,
			    enum lease_event event);
	/* Of published streams: it has another producer, or none; and its readers. An error refuses
	 * a new producer and READER_JOINED. */
	int (*record_stream)(struct catalog_observer *o, struct buffer *b);
	int (*record_reader)(struct catalog_observer *o, const struct lease *l,
			     enum reader_event event);
	/* The process has no lease any more, and is about to be freed. */
	void (*record_process_end)(struct catalog_observer *o, struct process *p);

	/* It was evicted or has memory again: moved; or it has got a twin, a source, or another
	 * `keep`. An error refuses that. */
	int (*record_residence)(struct catalog_observer *o, struct buffer *b, bool moved);

	/* Called after the status page is written. key: the name that the buffer has or has just
	 * lost; NULL: it was unlinked before. A rename is BUFFER_UNLINKED of each name that ends,
	 * and then BUFFER_RENAMED. The function does not change the catalog, but may hold a buffer
	 * in all events but those in which it loses its name or a lease, or is freed, and release
	 * it. */
	void (*on_buffer)(struct catalog_observer *o, struct buffer *b, const char *key,
			  enum buffer_event event);
};

/* Calls that function of all observers that have it, until one returns an error. Returns that, or
 * 0; the second is for functions that return nothing. */
#define catalog_record(c, function, ...)                            \
	({                                                          \
		int r_ = 0;                                         \
		struct catalog_observer *o_;                        \
		list_foreach (o_, &(c)->observers, link)            \
			if (r_ == 0 && o_->function)                \
				r_ = o_->function(o_, __VA_ARGS__); \
		r_;                                                 \
	})
#define catalog_notify(c, function, ...)                       \
	do {                                                   \
		struct catalog_observer *o_;                   \
		list_foreach (o_, &(c)->observers, link)       \
			if (o_->function)                      \
				o_->function(o_, __VA_ARGS__); \
	} while (0)

/* Of this daemon and those before it. */
struct restarts {
	uint64_t n;	   /* daemons that took over from an earlier one */
	uint64_t restored; /* buffers that they found again */
	uint64_t lost;	   /* and that they did not, or whose memory was gone */
};

/* Of the buffers of a pool that have a twin, since the daemon started. */
struct cache_counts {
	uint64_t uses;	      /* OPENs and RESUMEs that got the memory */
	uint64_t restores;    /* buffers that got memory again */
	uint64_t restored_ns; /* from its CREATE on */
	uint64_t not_yielded; /* buffers that were wanted for a CREATE, until it failed */
};

/* Their memory now. */
struct cache_bytes {
	uint64_t evictable; /* may go when some is needed */
	uint64_t kept;	    /* may not yet, or never */
};

struct catalog {
	struct hashtable by_name, by_id, leases;
	struct list buffers; /* buffer::all_link, in the order of their ids */
	/* buffer::all_link: they have ended, but processes have not let go of their memory */
	struct list retained;
	uint32_t n_retained;
	uint64_t retained_bytes; /* of memory and tables */
	struct list streams;	 /* stream::link, in the order of their buffers' ids */
	uint32_t n_streams;
	struct list cached;	      /* cached::link */
	uint32_t n_wanted;	      /* of these */
	uint32_t n_asking[POOLS_MAX]; /* creates that wait for those who were asked, by pool::index
				       */
	uint64_t evictions;	      /* since the daemon started */
	struct cache_counts cache_counts[POOLS_MAX]; /* by pool::index */
	struct retired_pages retired_pages;
	struct stream_counts past_streams;	 /* the sums of those that were freed */
	uint64_t reader_deaths, producer_deaths; /* of streams */
	bool ending;				 /* the daemon ends: nothing is retained any more */
	uint32_t n_buffers, n_leases;
	uint32_t n_write_leases, n_away;		 /* of n_leases */
	uint32_t n_states[POOLS_MAX][BUFFER_SHARED + 1]; /* buffers, by pool::index and state */
	uint64_t next_buffer, next_lease;
	struct accounts accounts;
	struct lost_names lost;
	struct restarts restarts;
	struct event_log events;      /* event_log_add(&c->events, ...) adds one */
	struct ratelimit death_lines; /* limits the log's lines about processes that end */
	struct list observers;	      /* catalog_observer::link; borrowed */
	struct status_page *page;     /* borrowed; NULL: it is not written */
	struct list *pools;	      /* pool::link; borrowed */
	struct reaper *reaper;	      /* borrowed; NULL: nobody is a suspect for what he keeps */
	const char *default_pool;     /* borrowed */
};

/* 0 or -ENOMEM. */
int catalog_init(struct catalog *c, const struct config *config, struct list *pools);

/* ---- pools ---- */

/* The pool of that name, or the default pool for an empty name. CODE_NOT_FOUND with the names of
 * all pools. */
int catalog_lookup_pool(const struct catalog *c, const char *name, struct pool **ret,
			struct fault *f);

/* Whether the process may create buffers in the pool; and the error for a process that may not. */
bool catalog_pool_is_open_to(const struct pool *pool, const struct process *p);
int catalog_refuse_pool(const struct pool *pool, const struct process *p, struct fault *f);

/* ---- looking up ---- */

/* Without a check of rights; NULL if there is none. */
struct buffer *catalog_by_key(const struct catalog *c, const char *key);
struct buffer *catalog_by_id(const struct catalog *c, uint64_t id);
struct lease *catalog_lease_by_id(const struct catalog *c, uint64_t id);

/* The first buffer with an id above `after`, in list order; NULL at the end. */
struct buffer *catalog_next(const struct catalog *c, uint64_t after);

/* A published buffer that the process may open with that access. held: NULL, or a buffer that had
 * this name when it was published, and is meant even if it has lost it. -ENOENT, -EAGAIN while it
 * is being filled, -EACCES, -EROFS. */
int catalog_lookup_for_open(struct catalog *c, const struct process *p, const char *key,
			    struct buffer *held, enum access access, struct buffer **ret,
			    struct fault *f);

/* Holds a buffer, so that it is not freed and a transient one keeps its name, until it is released.
 */
struct buffer *catalog_hold(struct buffer *b);
void catalog_release(struct catalog *c, struct buffer *b);

/* A buffer that the process may see: published and readable, or its own. */
int catalog_lookup_visible(struct catalog *c, const struct process *p, const char *key,
			   struct buffer **ret, struct fault *f);
bool catalog_visible(const struct buffer *b, const struct process *p);

/* A lease of this process. -EBADF. */
int catalog_lookup_lease(struct catalog *c, const struct process *p, uint64_t id,
			 struct lease **ret, struct fault *f);

/* CODE_NO_MEMORY: an observer could not record what was asked for. */
int catalog_refuse_unwritten(int error, struct fault *f);

/* The event is recorded: writes the buffer's word and calls on_buffer() of all observers. */
void catalog_tell(struct catalog *c, struct buffer *b, const char *key, enum buffer_event event);

/* The buffer's word on the status page; without a status page, its flags alone. */
uint32_t catalog_status_word(const struct catalog *c, const struct buffer *b);

/* ---- a buffer's life ---- */

/* Takes the name and asks the pool for memory. 0: *ret_lease is the creator's write lease.
 * -EINPROGRESS: *ret_buffer; set on_made of its `making`, which is called later, or call
 * catalog_cancel_create(). */
int catalog_create(struct catalog *c, struct process *p, const struct buffer_spec *spec,
		   struct buffer **ret_buffer, struct lease **ret_lease, struct fault *f);

/* The creator's connection has closed during the allocation: frees the name now, and the memory
 * when the pool has allocated it. */
void catalog_cancel_create(struct catalog *c, struct buffer *b);

/* Gives the process a lease: to the creator when on_made() has result 0, and to each process that
 * opens the buffer. The caller has checked the rights. */
int catalog_grant(struct catalog *c, struct process *p, struct buffer *b, enum access access,
		  struct lease **ret, struct fault *f);

/* key: the name that the buffer gets; NULL: it keeps its own. replace: as for catalog_rename().
 * -ERESTART: nothing has changed yet, and it must be called again: a large table takes several
 * calls, so that other users can be served in between. */
int catalog_publish(struct catalog *c, struct lease *l, enum buffer_state state, const char *key,
		    bool replace, struct fault *f);

/* For the buffer's owner and admins: gives a published buffer another name. replace: that may be
 * the name of another published buffer of theirs, which is unlinked in the same step. */
int catalog_rename(struct catalog *c, const struct process *p, const char *from, const char *to,
		   bool replace, struct fault *f);

/* 0, or CODE_DIRTY. */
int catalog_refuse_dirty(const struct buffer *b, struct fault *f);

/* For the buffer's owner and admins: the buffer is not dirty any more. id 0: any buffer of that
 * name. */
int catalog_clean(struct catalog *c, const struct process *p, const char *key, uint64_t id,
		  struct fault *f);

/* For the buffer's owner and admins: frees the name; the memory follows with the last lease. id as
 * for catalog_clean(). */
int catalog_unlink(struct catalog *c, const struct process *p, const char *key, uint64_t id,
		   struct fault *f);

/* The connection of a process has closed: unlinks the buffers that it was filling, at most so many.
 * Their leases stay. Returns whether there are more. */
bool catalog_unlink_unpublished(struct catalog *c, struct process *p, unsigned max);

/* The lease now belongs to another process: to a new connection of the same client. On an error it
 * stays where it is. */
int catalog_move_lease(struct catalog *c, struct lease *l, struct process *p);

/* The process has unmapped the buffer, and keeps its lease: it is away; or it has the buffer again.
 * Nothing changes where that is so already. CODE_STATE: the buffer is not published;
 * CODE_UNSUPPORTED: it is a stream, or its pool has one memory for all buffers. */
int catalog_set_away(struct catalog *c, struct lease *l, bool away, struct fault *f);

/* The lease, which is away, is one of another buffer from now on, which has the same layout. key:
 * of the one that has this name, if there is one; its mode must allow what the lease does. NULL: of
 * the one with that id, of which this process has a lease, too. Errors as of
 * catalog_lookup_for_open(), and CODE_STALE. A lease that is not away stays as it is (away.c). */
int catalog_follow(struct catalog *c, struct lease *l, const char *key, uint64_t id,
		   struct fault *f);

/* ---- memory that comes and goes (residence.c) ---- */

/* `fresh`, which its creator has filled, becomes the twin of the lease's buffer: it is published
 * sealed, and loses its name. CODE_STATE, CODE_ACCESS, CODE_LAYOUT. */
int catalog_add_twin(struct catalog *c, struct lease *fresh, struct lease *l, struct fault *f);

/* The lease's process has found that the buffer's twin, which has this id, has other bytes than the
 * buffer: it ends. Nothing changes if that is not the twin, or of another user. */
int catalog_drop_twin(struct catalog *c, const struct lease *l, uint64_t twin, struct fault *f);

/* The lease's buffer, which is evicted, gets the memory of `fresh`, which its creator has filled
 * with the same bytes; fresh has neither memory nor name afterwards. */
int catalog_restore(struct catalog *c, struct lease *fresh, struct lease *l, struct fault *f);

/* Whether its bytes are elsewhere, too: in its twin, or where its owner can load them from. */
bool catalog_has_twin(const struct buffer *b);
bool catalog_is_clean(const struct buffer *b);

/* The process says that it can load the bytes of the buffer with that id again; 0: it says nothing.
 * Only for the owner: others can't restore it. CODE_NOT_FOUND: b is another one. */
int catalog_add_source(struct catalog *c, struct buffer *b, const struct process *p, uint64_t id,
		       struct fault *f);

/* For the owner and admins: the memory of a clean buffer goes that no process uses. CODE_STATE says
 * who does; CODE_NO_COPY: it is not clean. id as for catalog_clean(), source as for
 * catalog_add_source(). */
int catalog_evict(struct catalog *c, const struct process *p, const char *key, uint64_t id,
		  uint64_t source, struct fault *f);

/* As catalog_evict(), without a check of rights. */
int catalog_evict_buffer(struct catalog *c, struct buffer *b, const struct process *who,
			 struct fault *f);

/* CODE_EVICTED, if it is. */
int catalog_refuse_evicted(const struct buffer *b, struct fault *f);

/* An earlier daemon's: the twin has that id. -ENOENT: it did not come back. */
int catalog_adopt_twin(struct catalog *c, struct buffer *b, uint64_t twin);

/* ---- who goes when memory is needed (room.c) ---- */

/* The buffer has a twin or a source, or is asked for, from now on. 0 or -ENOMEM. */
int catalog_cache(struct catalog *c, struct buffer *b);
/* A process uses the buffer, or has just ended to. */
void catalog_touch(struct catalog *c, struct buffer *b);

/* For the owner and admins: how long the buffer's memory stays after its last use. source as for
 * catalog_add_source(). */
int catalog_keep(struct catalog *c, const struct process *p, const char *key, uint64_t keep_ms,
		 int32_t priority, uint64_t source, struct fault *f);

/* The process wants that many bytes of the pool. If they are not free, evicts buffers of the same
 * user that no process uses, the longest unused first. Where that is not enough, asks the processes
 * that use others, if *wait_ms, for which the request waits, or yield-timeout is not 0; *wait_ms is
 * the longer of the two then. Whether it has asked: then catalog_want_nothing() must follow. */
bool catalog_make_room(struct catalog *c, const struct process *p, struct pool *pool,
		       uint64_t bytes, uint64_t *wait_ms);
/* A process has suspended or closed the buffer: if it is wanted, or a request waits for memory of
 * the pool, its memory goes. */
void catalog_yield(struct catalog *c, struct buffer *b);
/* A create has ended that waited for those: if it was the last in the pool, nothing is wanted there
 * any more. */
void catalog_want_nothing(struct catalog *c, const struct pool *pool);
/* The memory for b has not come: says in *f who holds the pool, and counts those that were wanted
 * for it. */
void catalog_refuse_full(struct catalog *c, const struct buffer *b, struct fault *f);
/* A process has got the buffer's memory. */
void catalog_count_use(struct catalog *c, const struct buffer *b);
/* Of the buffers of a pool; walks all that have a twin. */
struct cache_bytes catalog_cache_bytes(const struct catalog *c, const struct pool *pool);

/* For the owner and admins: all processes are asked to suspend the buffer, which keeps its memory
 * then; or not any more. The ask ends with this daemon. */
int catalog_ask(struct catalog *c, const struct process *p, const char *key, bool asked,
		struct fault *f);
/* The buffer is about to be freed. */
void catalog_end_ask(struct catalog *c, struct buffer *b);

/* ---- processes that are parked (park.c) ---- */

/* The process suspends all it has, says *f: CODE_STATE while it has something mapped. Other codes:
 * it can't be parked as it is. */
int catalog_check_parkable(const struct catalog *c, const struct pidfd *p, struct fault *f);

/* The process's state from now on; text: NULL, or how the driver has failed. */
void catalog_set_parking(struct catalog *c, struct pidfd *p, enum parking state, const char *text);

/* Adds to *f, which says that the pool is full, what of it the user holds (holders.c). O(n) of all
 * buffers. */
void catalog_name_holders(const struct catalog *c, uid_t uid, const struct pool *pool,
			  struct fault *f);

/* For this folder. */
void catalog_end_twin(struct catalog *c, struct buffer *twin);
void catalog_end_name(struct catalog *c, struct buffer *b, const struct process *who,
		      const char *why);
void catalog_end_memory(struct catalog *c, struct buffer *b);
int catalog_check_suspendable(const struct buffer *b, struct fault *f);

/* The process has closed the buffer. discard: a buffer that is not published ends on purpose, so
 * later errors about its name do not say which process closed it; a stream that has a new producer
 * is left as that found it: without one. */
void catalog_close_lease(struct catalog *c, struct lease *l, bool discard);

/* The process does not use the buffer any more. With the creator's lease a buffer goes that was
 * never published, with the last lease a transient one. */
void catalog_end_lease(struct catalog *c, struct lease *l);

/* The holder is gone and did not close the lease: ends it, and marks the buffer dirty if it was
 * held for writing. */
void catalog_holder_died(struct catalog *c, struct lease *l);

/* The process died and held the buffer for writing: a shared buffer is dirty from now on. */
void catalog_mark_dirty(struct catalog *c, struct buffer *b, const struct process *p);

/* The buffer's memory is gone although nobody freed it: frees the name, ends the leases and frees
 * the buffer. Until the name is created again its clients are told why. */
void catalog_memory_lost(struct catalog *c, struct buffer *b, const char *why);

/* ---- streams (streams.c) ---- */

/* Makes a stream of a buffer that is being filled; the lease's process is its producer. */
int catalog_make_stream(struct catalog *c, struct lease *l, const struct stream_shape *spec,
			struct fault *f);

/* Before the buffer is opened for writing: a stream has one producer. CODE_STATE while that lives.
 */
int catalog_check_writer(const struct buffer *b, bool produce, struct fault *f);

/* The lease, for writing, continues the stream. */
int catalog_produce(struct catalog *c, struct lease *l, struct fault *f);

/* Gives a lease for reading a seat. as: follow and max_held. */
int catalog_join(struct catalog *c, struct lease *l, const struct stream_reader *as,
		 struct fault *f);

/* For the producer. A reader that has gone, or that another has followed in the seat, is no error.
 */
int catalog_drop_reader(struct catalog *c, struct lease *l, uint32_t index, uint64_t generation,
			struct fault *f);

/* The lease leaves the stream, and stays. No error if it is not in it: it may have left it under an
 * earlier daemon. */
int catalog_give_up(struct catalog *c, struct lease *l, struct fault *f);

/* A page as the lease may have it. The fd is the stream's. */
struct stream_lent {
	int fd;
	uint64_t bytes, generation;
	bool writable;
};
int catalog_lend_page(const struct lease *l, uint32_t page, struct stream_lent *ret,
		      struct fault *f);

/* What the lease was to its stream ends; nothing if it was nothing. closed: as its process wants
 * it. */
void catalog_leave_stream(struct catalog *c, struct lease *l, bool closed);

/* The process's connection has ended: groups whose streams have no producer any more wait for what
 * becomes of the frames that it holds. */
void catalog_suspect_readers(struct process *p);

/* Finds for which members' frames the stream's group waits. */
void catalog_find_leaving(struct stream *s);

/* Queues, as work of the streams' owners, a look for readers whose GPU holds up the producer's, and
 * at members that may have died. Call it periodically. */
void catalog_look_at_streams(struct catalog *c, struct turns *turns);

/* The buffer ends. */
void catalog_free_stream(struct catalog *c, struct buffer *b);

/* Of all streams, and of those that were freed. */
struct stream_counts catalog_stream_counts(const struct catalog *c);

/* How many there are now. */
struct stream_states {
	uint32_t streams[STREAM_ORPHANED + 1]; /* by enum stream_state */
	uint32_t readers[STREAM_SHARE + 1];    /* by enum stream_follow; without dropped ones */
	uint32_t waiting; /* producers that have waited for readers for a second or longer */
};
struct stream_states catalog_stream_states(const struct catalog *c, uint64_t now_ns);

/* An earlier daemon's stream and reader. */
void catalog_insert_stream(struct catalog *c, struct buffer *b, struct stream *s);
void catalog_producer_left(struct catalog *c, struct buffer *b, const struct process *p,
			   bool closed);

/* ---- from one daemon to the next ---- */

/* Inserts what an earlier daemon had: the buffer as it is, and the lease with its old id and time.
 */
void catalog_adopt_buffer(struct catalog *c, struct buffer *b);
int catalog_adopt_lease(struct catalog *c, struct process *p, struct buffer *b, enum access access,
			uint64_t id, uint64_t since_ns, bool away, struct fault *f);

/* Uses that status page, which an earlier daemon may have written: finds the cells of the adopted
 * buffers and writes the state of all buffers. */
void catalog_adopt_page(struct catalog *c, struct status_page *page);

/* Frees those of the first n retained buffers whose memory no process has any more; the others go
 * to the end of the list. */
void catalog_look_at_retained(struct catalog *c, unsigned n);

/* After all buffers and leases are adopted: frees the buffers that have no holder and that nobody
 * can open. */
void catalog_free_unused(struct catalog *c);

/* The daemon ends and a successor adopts the buffers: no memory is given back to a driver. */
void catalog_keep_memory(struct catalog *c);

/* At the daemon's end, when no lease is left: unlinks and frees all buffers, except those that are
 * being allocated, which go when their pool is closed. */
void catalog_unlink_all(struct catalog *c);

/* After catalog_unlink_all(), when no allocation is under way any more. */
void catalog_done(struct catalog *c);
