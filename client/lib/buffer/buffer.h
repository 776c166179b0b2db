/* SPDX-License-Identifier: MIT
 *
 * A buffer as this process has it: the lease, the mapping, the table, and a count of its arrays.
 */
#pragma once

#include "client/gpushm.h"
#include "client/lib/base/defer.h"
#include "client/lib/base/error.h"
#include "client/lib/buffer/image.h"
#include "client/lib/link/connection.h"
#include "client/lib/map/map.h"
#include "proto/base/huge_pages.h"
#include "proto/table.h"

struct gpushm_buffer {
	struct lease lease;	   /* in the connection's list, for a RECLAIM */
	struct gpushm *connection; /* a reference */
	pthread_mutex_t lock;	   /* builder, table, and what publish changes */
	_Atomic uint64_t id;	   /* a resume may bring another one */
	uint64_t bytes;
	uint64_t pages;		    /* the number of its memory */
	uint64_t had_id, had_pages; /* as they were when it was mapped last */
	uint64_t load_until;	    /* when a restore gives its source up; CLOCK_MONOTONIC */
	uint64_t table_id;	    /* the buffer whose table it has: that of the open */
	_Atomic uint64_t digest;    /* written under the lock, as the two below; read without it */
	_Atomic enum gpushm_state state;
	_Atomic enum gpushm_access access;
	bool dirty; /* at the attach; used where the buffer has no cell on the status page */
	const char *_Atomic name; /* created_name, or published_name */
	char created_name[BUFFER_NAME_MAX + 1];
	char published_name[BUFFER_NAME_MAX + 1]; /* if gpushm_publish_as() gave it another one */
	uid_t uid, own_uid;	      /* the owner and this process, as the daemon sees them */
	const struct pool_info *pool; /* the connection's */
	struct map *map;	      /* a reference; other opens of this buffer share it */
	struct gpushm_buffer *twin;   /* owned: the pinned one from which it was restored */
	int memory;		      /* owned: host memory's memfd, while filling; -1 */
	struct huge_pages fresh;      /* of `memory`; `off` from the publish on */
	bool copy_on_write;	      /* the map is this open's own; the lease is for reading */
	int device;		      /* ordinal of the GPU that uses it; -1: none */
	pthread_mutex_t changing;     /* held by a suspend or a resume, over its request */
	_Atomic bool suspended;
	_Atomic uint64_t used_at;      /* gpushm_use() told the daemon; clock_monotonic_ms() */
	_Atomic unsigned copies;       /* that use the memory now */
	_Atomic unsigned arrays;       /* arrays, views and DLPack tensors that exist */
	struct table_builder *builder; /* while filling: builds the same table as the daemon */
	struct image table;	       /* the arrays, as of the last use while filling */
	struct image attrs;	       /* the creator's attributes; must not move, as the table does
					  while the buffer is being filled */
	uint64_t missed_since;	       /* gpushm_buffer_wait() finds no daemon since, in ms of
					  CLOCK_MONOTONIC; 0: it does; under connection->lock */
	bool spoilt;		       /* an array may be in the daemon's table alone */
	enum gpushm_state tried; /* gpushm_publish() ended without a reply; 0: it did not. Then
				    published_name is the name that it was to get */
	bool not_kept;		 /* the daemon has no place for it at systemd */
	bool of_stream;
	bool discard;		  /* it is closed unpublished on purpose */
	_Atomic bool ends_unused; /* buffer_put_and_close(): buffer_put() ends it */
	struct deferred deferred; /* once closed */
};

/* A buffer with a name and nothing else. NULL where memory is exhausted. */
struct gpushm_buffer *client_buffer_new(struct gpushm *c, const char *name);
/* Frees what the buffer has but the lease and the map. NULL is allowed. */
void client_buffer_free(struct gpushm_buffer *b);

/* Daemons that may die of one create, which begins anew with the next one. */
#define BUFFER_CREATES_MAX 16

/* In gpushm_open_options, beside its flags: as map_request::to_fill_from. */
#define BUFFER_TO_FILL_FROM (1u << 30)

/* Makes the request, a CREATE or an OPEN, and maps what its reply brings as the options say. Where
 * there is no space, runs the deferred cleanup and tries once more. 0 or -errno with gpushm_error()
 * set. */
int buffer_open(struct gpushm *c, const char *name, const Gpushm__Proto__Request *request,
		const struct gpushm_open_options *o, struct gpushm_buffer **ret);

/* The second half of it: the reply has come, and b is what client_buffer_new() made. The caller has
 * the connection's lock, which is released. */
int buffer_take(struct gpushm_buffer *b, const Gpushm__Proto__Request *request,
		const Gpushm__Proto__Reply *reply, const struct gpushm_open_options *o);

/* Fills in an OPEN, which borrows the name. 0 or -EINVAL with gpushm_error() set. */
int buffer_open_message(const char *name, enum gpushm_access access, uint64_t timeout_ms,
			const struct gpushm_open_options *options,
			struct gpushm_open_options *ret_options, Gpushm__Proto__Open *ret);

/* A CREATE, and what its buffer has beside the reply. Must not move. */
struct creation {
	Gpushm__Proto__Create message; /* borrows the name and the options' texts */
	struct gpushm_create_options options;
	struct table_builder *builder; /* owned */
	struct image attrs;	       /* owned */
	Gpushm__Proto__Attr list[ATTRS_MAX];
	Gpushm__Proto__Attr *pointers[ATTRS_MAX];
};
/* 0 or -errno with gpushm_error() set. */
int creation_begin(struct creation *k, const char *name, uint64_t bytes,
		   const struct gpushm_create_options *options);
/* Gives the new buffer its parts. */
void creation_finish(struct creation *k, struct gpushm_buffer *b);
void creation_done(struct creation *k);

/* gpushm_open() in another way. */
enum buffer_open_how {
	BUFFER_OPEN_PLAIN,
	/* A name that nobody has is -ENOENT at once, also if it becomes free during the wait. */
	BUFFER_OPEN_WHILE_FILLING,
	/* Continues a stream whose producer died, and waits until it has. */
	BUFFER_OPEN_PRODUCE
};
int buffer_open_name(struct gpushm *c, const char *name, enum gpushm_access access,
		     uint64_t timeout_ms, enum buffer_open_how how,
		     const struct gpushm_open_options *options, struct gpushm_buffer **ret);

/* r of a request for a buffer that is being filled: -EBADF becomes -ECONNRESET with gpushm_error()
 * set where the buffer was lost with its daemon. sends: as of request_call(). */
int buffer_lost_with_daemon(const struct gpushm_buffer *b, int r, unsigned sends);

/* gpushm_discard() that is never deferred. */
int buffer_discard(struct gpushm_buffer *b);

/* For an object that has a buffer of its own, and counts itself with buffer_get(): uncounts it, and
 * closes the buffer, with or without the arrays that exist: then the last of them closes it. Never
 * deferred. 0 or -errno as of gpushm_close(). */
int buffer_put_and_close(struct gpushm_buffer *b);

/* The buffer's word on the status page now; where it has no cell there, the flags as this process
 * knows them, without a count of changes. */
uint32_t buffer_word(const struct gpushm_buffer *b);

/* Counts an array of the buffer; buffer_put() uncounts it. Any thread. 0 or -errno as of
 * gpushm_close(). */
void buffer_get(struct gpushm_buffer *b);
int buffer_put(struct gpushm_buffer *b);
/* Unmaps the memory, ends the lease and frees the buffer. 0 or -errno as of gpushm_close(). */
int buffer_end(struct gpushm_buffer *b);

/* The table as it is now, with all arrays that have been described. Holds b->lock from success
 * until buffer_table_done(); what is looked up in *ret is valid as long: copy the name and the
 * descr. whole: the table is in memory and complete; else it may serve to find names only. 0;
 * -ENOENT where nothing was described; -ENOMEM; -EPROTO where the daemon's table is inconsistent;
 * with gpushm_error() set. Does not check for a fork. */
int buffer_table(struct gpushm_buffer *b, bool whole, const struct table_view **ret);
void buffer_table_done(struct gpushm_buffer *b);

#define buffer_error(b, number, ...) error_of("buffer", (b)->name, number, __VA_ARGS__)

/* -EINVAL for NULL, -ECHILD where the buffer was made before fork(); with gpushm_error() set. No
 * system call. */
static inline int buffer_check(const struct gpushm_buffer *b)
{
	int r = error_null(b, "buffer");

	return r < 0 ? r : connection_check_fork(b->connection->generation);
}

/* Whether this is a forked child, and the buffer is its parent's. */
static inline bool buffer_is_inherited(const struct gpushm_buffer *b)
{
	return b->connection->generation != process_generation();
}

/* RESUME: the memory of a lease that is away. to: of the buffer with that id, which this process
 * has; 0: of what the name means now. b is that buffer then. An evicted one is restored first, by
 * this process or another one of its user. *ret_fd: owned by the caller. 0; -ENODATA: it is another
 * user's, and stays evicted; -ERESTART: nobody of this process has `to` any more, and its name is
 * another buffer's; -ESTALE; -ENOSPC; -ETIMEDOUT; else -errno, with gpushm_error() set. */
int buffer_bring_back(struct gpushm_buffer *b, uint64_t allocated_bytes, uint64_t to,
		      uint64_t timeout_ms, int *ret_fd);
/* Whether this process can load the bytes of the buffer of that name again, which has that id. 0;
 * -ENOENT: it has no source, or there is no libgpushm-load; -ENODATA, -ESTALE; else -errno, with
 * gpushm_error() set. */
int buffer_check_source(struct gpushm *c, const char *name, uint64_t *ret_id);
/* Tells the daemon that the lease is away. 0 or -errno. */
int buffer_tell_away(struct gpushm_buffer *b);
/* Unmaps the twin that a restore has left mapped for the next one. Keeps gpushm_error(). */
void buffer_drop_twin(struct gpushm_buffer *b);

/* As buffer_check(), for what reads the table and asks nobody: that survives a fork, and so does
 * the memory of a host pool. */
int buffer_check_memory(const struct gpushm_buffer *b);

/* The same for what uses the memory: -EBUSY while the buffer is suspended. */
int buffer_check_mapped(const struct gpushm_buffer *b);

/* The same, and until buffer_unpin() it can't be suspended. */
int buffer_pin(const struct gpushm_buffer *b);
void buffer_unpin(const struct gpushm_buffer *b);

/* Copy what the caller gave (NULL: the defaults), with whichever version of the header the caller
 * was compiled. The elements of attrs stay as they are. 0, or -EINVAL with gpushm_error() set. */
int buffer_create_options(const struct gpushm_create_options *from,
			  struct gpushm_create_options *ret);
int buffer_open_options(const struct gpushm_open_options *from, struct gpushm_open_options *ret);
/* How the creator maps its buffer. */
struct gpushm_open_options buffer_mapped_as(const struct gpushm_create_options *o);
