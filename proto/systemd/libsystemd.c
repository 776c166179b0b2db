/* SPDX-License-Identifier: MIT
 *
 * By libsystemd.
 */
#define SD_JOURNAL_SUPPRESS_LOCATION /* CODE_FILE= would always say libsystemd.c */

#include "proto/systemd/systemd_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-journal.h>

#define LINES_MARKED 12u

_Static_assert(SYSTEMD_FIRST_FD == SD_LISTEN_FDS_START, "sd_listen_fds(3)");

const char systemd_library[] = "with libsystemd";

int systemd_send(int probe, const char *text, int fd)
{
	int r = fd < 0 ? sd_notify(0, text) : sd_pid_notify_with_fds(0, 0, text, &fd, 1);

	return r < 0 ? r : 0;
}

int systemd_receive_fds(char ***ret)
{
	int n = sd_listen_fds_with_names(1, ret);

	unsetenv("LISTEN_PIDFDID"); /* systemd 258 and later */
	return n == -ERANGE ? -EINVAL : n;
}

bool systemd_has_watchdog(uint64_t *ret)
{
	return sd_watchdog_enabled(0, ret) > 0;
}

/* libsystemd has a socket for lines, which takes some hundred that are unread, or 26 of the
 * longest: then it waits, although the receiver's queue has room. So every 12 lines the probe sends
 * an empty datagram, which journald skips (server_process_datagram() of journald-server.c). Two of
 * them, unread, fill the probe, if its buffer is the smallest that there is: its poll(2) waits
 * first. */
int systemd_send_line(int probe, const struct iovec *fields, size_t n)
{
	static _Atomic unsigned lines;
	const int least = 0;
	int r = sd_journal_sendv(fields, (int)n);

	if (r == 0 && lines++ % LINES_MARKED == 0) {
		setsockopt(probe, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
		send(probe, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	return r;
}
