/* SPDX-License-Identifier: MIT
 *
 * A small model of the daemon: what gpushm(7) says of names, buffers, leases, accounts and pools,
 * in as few words as it takes and with none of the daemon's code. It knows no sockets, no worker
 * and no journal: an operation changes the model at once, and says which answers are due from then
 * on. Sums (charges, holders, used memory) are never kept, but counted anew, so that they can't be
 * forgotten.
 *
 * What it does not foretell are ids, times and which memory: those it is told by who compares.
 */
#ifndef GPUSHM_TESTS_MODEL_MODEL_H
#define GPUSHM_TESTS_MODEL_MODEL_H

#include "proto/base/list.h"
#include "proto/code.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum model_kind { MODEL_HOST = 1, MODEL_PINNED = 2, MODEL_VMM = 3, MODEL_MEMPOOL = 4 };
enum model_state { MODEL_FILLING = 1, MODEL_SEALED = 2, MODEL_SHARED = 3 };
enum model_access { MODEL_READ = 1, MODEL_WRITE = 2 };
enum model_patience { MODEL_AT_ONCE, MODEL_BRIEFLY, MODEL_FOR_EVER };

/* The same for each user, and each pool. */
#define MODEL_BUFFERS_MAX 7u
#define MODEL_LEASES_MAX 9u
#define MODEL_PEERS_MAX 3u
#define MODEL_BYTES_MAX (14ull << 20)
#define MODEL_PENDING_COUNT 2u
#define MODEL_PENDING_SHARE 2u /* of the pool: a half */
#define MODEL_NAME_MAX 64

struct model_process {
	struct list link; /* model::processes */
	pid_t pid;
	uid_t uid;
	gid_t gid;
	bool admin, trusted; /* trusted: may use the pool that is not for everybody */
	bool alive;
};

/* Memory that was freed and waits. */
struct model_block {
	struct list link; /* model_pool::pending */
	uint64_t bytes, memory;
	uid_t uid;
	bool foreign, inherited;
};

struct model_pool {
	struct list link; /* model::pools */
	uint32_t id;
	enum model_kind kind;
	char name[MODEL_NAME_MAX];
	uint64_t size, granularity;
	bool fails;	  /* there is no driver for it */
	bool inherited;	  /* of an earlier daemon: nothing is created in it any more */
	bool closed_shop; /* for trusted processes and admins */
	struct list pending;
	struct list waiting; /* model_session::wait_link: for room, oldest first */
	bool poked;	     /* something was freed: who waits is tried */
	unsigned frees;	     /* in this step */
	bool vague; /* several were freed in an order that nobody promised: until it is flushed */
};

struct model_buffer {
	struct list link;	   /* model::buffers, in the order of creation */
	uint64_t id;		   /* 0 until it was told */
	uint64_t above;		   /* told: an id that is below its own */
	char name[MODEL_NAME_MAX]; /* its key, "~UID/x" for a private one; "": it has none */
	struct model_pool *pool;
	enum model_state state;
	uid_t uid;
	gid_t gid;
	mode_t mode;
	bool transient, dirty, foreign;
	bool two_died; /* both while they wrote, and nobody has promised who is told: told */
	pid_t dirty_pid;
	uid_t dirty_uid;
	uint64_t bytes, allocated; /* allocated 0: it waits for room */
	bool reused;		   /* it was waiting in the pool; else it must be fresh */
	bool inherited;		   /* its memory is of an earlier daemon */
	uint64_t memory;	   /* which: told; 0 where nobody can tell */
	uint64_t tag;		   /* what was written to it; 0: nothing */
	uint32_t arrays;
	bool has_table;
	uint64_t digest, created_ns, published_ns; /* told */
	struct list leases;			   /* model_lease::buffer_link */
};

struct model_lease {
	struct list buffer_link, session_link;
	uint64_t id, since_ns; /* told */
	enum model_access access;
	struct model_buffer *buffer;
	struct model_session *session;
};

enum model_what {
	MODEL_NOTHING,
	MODEL_ERROR,
	MODEL_DONE,
	MODEL_ATTACH,
	MODEL_DESCRIBED,
	MODEL_PUBLISHED,
	MODEL_STAT,
	MODEL_RECLAIMED
};

/* What a session is to be told. */
struct model_reply {
	enum model_what what;
	int code; /* of an error */
	struct model_lease *lease;
	struct model_buffer *buffer;
	unsigned lost; /* RECLAIM */
	bool later;    /* it waited: others may have been told since */
};

enum model_waits { MODEL_IDLE, MODEL_OPENS, MODEL_STATS, MODEL_CREATES };

/* A connection, and what is left of it while its process may still use what it had. */
struct model_session {
	struct list link; /* model::sessions */
	struct model_process *process;
	uint64_t number; /* told */
	bool connected;
	struct list leases; /* model_lease::session_link */
	uint32_t lent[8];   /* ids of pools whose fd it was given */
	unsigned n_lent;
	struct model_reply reply;
	enum model_waits waits;
	struct list wait_link;
	char name[MODEL_NAME_MAX];
	enum model_access access;
	bool refuses_dirty;
	struct model_buffer *creating;
	int connection; /* whose it is to who plays; -1: nobody's */
};

struct model {
	struct list processes, sessions, buffers, pools;
	struct list waiters; /* model_session::wait_link: for a name */
	uint64_t tags;
};

void model_init(struct model *m);
void model_done(struct model *m);

struct model_pool *model_add_pool(struct model *m, enum model_kind kind, const char *name);
struct model_pool *model_pool_by_id(struct model *m, uint32_t id);
struct model_pool *model_pool_by_name(struct model *m, const char *name);
struct model_process *model_add_process(struct model *m, pid_t pid, uid_t uid, gid_t gid);
void model_forget_dead(struct model *m); /* those of whom nothing is left */

/* ---- what clients do; the answer is in the session, or comes later ---- */

/* CODE_OK, or the code with which HELLO is refused: then there is no session. */
int model_connect(struct model *m, struct model_process *p, struct model_session **ret);

struct model_spec {
	const char *name, *pool;
	uint64_t bytes;
	mode_t mode;
	bool has_gid;
	gid_t gid;
	bool transient, attr;
	enum model_patience patience;
};
void model_create(struct model *m, struct model_session *s, const struct model_spec *spec);
void model_open(struct model *m, struct model_session *s, const char *name,
		enum model_access access, bool refuses_dirty, enum model_patience patience);
void model_stat(struct model *m, struct model_session *s, const char *name,
		enum model_patience patience);
void model_describe(struct model *m, struct model_session *s, struct model_lease *l, bool fits);
void model_publish(struct model *m, struct model_session *s, struct model_lease *l,
		   enum model_state state);
void model_close(struct model *m, struct model_session *s, struct model_lease *l);
/* other: an id is given, and it is another buffer's. */
void model_unlink(struct model *m, struct model_session *s, const char *name, bool other);
void model_clean(struct model *m, struct model_session *s, const char *name, bool other);
void model_flush(struct model *m, struct model_session *s, const char *pool);
/* leases may name any, twice too; NULL: one that never was. */
void model_reclaim(struct model *m, struct model_session *s, uint64_t former,
		   struct model_lease *const *leases, size_t n, bool last);

/* ---- what happens to them ---- */

void model_disconnect(struct model *m, struct model_session *s);
void model_die(struct model *m, struct model_process *p);
/* The daemon dies and the next one takes over. Pools that it makes itself are to be added. */
void model_restart(struct model *m);

/* ---- what there is ---- */

bool model_visible(const struct model_process *p, const struct model_buffer *b);
bool model_allows(const struct model_process *p, const struct model_buffer *b,
		  enum model_access access);
bool model_owns(const struct model_process *p, const struct model_buffer *b);
bool model_may_use(const struct model_process *p, const struct model_pool *pool);
struct model_buffer *model_buffer_by_key(struct model *m, const char *key);
/* From a name as a process says it to its key. CODE_OK, CODE_NAME or CODE_ACCESS. */
int model_key(const struct model_process *p, const char *name, char key[MODEL_NAME_MAX]);

uint64_t model_bytes(const struct model *m, uid_t uid);
unsigned model_buffers(const struct model *m, uid_t uid);
unsigned model_leases(const struct model *m, uid_t uid);
unsigned model_peers(const struct model *m, uid_t uid);
unsigned model_suspects(const struct model *m);
unsigned model_waiting(const struct model *m);
unsigned model_holders(const struct model_buffer *b, enum model_access access);
unsigned model_suspect_holders(const struct model_buffer *b);
uint64_t model_used(const struct model *m, const struct model_pool *pool);
unsigned model_blocks(const struct model *m, const struct model_pool *pool);
uint64_t model_suspect_bytes(const struct model *m, const struct model_pool *pool);
uint64_t model_pending_bytes(const struct model_pool *pool);
unsigned model_pending(const struct model_pool *pool);
/* Whom the block of that memory waits for, or who has it: a living buffer. */
struct model_buffer *model_buffer_of_memory(struct model *m, uint64_t memory);

/* ---- between the model's own files ---- */

/* CODE_OK: the buffer has its memory. CODE_POOL_FULL ... */
int model_allocate(struct model *m, struct model_buffer *b);
void model_release(struct model *m, struct model_buffer *b);
/* Who waits for room is tried where something was freed, until nothing changes any more. */
void model_settle(struct model *m);
void model_empty(struct model_pool *pool); /* nothing is pending */
int model_grant(struct model *m, struct model_session *s, struct model_buffer *b,
		enum model_access access);
void model_drop_name(struct model_buffer *b);
void model_maybe_free(struct model *m, struct model_buffer *b);
void model_end(struct model *m, struct model_lease *l);	 /* as by CLOSE */
void model_lose(struct model *m, struct model_lease *l); /* its process has gone */
void model_forget(struct model_session *s);
void model_refuse(struct model_session *s, int code);

#endif
