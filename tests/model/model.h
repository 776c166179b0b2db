/* SPDX-License-Identifier: MIT
 *
 * A small model of the daemon: what gpushm(7) says about names, buffers, leases, accounts and
 * pools, in as little code as possible and without any of the daemon's code. It has no sockets, no
 * worker and no journal: an operation changes the model at once, and gives the replies that are due
 * from then on. Sums (charges, holders, used memory) are never stored but computed each time, so
 * that none can be missed.
 *
 * The model can't predict ids, times and which memory is used: the comparing code tells it these
 * values. Comments call such fields "from the daemon".
 */
#pragma once

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
#define MODEL_POOL_SHARE 75u /* percent of each pool */
#define MODEL_PENDING_COUNT 10u
#define MODEL_NAME_MAX 64

struct model_process {
	struct list link; /* model::processes */
	pid_t pid;
	uid_t uid;
	gid_t gid;
	bool admin, trusted; /* trusted: may use the pool with restricted access */
	bool alive;
};

/* Memory that was freed and waits to be used again. */
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
	bool fails;	  /* it has no driver */
	bool inherited;	  /* of an earlier daemon: no new buffers in it */
	bool closed_shop; /* only for trusted processes and admins */
	struct list pending;
	struct list waiting; /* model_session::wait_link: for space, oldest first */
	bool poked;	     /* memory was freed: try the waiting sessions */
	unsigned frees;	     /* in this step */
	bool vague; /* several were freed in an undefined order; until the pool is flushed */
};

struct model_buffer {
	struct list link;	   /* model::buffers, in the order of creation */
	uint64_t id;		   /* from the daemon; 0 before */
	uint64_t above;		   /* from the daemon: its own id is above this one */
	char name[MODEL_NAME_MAX]; /* its key, "~UID/x" for a private one; "": it has none */
	struct model_pool *pool;
	enum model_state state;
	uid_t uid;
	gid_t gid;
	mode_t mode;
	bool transient, dirty, foreign;
	bool two_died; /* two writers died; it is undefined which one is reported: from the daemon
			*/
	pid_t dirty_pid;
	uid_t dirty_uid;
	uint64_t bytes, allocated; /* allocated 0: waits for space */
	bool reused;	 /* pending memory is used again; otherwise the memory must be new */
	bool inherited;	 /* its memory is from an earlier daemon */
	uint64_t memory; /* which memory: from the daemon; 0: unknown */
	uint64_t tag;	 /* the number written to it; 0: none */
	struct model_buffer *twin, *twin_of;
	bool hollow; /* it was evicted, or it has restored another one */
	bool cached; /* it has a twin */
	bool wanted;
	uint64_t keep_ms;
	int priority;
	uint64_t used; /* model::now; 0: before this daemon */
	uint32_t arrays;
	bool has_table;
	uint64_t digest, created_ns, published_ns; /* told */
	struct list leases;			   /* model_lease::buffer_link */
};

struct model_lease {
	struct list buffer_link, session_link;
	uint64_t id, since_ns; /* told */
	enum model_access access;
	bool away;
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

/* The reply that is due to a session. */
struct model_reply {
	enum model_what what;
	int code; /* of an error */
	struct model_lease *lease;
	struct model_buffer *buffer;
	unsigned lost; /* RECLAIM */
	bool later;    /* it waited: other replies may have come since */
	bool again;    /* RESUME */
};

enum model_waits { MODEL_IDLE, MODEL_OPENS, MODEL_STATS, MODEL_CREATES };

/* A connection; after its end, the leases that its process may still use. */
struct model_session {
	struct list link; /* model::sessions */
	struct model_process *process;
	uint64_t number; /* told */
	bool connected;
	struct list leases; /* model_lease::session_link */
	uint32_t lent[8];   /* ids of the pools whose fds it has got */
	unsigned n_lent;
	struct model_reply reply;
	enum model_waits waits;
	struct list wait_link;
	char name[MODEL_NAME_MAX];
	enum model_access access;
	bool refuses_dirty, while_filling, away;
	struct model_buffer *creating;
	bool asks;	/* its create waits for processes that were asked */
	int connection; /* its index in struct play; -1: none */
};

struct model {
	struct list processes, sessions, buffers, pools;
	struct list waiters;	   /* model_session::wait_link: for a name */
	uint64_t tags, now;	   /* now: the number of this step */
	unsigned evictions, asked; /* counted */
};

void model_init(struct model *m);
void model_done(struct model *m);

struct model_pool *model_add_pool(struct model *m, enum model_kind kind, const char *name);
struct model_pool *model_pool_by_id(struct model *m, uint32_t id);
struct model_pool *model_pool_by_name(struct model *m, const char *name);
struct model_process *model_add_process(struct model *m, pid_t pid, uid_t uid, gid_t gid);
void model_forget_dead(struct model *m); /* processes that have nothing left */

/* ---- requests; the reply is in the session, or comes later ---- */

/* Returns CODE_OK, or the code with which HELLO is refused: then there is no session. */
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
		enum model_access access, bool refuses_dirty, bool while_filling, bool away,
		enum model_patience patience);
void model_stat(struct model *m, struct model_session *s, const char *name,
		enum model_patience patience);
void model_describe(struct model *m, struct model_session *s, struct model_lease *l, bool fits);
/* name: NULL, or the name that it gets; replace: as for model_rename(). */
void model_publish(struct model *m, struct model_session *s, struct model_lease *l,
		   enum model_state state, const char *name, bool replace);
void model_rename(struct model *m, struct model_session *s, const char *from, const char *to,
		  bool replace);
void model_set_away(struct model *m, struct model_session *s, struct model_lease *l, bool away);
/* Both leases are the session's. */
void model_hand_over_twin(struct model *m, struct model_session *s, struct model_lease *fresh,
			  struct model_lease *l);
void model_restore(struct model *m, struct model_session *s, struct model_lease *fresh,
		   struct model_lease *l);
void model_open_twin(struct model *m, struct model_session *s, struct model_lease *l);
void model_evict(struct model *m, struct model_session *s, const char *name, bool other);
/* keep_ms: 0, or so long that it does not end. */
void model_keep(struct model *m, struct model_session *s, const char *name, uint64_t keep_ms,
		int priority);
void model_close(struct model *m, struct model_session *s, struct model_lease *l);
/* other: the request has an id, of another buffer. */
void model_unlink(struct model *m, struct model_session *s, const char *name, bool other);
void model_clean(struct model *m, struct model_session *s, const char *name, bool other);
void model_flush(struct model *m, struct model_session *s, const char *pool);
/* leases may name any lease, also twice; NULL: one that never existed. */
void model_reclaim(struct model *m, struct model_session *s, uint64_t former,
		   struct model_lease *const *leases, size_t n, bool last);

/* ---- ends of connections, processes and daemons ---- */

void model_disconnect(struct model *m, struct model_session *s);
void model_die(struct model *m, struct model_process *p);
/* The daemon dies and the next one takes over. The caller adds the new daemon's own pools. */
void model_restart(struct model *m);

/* ---- lookups ---- */

/* For how many bytes of the user one of several buffers must go; 0: there are not several. */
uint64_t model_crowding_bytes(const struct model *m, const struct model_process *p,
			      const struct model_pool *pool);

bool model_in_use(const struct model_buffer *b); /* a process has it mapped */
/* Memory is short, and it is undefined whose goes. */
bool model_room_is_vague(const struct model *m, const struct model_process *p,
			 const struct model_pool *pool, uint64_t bytes);
bool model_visible(const struct model_process *p, const struct model_buffer *b);
bool model_allows(const struct model_process *p, const struct model_buffer *b,
		  enum model_access access);
bool model_owns(const struct model_process *p, const struct model_buffer *b);
bool model_may_use(const struct model_process *p, const struct model_pool *pool);
struct model_buffer *model_buffer_by_key(struct model *m, const char *key);
/* Turns the name that a process uses into its key. CODE_OK, CODE_NAME or CODE_ACCESS. */
int model_key(const struct model_process *p, const char *name, char key[MODEL_NAME_MAX]);

uint64_t model_bytes(const struct model *m, uid_t uid);
/* In a pool, with sizes rounded up; also of those that wait for space. */
uint64_t model_bytes_in(const struct model *m, uid_t uid, const struct model_pool *pool);
uint64_t model_round(const struct model_pool *pool, uint64_t bytes);
unsigned model_buffers(const struct model *m, uid_t uid);
unsigned model_leases(const struct model *m, uid_t uid);
unsigned model_peers(const struct model *m, uid_t uid);
unsigned model_suspects(const struct model *m);
unsigned model_waiting(const struct model *m);
unsigned model_holders(const struct model_buffer *b, enum model_access access);
unsigned model_away(const struct model_buffer *b);
unsigned model_suspect_holders(const struct model_buffer *b);
uint64_t model_used(const struct model *m, const struct model_pool *pool);
unsigned model_blocks(const struct model *m, const struct model_pool *pool);
uint64_t model_suspect_bytes(const struct model *m, const struct model_pool *pool);
uint64_t model_pending_bytes(const struct model_pool *pool);
unsigned model_pending(const struct model_pool *pool);
/* The living buffer that has the block of this memory, or for which the block waits. */
struct model_buffer *model_buffer_of_memory(struct model *m, uint64_t memory);

/* ---- between the model's own files ---- */

int model_look(struct model *m, const struct model_process *p, const char *key,
	       struct model_buffer **ret);
/* The name was published or cleaned, or is another buffer's, or that has memory again. */
void model_wake(struct model *m, const char *key);
void model_touch(struct model *m, struct model_buffer *b);
/* waits: for those that can be asked. Whether it does. */
bool model_make_room(struct model *m, const struct model_process *p, struct model_pool *pool,
		     uint64_t bytes, bool waits);
void model_yield(struct model *m, struct model_buffer *b);
/* Nothing is wanted in pools where no create waits for it. */
void model_want_less(struct model *m);
void model_end_twin(struct model *m, struct model_buffer *b);
/* Returns CODE_OK if the buffer has its memory, otherwise CODE_POOL_FULL ... */
int model_allocate(struct model *m, struct model_buffer *b);
void model_release(struct model *m, struct model_buffer *b);
/* Tries the waiting sessions of pools in which memory was freed, until nothing changes. */
void model_settle(struct model *m);
void model_empty(struct model_pool *pool); /* drops all pending memory */
int model_grant(struct model *m, struct model_session *s, struct model_buffer *b,
		enum model_access access);
/* Nobody gets the name in the same step: those who wait while it is taken have their reply. */
void model_drop_name(struct model *m, struct model_buffer *b);
void model_maybe_free(struct model *m, struct model_buffer *b);
void model_end(struct model *m, struct model_lease *l);	 /* as CLOSE does */
void model_lose(struct model *m, struct model_lease *l); /* its process has ended */
void model_forget(struct model_session *s);
void model_refuse(struct model_session *s, int code);
