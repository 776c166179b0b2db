/* SPDX-License-Identifier: MIT
 *
 * The process behind a connection: its credentials, as the kernel reported them at accept, a pidfd
 * that shows when it is gone, and its leases. While it holds a lease it outlives the connection:
 * see reaper.h.
 */
#pragma once

#include "daemon/catalog/groups.h"
#include "daemon/catalog/pidfd.h"
#include "daemon/catalog/turns.h"
#include "proto/base/list.h"

#include <stdbool.h>

/* What a process did with its buffers, the most important last. */
enum role { ROLE_NONE, ROLE_READER, ROLE_WRITER, ROLE_CREATOR, ROLES };

struct process {
	struct list link;    /* reaper::suspects, once its connection has closed */
	pid_t pid;	     /* 0: in a PID namespace that we don't see */
	uint64_t start_time; /* pidfd_start_time(), or else pidfd_number(); 0: not known */
	uid_t uid;
	gid_t gid;
	struct groups *groups;	/* shared; from process_ask_groups() until it disconnects */
	bool admin;		/* root, the daemon's own user, or in the admin group */
	bool unmapped;		/* its uid may be any user's: process_rules::unmapped_uid */
	char command[16];	/* for people; no decision depends on it */
	int socket;		/* of the connection, borrowed; -1: it is closed */
	uint64_t session;	/* of the connection; a client that reconnects names it */
	struct pidfd *pidfd;	/* shared; NULL: it can't be watched (unwatched-clients=trust) */
	struct list leases;	/* lease::process_link; first those of buffers being filled */
	struct list readers;	/* lease::reader_link: those that follow a stream */
	uint32_t filling;	/* leases whose buffer is being filled */
	uint64_t suspect_ns;	/* CLOCK_REALTIME: when its connection closed; 0: it is open */
	struct list pidfd_link; /* pidfd::suspects */
	struct reaper *reaper;
	struct work work; /* the reaper's: the end of its names and leases */
	bool told;	  /* that it is a suspect */
	bool liar;	  /* it keeps what it said it had let go of; no client's connection */
	bool over;	  /* its leases end */
	bool died;	  /* because it is gone */
	enum role role;	  /* by the leases that have ended since it died */
};

struct process_rules {
	gid_t admin_gid;      /* (gid_t)-1: none */
	bool trust_unwatched; /* accept a process that can't be watched */
	bool share_unmapped;  /* accept users whom our user namespace does not map, all as one */
	uid_t unmapped_uid;   /* userns_unmapped_uid() */
	gid_t unmapped_gid;   /* userns_unmapped_gid() */
};

/* Asks the kernel for the process at the other end of a connected socket. 0; -EPERM
 * (CODE_UNIDENTIFIED) if its user is not mapped, or if it can't be watched, because it is in a PID
 * namespace that we don't see, or gone already; -ENFILE; -ENOMEM. */
int process_identify(struct pidfds *pidfds, int socket, const struct process_rules *rules,
		     struct process **ret, struct fault *f);

/* Asks the kernel for the groups of the process, which may make it an admin. That is not done at
 * accept, because many groups take the kernel milliseconds: the time of a request is its user's.
 * Does nothing the second time. 0, or -errno as groups_of_peer(). */
int process_ask_groups(struct process *p, struct groups_table *t, int socket,
		       const struct process_rules *rules, struct fault *f);

/* The process of a connection to an earlier daemon, as its journal describes it. pidfd: the kept
 * one, or -1; the function owns it, and does not need it if another connection of the process is
 * known. 0; -ESRCH if the process is gone, or its pid belongs to another process by now; -errno. */
int process_adopt(struct pidfds *pidfds, const struct process *told, int pidfd,
		  struct process **ret);

/* A process in a PID namespace that we don't see can't be opened again: the next daemon needs its
 * pidfd. */
bool process_needs_pidfd(const struct process *p);

/* Whether both are connections of one process; false also if that is not known. */
bool process_is_same(const struct process *a, const struct process *b);

static inline bool process_is_parked(const struct process *p)
{
	return p->pidfd && p->pidfd->park.state == PARK_PARKED;
}

/* Whether its connection has ended, also if the daemon has not come to read that yet. */
bool process_has_left(const struct process *p);

/* It must hold no lease. NULL is allowed. Returns NULL. */
struct process *process_free(struct process *p);

/* Only after process_ask_groups(). */
bool process_in_group(const struct process *p, gid_t gid);
