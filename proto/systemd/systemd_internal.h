/* SPDX-License-Identifier: MIT
 *
 * What libsystemd.c or nosystemd.c does for systemd.c. systemd_receive_fds(),
 * systemd_has_watchdog() and systemd_library are theirs, too.
 */
#pragma once

#include "proto/systemd/systemd.h"

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

extern unsigned systemd_wait_ms; /* for a queue with room; tests shorten it */

/* Each sends one datagram. `probe` is a socket that is connected to the receiver, whose queue had
 * room just now; libsystemd opens one of its own. */

/* To $NOTIFY_SOCKET; fd may be -1. probe is -1 if the variable does not name a Unix socket. 0 or
 * -errno. */
int systemd_send(int probe, const char *text, int fd);

/* To the journal. 0 or -errno. */
int systemd_send_line(int probe, const struct iovec *fields, size_t n);
