/* SPDX-License-Identifier: MIT
 *
 * A pidfd shows when the process at the other end of a socket is gone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Opens a pidfd of the process that connected the socket; the caller owns it. pid comes from
 * SO_PEERCRED and is 0 for a process in a PID namespace that we don't see. -ESRCH if the process is
 * gone, or can't be identified; -EMFILE, -ENFILE; another -errno of the kernel. */
int pidfd_of_peer(int socket, pid_t pid);

/* When the process started, in ticks since the boot, as in /proc/PID/stat; 0 if it can't be read. A
 * pid and its start time together are never used again. */
uint64_t pidfd_start_time(pid_t pid);

/* Opens a pidfd of the process with that pid and that start time. -ESRCH if it is gone; -errno. */
int pidfd_open_started(pid_t pid, uint64_t start_time);

bool pidfd_has_gone(int pidfd);

/* A number that no other process ever gets, the same for every pidfd of one process. 0 before Linux
 * 6.9, which has no such number. */
uint64_t pidfd_number(int pidfd);
