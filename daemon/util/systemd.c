/* SPDX-License-Identifier: MIT
 *
 * A notification is one datagram to a Unix socket; a path that starts with '@' is an abstract name.
 * A line of the journal is one datagram of "NAME=value\n" to a socket with a fixed path. Passed fds
 * are counted and named by environment variables, which are valid for the process LISTEN_PID only.
 *
 * It owns the sockets for notifications and for the journal's lines, once they are open.
 */
#include "daemon/util/systemd.h"

#include "proto/base/own.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static const struct sockaddr_un journal_address = { AF_UNIX, "/run/systemd/journal/socket" };
static int journal = -1, notifier = -1;

/* ---- notifications ---- */

/* Returns the address's length, or -errno. */
static int notify_address(const char *path, struct sockaddr_un *ret)
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

static void attach_fd(struct msghdr *m, void *control, size_t size, int fd)
{
	struct cmsghdr *c;

	m->msg_control = memset(control, 0, size);
	m->msg_controllen = size;
	c = CMSG_FIRSTHDR(m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
}

/* It stays open: where no descriptor is left, an fd that is not forgotten would be taken for the
 * next one of its name. */
static int open_notifier(void)
{
	if (notifier < 0)
		notifier = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return notifier < 0 ? -errno : 0;
}

__attribute__((format(printf, 2, 0))) static int notify(int fd, const char *format, va_list args)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	const char *path = getenv("NOTIFY_SOCKET");
	char text[SYSTEMD_NOTIFY_MAX];
	struct sockaddr_un address;
	struct iovec iov = { .iov_base = text };
	struct msghdr m = { .msg_name = &address, .msg_iov = &iov, .msg_iovlen = 1 };
	int r, len;

	if (!path)
		return 0;
	r = notify_address(path, &address);
	if (r < 0)
		return r;
	m.msg_namelen = (socklen_t)r;
	len = vsnprintf(text, sizeof(text), format, args);
	iov.iov_len = (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1;
	if (fd >= 0)
		attach_fd(&m, control, sizeof(control), fd);
	r = open_notifier();
	if (r < 0)
		return r;
	do
		r = sendmsg(notifier, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
	while (r == -EINTR);
	return r;
}

int systemd_notify(const char *format, ...)
{
	va_list args;
	int r;

	va_start(args, format);
	r = notify(-1, format, args);
	va_end(args);
	return r;
}

int systemd_notify_fd(int fd, const char *format, ...)
{
	va_list args;
	int r;

	va_start(args, format);
	r = notify(fd, format, args);
	va_end(args);
	return r;
}

/* ---- what is passed at the start ---- */

/* Reads a variable that is a number in decimal of at most max. 1; 0 if it is not set; -EINVAL. */
static int read_number(const char *variable, uint64_t max, uint64_t *ret)
{
	const char *text = getenv(variable);
	char *end;

	if (!text)
		return 0;
	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno != 0 || *end || *ret > max ? -EINVAL : 1;
}

/* Whether a variable has our pid; `missing` if it is not set. */
static int is_for_us(const char *variable, int missing)
{
	uint64_t pid = 0;
	int r = read_number(variable, INT_MAX, &pid);

	return r == 0 ? missing : r < 0 ? r : pid == (uint64_t)getpid();
}

static int take_fds(char **ret_names)
{
	const char *names = getenv("LISTEN_FDNAMES");
	uint64_t n = 0;
	int r = is_for_us("LISTEN_PID", 0);

	if (r > 0)
		r = read_number("LISTEN_FDS", INT_MAX - SYSTEMD_FIRST_FD, &n);
	if (r <= 0)
		return r;
	for (int fd = SYSTEMD_FIRST_FD; fd < SYSTEMD_FIRST_FD + (int)n; fd++)
		if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
			return -errno;
	*ret_names = names ? strdup(names) : NULL;
	return names && !*ret_names ? -ENOMEM : (int)n;
}

int systemd_receive_fds(char **ret)
{
	int n;

	*ret = NULL;
	n = take_fds(ret);
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	unsetenv("LISTEN_PIDFDID"); /* systemd 258 and later */
	return n;
}

bool systemd_keeps_fds(void)
{
	return getenv("NOTIFY_SOCKET") && (getenv("FDSTORE") || getenv("GPUSHM_FDSTORE"));
}

bool systemd_has_watchdog(uint64_t *ret)
{
	return is_for_us("WATCHDOG_PID", 1) > 0 &&
	       read_number("WATCHDOG_USEC", UINT64_MAX - 1, ret) > 0 && *ret > 0;
}

/* ---- the journal ---- */

int systemd_journal_open(void)
{
	if (journal < 0)
		journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return journal < 0 ? -errno : 0;
}

int systemd_journal_write(const struct iovec *fields, size_t n)
{
	static char newline[] = "\n";
	struct iovec iov[2 * SYSTEMD_JOURNAL_FIELDS];
	struct sockaddr_un address = journal_address;
	struct msghdr m = { .msg_name = &address,
			    .msg_namelen = sizeof(address),
			    .msg_iov = iov,
			    .msg_iovlen = 2 * n };
	int r;

	assert(n <= SYSTEMD_JOURNAL_FIELDS);
	for (size_t i = 0; i < n; i++) {
		iov[2 * i] = fields[i];
		iov[2 * i + 1] = (struct iovec){ newline, 1 };
	}
	do
		r = sendmsg(journal, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
	while (r == -EINTR);
	return r;
}
