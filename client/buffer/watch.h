/* SPDX-License-Identifier: MIT
 *
 * A watch: what it watches, what it knows of that, and the events that nobody has taken yet.
 */
#ifndef GPUSHM_CLIENT_BUFFER_WATCH_H
#define GPUSHM_CLIENT_BUFFER_WATCH_H

#include "client/link/connection.h"

enum watch_state {
	WATCH_DOWN,	/* there is no connection; the next try is at retry_at */
	WATCH_GREETING, /* HELLO is said */
	WATCH_IDLE,	/* nothing is asked */
	WATCH_WAITING,	/* WATCH is asked, and not answered yet */
};

/* What is watched, and what the daemon said of it last. */
struct watch_item {
	char name[BUFFER_NAME_MAX + 1];
	bool by_id;
	bool gone;	 /* a buffer that is no more: not asked for again */
	uint64_t buffer; /* by name: what it meant; 0: nothing */
	uint32_t word;
};

struct gpushm_watch {
	pthread_mutex_t lock; /* everything below but the fds */
	int epoll, timer;     /* owned. epoll: the connection's socket and the timer, which is due
				 when there is something to do that no socket tells of */
	struct gpushm *c;     /* owned; of this watch alone */
	enum watch_state state;
	bool changed; /* there are more items than were asked for */

	struct watch_item *items; /* owned */
	size_t n_items;
	size_t asked[WATCHED_MAX]; /* which item the i-th of the request is */
	size_t n_asked;

	struct gpushm_event *events; /* owned; a queue */
	size_t n_events, first_event;

	/* The daemon that was there last, and since when it is gone. */
	unsigned char daemon[DAEMON_ID_BYTES];
	const struct notice_board *board;
	uint32_t generation;
	uint64_t lost_at, retry_at; /* ms, CLOCK_MONOTONIC */
	unsigned pause;		    /* ms between two tries */
};

/* ---- watch_event.c: items and events ---- */

/* Adds an item. 0; -ENOSPC; -ENOMEM; with gpushm_error() set. */
int watch_add(struct gpushm_watch *w, const struct watch_item *item);

/* The item is now so: what is different becomes events. 0 or -ENOMEM, and then it is as it was. */
int watch_take(struct gpushm_watch *w, struct watch_item *item, uint64_t buffer, uint32_t word);
int watch_tell_restart(struct gpushm_watch *w);

/* The event that has waited longest. False: there is none. */
bool watch_pop(struct gpushm_watch *w, struct gpushm_event *ret);

/* ---- watch_step.c: the connection, without ever waiting for it ---- */

/* Goes on as far as there is something to go on with. 0, or -errno with gpushm_error() set. */
int watch_step(struct gpushm_watch *w);

/* When epoll is to become readable by itself. */
void watch_arm(struct gpushm_watch *w);

/* Has epoll look at the connection's socket. 0 or -errno. */
int watch_attach(struct gpushm_watch *w);

/* The daemon that the connection leads to now is the one that w knows. */
void watch_know_daemon(struct gpushm_watch *w);

#endif
