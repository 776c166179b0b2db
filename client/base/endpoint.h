/* SPDX-License-Identifier: MIT
 *
 * Where the daemon listens, and whether who listens there may be believed.
 */
#ifndef GPUSHM_CLIENT_BASE_ENDPOINT_H
#define GPUSHM_CLIENT_BASE_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Connects to path, or by the rule of gpushm_connect() where it is NULL, and checks whose socket it
 * is. Where the queue of who listens is full it waits for a place, wait_ms at most and a
 * millisecond at least; then -ECONNREFUSED. The caller owns *ret_fd. 0 or -errno with
 * gpushm_error() set. */
int endpoint_connect(const char *path, uint64_t wait_ms, int *ret_fd, uid_t *ret_server);

/* Whether a file of that owner can come from a daemon behind a server of that uid: the same, or,
 * where root's systemd listens for it, user "gpushm". */
bool endpoint_owns(uid_t server, uid_t owner);

#endif
