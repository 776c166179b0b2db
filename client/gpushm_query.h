/* SPDX-License-Identifier: MIT
 *
 * Questions to the daemon, and watches, which tell when an answer changes. Errors, ownership and
 * threads are as gpushm.h says; gpushm_records.h has what is returned.
 */
#ifndef GPUSHM_QUERY_H
#define GPUSHM_QUERY_H

#include <gpushm_records.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A flag of stat and list: fill in the holders, for the buffer's owner and administrators. */
#define GPUSHM_HOLDERS (1u << 6)

/* One buffer; timeout_ms as for gpushm_open(). Free *ret with gpushm_free(). Asks the daemon. */
int gpushm_stat(struct gpushm *c, const char *name, uint64_t timeout_ms, uint32_t flags,
		struct gpushm_stat **ret);

/* All buffers that this user may see and whose names start with prefix (NULL: all). *ret is an
 * array of *ret_n pointers; free it with gpushm_free(). Asks the daemon, once for some 500; a
 * buffer made meanwhile may be missing. */
int gpushm_list(struct gpushm *c, const char *prefix, uint32_t flags, struct gpushm_stat ***ret,
		size_t *ret_n);

/* The streams that this user may see, whose names begin with prefix (NULL: all); as
 * gpushm_list(). */
int gpushm_streams(struct gpushm *c, const char *prefix, struct gpushm_stream_info ***ret,
		   size_t *ret_n);

/* The pools of the kinds that this library knows; as gpushm_list(). Asks the daemon, and may start
 * the driver. */
int gpushm_pools(struct gpushm *c, struct gpushm_pool ***ret, size_t *ret_n);

/* The daemon, and what this user has; for administrators what every user has. Free *ret with
 * gpushm_free(). Asks the daemon. */
int gpushm_status(struct gpushm *c, struct gpushm_status **ret);

/* ----------------------------------------------------------------- watches */

struct gpushm_watch; /* names and buffers whose changes are reported */

/* A watch reports changes of many names and buffers through an fd for poll() and event loops. It
 *has a connection of its own, so that its waiting blocks no other request.
 *
 *	gpushm_watch_new(c, &w);
 *	gpushm_watch_name(w, "model/weights");
 *	while (poll(&(struct pollfd){ gpushm_watch_fd(w), POLLIN }, 1, -1) > 0)
 *		while (gpushm_watch_next(w, 0, &event) == 0)
 *			...
 *	gpushm_watch_free(w);
 *
 * An event is a difference from what was reported last. A change that is undone in between is not
 * reported. */
enum gpushm_event_kind {
	GPUSHM_EVENT_PUBLISHED = 1, /* a buffer of that name is published, or another one */
	GPUSHM_EVENT_DIRTY = 2,
	GPUSHM_EVENT_CLEAN = 3,
	GPUSHM_EVENT_UNLINKED = 4,  /* the name does not mean that buffer any more */
	GPUSHM_EVENT_GONE = 5,	    /* a watched buffer was freed: its last event */
	GPUSHM_EVENT_RESTARTED = 6, /* the daemon was started anew; what it lost is reported next */
};

struct gpushm_event {
	size_t struct_size; /* sizeof(struct gpushm_event); the caller's */
	enum gpushm_event_kind what;
	uint64_t buffer;		/* its id; 0 for RESTARTED */
	char name[GPUSHM_MAX_NAME + 1]; /* as it was given; "" for RESTARTED */
	uint64_t previous; /* of PUBLISHED: the id of the buffer that the name meant before; else 0
			    */
};

/* Makes an empty watch on the daemon of connection c, which may be disconnected before the watch is
 * freed. Errors as for gpushm_connect(). */
int gpushm_watch_new(struct gpushm *c, struct gpushm_watch **ret);

/* Watches a name, which need not exist yet. If it is published, that is the first event. A buffer
 * that this user may not see (gpushm_stat()) is not reported. -EINVAL (name), -ENOSPC: a watch has
 * at most 256 names and buffers, with names of some 59,000 bytes. Does not block; wakes a thread in
 * gpushm_watch_next(). */
int gpushm_watch_name(struct gpushm_watch *w, const char *name);

/* Watches a buffer, whatever its name: changes after this call are reported. The buffer may be
 * closed meanwhile. Otherwise as gpushm_watch_name(). */
int gpushm_watch_buffer(struct gpushm_watch *w, const struct gpushm_buffer *b);

/* An fd that is readable when gpushm_watch_next() has something to do, which may not be an event
 * yet. It does not change. Do not read, write or close it. */
int gpushm_watch_fd(const struct gpushm_watch *w);

/* The next event, in *ret, whose struct_size says how large the caller has it: 0 is -EINVAL, and
 * what a later header has more is 0. Waits at most timeout_ms, 0 does not wait. Reconnects when the
 * daemon is back, also to one that has lost its buffers. Errors: -ETIMEDOUT; -ECONNRESET (the
 * daemon has been gone for $GPUSHM_RECONNECT_MS; a later call tries again); -EACCES (another user's
 * private name).
 */
int gpushm_watch_next(struct gpushm_watch *w, uint64_t timeout_ms, struct gpushm_event *ret);

/* NULL is allowed. Returns NULL. */
struct gpushm_watch *gpushm_watch_free(struct gpushm_watch *w);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
