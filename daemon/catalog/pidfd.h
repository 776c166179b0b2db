/* SPDX-License-Identifier: MIT
 *
 * A pidfd: what tells when the process at the other end of a socket has gone.
 */
#ifndef GPUSHM_DAEMON_CATALOG_PIDFD_H
#define GPUSHM_DAEMON_CATALOG_PIDFD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The pidfd of the process that connected the socket, for the caller to close. pid is
 * SO_PEERCRED's: 0 for a process in a PID namespace that is not ours. -ESRCH where nothing tells
 * which process it is; -EMFILE, -ENFILE; another -errno of the kernel. */
int pidfd_of_peer(int socket, pid_t pid);

/* When the process started, in ticks since the boot, as in /proc/PID/stat; 0 where it can't be
 * read. A pid and its start time together are never used again. */
uint64_t pidfd_start_time(pid_t pid);

bool pidfd_has_gone(int pidfd);

/* A number that is this process's alone, also after it and for every pidfd of it; 0 before Linux
 * 6.9, which can't tell. */
uint64_t pidfd_number(int pidfd);

#endif
