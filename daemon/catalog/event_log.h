/* SPDX-License-Identifier: MIT
 *
 * The event log: what has happened to buffers, processes, pools and the daemon, for administrators
 * and for the users whom it concerns. Each comes through event_log_tell(), which keeps the
 * event for EVENTS requests and, with audit=yes in gpushmd.conf(5), writes a line of the log.
 *
 * The memory is bounded: the oldest events go. What programs do all the time, to open and to close
 * a buffer, has a ring of its own, so that it does not push out what is rare.
 */
#pragma once

#include "daemon/catalog/buffer.h"
#include "daemon/util/ratelimit.h"
#include "proto/code.h"

/* In a message: two names, a pool's name, a text, and numbers. */
#define EVENT_BYTES_MAX 1280u

enum event_type { /* enum EventType */
		  EVENT_STARTED = 1,
		  EVENT_CREATED,
		  EVENT_PUBLISHED,
		  EVENT_OPENED,
		  EVENT_CLOSED,
		  EVENT_RENAMED,
		  EVENT_REPLACED,
		  EVENT_UNLINKED,
		  EVENT_FREED,
		  EVENT_DIRTY,
		  EVENT_CLEANED,
		  EVENT_DIED,
		  EVENT_LOST,
		  EVENT_REFUSED,
		  EVENT_DISCONNECTED,
		  EVENT_SUSPECT,
		  EVENT_POOL_FAILED,
		  EVENT_POOL_RECOVERED,
		  EVENT_JOINED,
		  EVENT_DROPPED,
		  EVENT_ORPHANED,
		  EVENT_CONTINUED,
		  EVENT_SUSPENDED,
		  EVENT_RESUMED,
		  EVENT_EVICTED,
		  EVENT_RESTORED,
		  EVENT_PARKED,
		  EVENT_UNPARKED,
		  EVENT_STUCK,
		  EVENT_TYPES
};

/* What to tell. Members that the event does not have are 0; strings are borrowed. */
struct happening {
	enum event_type type;
	const struct process *who; /* NULL: the daemon */
	const struct buffer *buffer;
	uint64_t id; /* without `buffer`: of one that was never made; and its rights */
	const struct rights *rights;
	const char *key;    /* NULL: the buffer's, or the last one that it had */
	const char *former; /* the name before */
	const char *pool;   /* NULL: the buffer's */
	enum access access;
	const char *verb; /* REFUSED: the request; a static string */
	enum code code;	  /* and why */
	const char *text;
};

/* An event in a ring. */
struct event {
	uint64_t number;
	uint64_t ns;	 /* CLOCK_REALTIME */
	uint64_t buffer; /* its id; 0: it is about no buffer */
	uint64_t bytes;
	struct rights rights; /* the buffer's */
	uid_t uid;	      /* where by_process */
	pid_t pid;
	char command[16];
	const char *verb; /* static; or NULL */
	uint8_t type, state, access, code;
	bool by_process;
	uint16_t size;		     /* of all of it, in the ring */
	uint16_t former, pool, text; /* where they begin in strings; the key is the first */
	char strings[];		     /* each ends with a NUL; "": the event has none */
};

struct event_ring {
	unsigned char *data; /* owned */
	uint32_t size, head; /* bytes; where the next event begins */
	uint32_t *at;	     /* owned; where in data they are, by their ordinals modulo max */
	uint32_t max, n;
	uint64_t first; /* ordinal of the oldest */
};

struct event_log {
	struct event_ring rings[2];
	bool closed;		   /* the daemon ends: what it lets go of is not told */
	uint64_t first, next;	   /* numbers: of this daemon's first event, and of the next one */
	struct ratelimit refusals; /* limits events and lines about refused requests */
	const struct config *const *config; /* borrowed: the one in force */
	void (*on_event)(void *arg);	    /* after each event; or NULL */
	void *arg;
};

/* 0 or -ENOMEM. */
int event_log_init(struct event_log *e, const struct config *const *config);
void event_log_done(struct event_log *e);

/* Keeps the event, and logs it if the audit is on. */
void event_log_tell(struct event_log *e, const struct happening *h);

/* event_log_add(e, .type = EVENT_CLEANED, .who = p, .buffer = b) */
#define event_log_add(e, ...) event_log_tell(e, &(struct happening){ __VA_ARGS__ })

/* The first event with a higher number; NULL: no event has. Valid until the next event_log_tell().
 */
const struct event *event_log_after(const struct event_log *e, uint64_t number);

/* How many events above `after`, up to `last`, are not there any more. The numbers of an earlier
 * daemon's events count as none of this one's. */
uint64_t event_log_lost(const struct event_log *e, uint64_t after, uint64_t last);

/* As what the process may see the event; 0: it may not. A renamed buffer of which it may say one of
 * the two names only was unlinked, or published, to it. */
enum event_type event_seen_as(const struct event *e, const struct process *p);

/* Whether it may know which process did it. */
bool event_may_see_process(const struct event *e, const struct process *p);
