/* SPDX-License-Identifier: MIT
 *
 * A pidfd shows when the process at the other end of a socket is gone. All connections of one
 * process share one, whether they are open or have closed and left leases.
 */
#pragma once

#include "daemon/catalog/account.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct pidfds {
	struct hashtable by_process; /* pidfd::link */
	uint32_t parked;	     /* of these */
};

enum parking { PARK_NONE, PARK_ASKED, PARK_CHANGING, PARK_PARKED };
#define PARK_TEXT_MAX 127u

/* A process whose use of the driver another process freezes (park.c). */
struct park {
	enum parking state;
	bool may;	  /* it has promised that the library knows of all its imports */
	bool has_pool;	  /* it was lent a mempool, which it keeps imported */
	pid_t by;	  /* CHANGING: who calls the driver; 0: that has failed */
	struct list held; /* pending_request::held_link: sessions whose memory waits */
	char unless[PARK_TEXT_MAX + 1]; /* why it may not */
};

struct pidfd {
	struct hashtable_link link; /* pidfds::by_process, where `start_time` is known */
	struct pidfds *all;
	int fd; /* owned */
	pid_t pid;
	uid_t uid;
	uint64_t start_time; /* as process::start_time */
	uint64_t number;     /* pidfd_number() */
	unsigned users;	     /* processes that point to it */
	struct charge charge;
	uint64_t session;	   /* of its first connection: its name in the fd store */
	bool kept, listed;	   /* systemd keeps it; it is listed for an exec */
	struct charge kept_charge; /* while it is kept */
	struct list suspects;	   /* process::pidfd_link; the reaper's, like those below */
	struct park park;
	bool watched; /* poll is initialised */
	uv_poll_t poll;
};

/* 0 or -ENOMEM. */
int pidfds_init(struct pidfds *all);
void pidfds_done(struct pidfds *all);

/* The pidfd of that process, if one of its connections is known; or NULL. */
struct pidfd *pidfd_find(const struct pidfds *all, uid_t uid, pid_t pid, uint64_t start_time);

/* Takes the fd over. Returns the process's pidfd: the one that its other connections have, or a new
 * one. The caller calls pidfd_release() later. NULL without memory. */
struct pidfd *pidfd_share(struct pidfds *all, int *fd, uid_t uid, pid_t pid, uint64_t start_time);

/* The last user's call closes it. NULL is allowed. Returns NULL. */
struct pidfd *pidfd_release(struct pidfd *p);

/* Opens a pidfd of the process that connected the socket; the caller owns it. pid comes from
 * SO_PEERCRED and is 0 for a process in a PID namespace that we don't see. -ESRCH if the process is
 * gone, or can't be identified; -EMFILE, -ENFILE; another -errno of the kernel. */
int pidfd_of_peer(int socket, pid_t pid);

/* When the process started, in ticks since the boot, as in /proc/PID/stat; 0 if it can't be read. A
 * pid and its start time together are never used again. */
uint64_t pidfd_start_time(pid_t pid);

/* Opens a pidfd of the process with that pid and that start time, or with a pidfd of that number.
 * -ESRCH if it is gone; -errno. */
int pidfd_open_started(pid_t pid, uint64_t start_time);

bool pidfd_has_gone(int pidfd);

/* A number that no other process ever gets, the same for every pidfd of one process. 0 before Linux
 * 6.9, which has no such number. */
uint64_t pidfd_number(int pidfd);
