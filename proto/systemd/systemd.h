/* SPDX-License-Identifier: MIT
 *
 * What our services use of systemd: notifications (sd_notify(3)), fds that are passed at the start
 * (sd_listen_fds(3)), the watchdog (sd_watchdog_enabled(3)) and lines of the journal
 * (sd_journal_sendv(3)). Other supervisors that speak the same protocols are served the same way.
 * libsystemd does it; a build without libsystemd has nosystemd.c in its place, and does the same.
 *
 * One thread calls this, and no other writes the environment meanwhile; any thread may write lines
 * of the journal.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define SYSTEMD_FIRST_FD 3	   /* the first fd that is passed at the start */
#define SYSTEMD_NOTIFY_MAX 2048u   /* bytes of a notification; longer ones are cut */
#define SYSTEMD_JOURNAL_FIELDS 16u /* of one line */

/* "with libsystemd", or "without libsystemd". */
extern const char systemd_library[];

/* Sends lines like "READY=1\nSTATUS=2 pools" to $NOTIFY_SOCKET. 0, also if the variable is not set;
 * -ETIMEDOUT if the receiver's queue stays full for five seconds, and after that at once until it
 * has room again; another -errno if they can't be sent. The first notification opens a socket,
 * which stays open; where no other descriptor is left, later ones are sent all the same. */
#define systemd_notify(...) systemd_notify_fd(-1, __VA_ARGS__)

/* The same, with an fd that stays the caller's; -1: none. */
int systemd_notify_fd(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The fds from SYSTEMD_FIRST_FD on were passed to this process: returns how many, 0 if none, or
 * -errno (-EINVAL: the variables make no sense). They are close-on-exec then. *ret has a name for
 * each, "unknown" if they have none, and NULL at its end; the caller frees each name and the array.
 * It is written if there are any. Removes the variables from the environment in any case. */
int systemd_receive_fds(char ***ret);

/* Whether the receiver at $NOTIFY_SOCKET keeps fds (FDSTORE=1). systemd 254 and later set FDSTORE,
 * and so does our own keeper; for an older systemd the unit sets GPUSHM_FDSTORE=1. Another
 * supervisor that only knows READY=1 would not read what is sent. */
bool systemd_keeps_fds(void);

/* Whether "WATCHDOG=1" must be sent at least every *ret us. */
bool systemd_has_watchdog(uint64_t *ret);

/* Opens a socket for lines to the journal, for the rest of the process. 0 or -errno. */
int systemd_journal_open(void);

/* Writes one line of at most SYSTEMD_JOURNAL_FIELDS fields "NAME=value" to the journal. No value
 * may have a newline. 0; -ETIMEDOUT as above; another -errno. */
int systemd_journal_write(const struct iovec *fields, size_t n);
