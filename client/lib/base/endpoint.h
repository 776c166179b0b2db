/* SPDX-License-Identifier: MIT
 *
 * Where the daemon listens, whether the process that listens there may be trusted, and what it
 * does.
 */
#pragma once

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* A call of the socket blocks so long at most; then its caller looks whether its own time is over.
 * A daemon that lives replies sooner, mostly. So a request has a deadline, and no call more. */
#define ENDPOINT_BLOCK_MS 20u

/* Connects to path, or by the rule of gpushm_connect() where it is NULL, and checks the server's
 * uid. While the listener's queue is full it waits, wait_ms at most and a millisecond at least;
 * then -ECONNREFUSED. The caller owns *ret_fd. 0 or -errno with gpushm_error() set. */
int endpoint_connect(const char *path, uint64_t wait_ms, int *ret_fd, uid_t *ret_server);

/* Checks a file that the daemon sent, before it is mapped: exactly so many bytes, at least these
 * F_SEAL_* bits, and the server's uid as its owner (where root's systemd listens for the daemon,
 * user "gpushm" too). `what` starts the error text. 0, or -EPROTO with gpushm_error() set. */
int endpoint_check_file(const char *what, int fd, uid_t server, uint64_t bytes, int seals,
			struct stat *ret);

/* Writes "its process 4711 is stopped (state T): ..." to ret, for the error about a daemon that
 * does not reply. socket: a connection to it. told: the pid that the daemon says it has; 0: it says
 * none. */
void endpoint_describe_daemon(int socket, pid_t told, char *ret, size_t size);
