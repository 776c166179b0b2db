/* SPDX-License-Identifier: MIT
 *
 * libsystemd waits while the receiver's queue is full, and takes a descriptor for each
 * notification. A service can afford neither: systemd reads nothing while it reloads its units, and
 * what is not sent for want of a descriptor is missing at the next start. So a socket of our own is
 * connected to the same receiver: poll(2) of it says whether the queue has room (unix_dgram_poll()
 * of net/unix/af_unix.c), and it is given up for a call that finds no descriptor. Only if others
 * fill the queue between the two calls, libsystemd waits.
 *
 * It owns both sockets, once they are open.
 */
#include "proto/base/own.h"
#include "proto/systemd/systemd_internal.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Of one receiver. */
struct probe {
	int fd;
	_Atomic bool late; /* the receiver has read nothing for systemd_wait_ms */
};

unsigned systemd_wait_ms = 5000;
static struct probe notifier = { .fd = -1 }, journal = { .fd = -1 };

static int probe_open(struct probe *p)
{
	if (p->fd < 0)
		p->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return p->fd < 0 ? -errno : 0;
}

/* Returns the address's length, or -errno. */
static int find_address(const char *path, struct sockaddr_un *ret)
{
	size_t len = strlen(path);

	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if ((path[0] != '/' && path[0] != '@') || len < 2)
		return -EAFNOSUPPORT;
	if (len >= sizeof(ret->sun_path))
		return -ENAMETOOLONG;
	memcpy(ret->sun_path, path, len);
	if (path[0] == '@')
		ret->sun_path[0] = '\0';
	/* An abstract name has no NUL at its end: unix(7). */
	return (int)(offsetof(struct sockaddr_un, sun_path) + len + (path[0] == '/'));
}

/* 0 if the receiver's queue has room; -EAFNOSUPPORT if it is no Unix socket, but "vsock:2:1" for
 * example. Connects each time: the path may lead to another socket by now. */
static int probe_ask(struct probe *p, const char *path)
{
	const unsigned ms = p->late ? 0 : systemd_wait_ms;
	const struct timespec wait = { ms / 1000, ms % 1000 * 1000000 };
	struct pollfd poll = { .events = POLLOUT };
	struct sockaddr_un to;
	sigset_t all;
	int r, len = find_address(path, &to);

	r = len < 0 ? len : probe_open(p);
	if (r < 0)
		return r;
	if (connect(p->fd, (struct sockaddr *)&to, (socklen_t)len) < 0)
		return -errno;
	poll.fd = p->fd;
	sigfillset(&all);
	r = ppoll(&poll, 1, &wait, &all);
	p->late = r == 0;
	return r < 0 ? -errno : r == 0 ? -ETIMEDOUT : 0;
}

/* ---- notifications ---- */

int systemd_notify_fd(int fd, const char *format, ...)
{
	const char *path = getenv("NOTIFY_SOCKET");
	char text[SYSTEMD_NOTIFY_MAX];
	va_list args;
	int r;

	if (!path)
		return 0;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	r = probe_ask(&notifier, path);
	if (r == 0 || r == -EAFNOSUPPORT)
		r = systemd_send(r == 0 ? notifier.fd : -1, text, fd);
	if ((r == -EMFILE || r == -ENFILE) && notifier.fd >= 0) {
		close_fd(&notifier.fd);
		r = systemd_send(-1, text, fd);
		probe_open(&notifier);
	}
	return r;
}

bool systemd_keeps_fds(void)
{
	return getenv("NOTIFY_SOCKET") && (getenv("FDSTORE") || getenv("GPUSHM_FDSTORE"));
}

/* ---- the journal ---- */

int systemd_journal_open(void)
{
	return probe_open(&journal);
}

int systemd_journal_write(const struct iovec *fields, size_t n)
{
	int r = probe_ask(&journal, JOURNAL_SOCKET);

	return r < 0 ? r : systemd_send_line(journal.fd, fields, n);
}
