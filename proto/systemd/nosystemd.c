/* SPDX-License-Identifier: MIT
 *
 * Where libsystemd is not there when we are built: the same, in few lines. The protocols are
 * documented and stable. A notification is one datagram, and so is a line of the journal, of
 * "NAME=value\n". Passed fds are counted and named by environment variables, which are valid for
 * the process LISTEN_PID only.
 */
#include "proto/base/number.h"
#include "proto/base/own.h"
#include "proto/systemd/systemd_internal.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>

const char systemd_library[] = "without libsystemd";

/* ---- datagrams ---- */

static int send_all(int sock, const struct msghdr *m)
{
	int r;

	do
		r = sendmsg(sock, m, MSG_NOSIGNAL) < 0 ? -errno : 0;
	while (r == -EINTR);
	return r;
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

int systemd_send(int probe, const char *text, int fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { (char *)text, strlen(text) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (probe < 0)
		return -EAFNOSUPPORT;
	if (fd >= 0)
		attach_fd(&m, control, sizeof(control), fd);
	return send_all(probe, &m);
}

int systemd_send_line(int probe, const struct iovec *fields, size_t n)
{
	static char newline[] = "\n";
	struct iovec iov[2 * SYSTEMD_JOURNAL_FIELDS];

	assert(n <= SYSTEMD_JOURNAL_FIELDS);
	for (size_t i = 0; i < n; i++) {
		iov[2 * i] = fields[i];
		iov[2 * i + 1] = (struct iovec){ newline, 1 };
	}
	return send_all(probe, &(struct msghdr){ .msg_iov = iov, .msg_iovlen = 2 * n });
}

/* ---- what is passed at the start ---- */

/* Reads a variable that is a number in decimal of at most max. 1; 0 if it is not set; -EINVAL. */
static int read_number(const char *variable, uint64_t max, uint64_t *ret)
{
	const char *text = getenv(variable);

	return !text ? 0 : number_read(text, max, ret) ? 1 : -EINVAL;
}

/* Whether a variable has our pid; `missing` if it is not set. */
static int is_for_us(const char *variable, int missing)
{
	uint64_t pid = 0;
	int r = read_number(variable, INT_MAX, &pid);

	return r == 0 ? missing : r < 0 ? r : pid == (uint64_t)getpid();
}

/* Returns how many. */
static int take_fds(void)
{
	uint64_t n = 0;
	int r = is_for_us("LISTEN_PID", 0);

	if (r > 0)
		r = read_number("LISTEN_FDS", INT_MAX - SYSTEMD_FIRST_FD, &n);
	if (r <= 0)
		return r;
	for (int fd = SYSTEMD_FIRST_FD; fd < SYSTEMD_FIRST_FD + (int)n; fd++)
		if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
			return -errno;
	return n == 0 ? -EINVAL : (int)n;
}

static void free_names(char ***names)
{
	for (char **name = *names; name && *name; name++)
		free(*name);
	free_ptr(names);
}

/* No names at all, or a name for each fd. */
static int split_names(const char *text, size_t n, char ***ret)
{
	_cleanup_(free_names) char **names = calloc(n + 1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		size_t len = text ? strcspn(text, ":") : 0;
		bool last = !text || !text[len];

		names[i] = text ? strndup(text, len) : strdup("unknown");
		if (!names[i])
			return -ENOMEM;
		if (text && last != (i == n - 1))
			return -EINVAL;
		text = text ? text + len + 1 : NULL;
	}
	*ret = take_ptr(names);
	return (int)n;
}

int systemd_receive_fds(char ***ret)
{
	int n = take_fds();

	if (n > 0)
		n = split_names(getenv("LISTEN_FDNAMES"), (size_t)n, ret);
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	unsetenv("LISTEN_PIDFDID"); /* systemd 258 and later */
	return n;
}

bool systemd_has_watchdog(uint64_t *ret)
{
	uint64_t usec = 0;

	if (is_for_us("WATCHDOG_PID", 1) <= 0 ||
	    read_number("WATCHDOG_USEC", UINT64_MAX - 1, &usec) <= 0 || usec == 0)
		return false;
	*ret = usec;
	return true;
}
