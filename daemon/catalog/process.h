/* SPDX-License-Identifier: MIT
 *
 * The process behind a connection: who it is, as the kernel said at accept, a pidfd that tells when
 * it has gone, and its leases. It outlives the connection while it holds a lease: see reaper.h.
 */
#ifndef GPUSHM_DAEMON_CATALOG_PROCESS_H
#define GPUSHM_DAEMON_CATALOG_PROCESS_H

#include "daemon/catalog/account.h"
#include "proto/base/list.h"

#include <stdbool.h>
#include <uv.h>

struct process {
	struct list link;    /* reaper::suspects, once its connection has closed */
	pid_t pid;	     /* 0: in a PID namespace that is not ours */
	uint64_t start_time; /* pidfd_start_time(); where pid is 0, pidfd_number(); 0: not known */
	uid_t uid;
	gid_t gid;
	gid_t *gids; /* owned; the primary group and the supplementary ones */
	size_t n_gids;
	bool admin;	      /* root, the daemon's own user, or in the admin group */
	char command[16];     /* for people; nothing is decided from it */
	uint64_t session;     /* of the connection: what the client names when it comes back */
	int pidfd;	      /* owned; -1: it can't be watched, and is trusted all the same */
	struct charge charge; /* of the connection */
	struct list leases;   /* lease::process_link */
	bool kept, listed;    /* its pidfd: with a keeper, or for an exec */
	uint64_t suspect_ns;  /* CLOCK_REALTIME since when its connection is closed; 0 before */
	bool watched;	      /* poll is initialised */
	uv_poll_t poll;	      /* on pidfd; the reaper's */
	struct reaper *reaper;
};

/* Asks the kernel who is at the other end of a connected socket. trust: one that can't be watched
 * is taken all the same. 0; -EPERM (CODE_UNIDENTIFIED) where it can't be watched: it is in a PID
 * namespace that we don't see, or gone already; -ENFILE; -ENOMEM. */
int process_identify(int socket, gid_t admin_gid, bool trust, struct process **ret,
		     struct fault *f);

/* The process of a connection to an earlier daemon, as its journal tells. pidfd: what was kept of
 * it, taken over in any case; -1: nothing. 0; -ESRCH where it has gone, or its pid is another
 * process's by now; -errno. */
int process_adopt(const struct process *told, int pidfd, struct process **ret);

/* A pid in a namespace that we don't see can't be opened again: its pidfd has to be handed on. */
bool process_needs_pidfd(const struct process *p);

/* Whether both are connections of one process; false also where that can't be told. */
bool process_is_same(const struct process *a, const struct process *b);

/* It holds no lease any more, and its poll handle, if it had one, is closed. NULL is allowed.
 * Returns NULL. */
struct process *process_free(struct process *p);

bool process_in_group(const struct process *p, gid_t gid);

#endif
