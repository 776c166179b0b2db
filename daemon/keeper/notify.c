/* SPDX-License-Identifier: MIT
 *
 * The socket is a file without a name: it was bound in a folder that is gone again, and is reached
 * through /proc/PID/fd of this process, which the kernel opens to this user and root only. So no
 * other user can fill the socket's queue, where the daemon's messages would wait, and nothing is
 * left of it when the keeper is killed. Where no folder can be made, it has an abstract name, and
 * any process of the network namespace can send to it. The kernel adds each sender's pid, and the
 * caller drops what does not come from its daemon, with the fds in it.
 *
 * It owns the socket, and the fds of a notification until notification_done().
 */
#include "daemon/keeper/notify.h"

#include "proto/base/number.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- the socket ---- */

/* Binds in that folder and removes the name again. Returns an O_PATH fd of the socket's file, or
 * -errno. */
static int bind_in(const char *parent, int fd)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int file, len = snprintf(a.sun_path, sizeof(a.sun_path), "%s/gpushmd-XXXXXX", parent);

	if (len + 2 >= (int)sizeof(a.sun_path))
		return -ENAMETOOLONG;
	if (!mkdtemp(a.sun_path))
		return -errno;
	memcpy(a.sun_path + len, "/n", 3);
	file = bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
	if (file == 0) {
		file = open(a.sun_path, O_PATH | O_CLOEXEC);
		file = file < 0 ? -errno : file;
		unlink(a.sun_path);
	}
	a.sun_path[len] = '\0';
	rmdir(a.sun_path);
	return file;
}

static bool has_proc(void)
{
	/* The kernel shows the fds of a process that can't be dumped to root only. */
	return access("/proc/self/fd", X_OK) == 0 && prctl(PR_GET_DUMPABLE) == 1;
}

static int bind_without_name(int fd, char *ret, size_t size, int *ret_file)
{
	const char *const folders[] = { getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp", "/run",
					"/dev/shm" };
	int file = -ENOENT;

	for (size_t i = 0; i < array_size(folders) && file < 0 && has_proc(); i++)
		if (folders[i] && folders[i][0] == '/')
			file = bind_in(folders[i], fd);
	if (file < 0)
		return file;
	snprintf(ret, size, "/proc/%d/fd/%d", getpid(), file);
	*ret_file = file;
	return 0;
}

/* The kernel chooses a name of five hexadecimal digits if none is given (unix(7), Autobind). */
static int bind_abstract(int fd, char *ret, size_t size)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(a.sun_family);

	if (bind(fd, (struct sockaddr *)&a, len) < 0)
		return -errno;
	len = sizeof(a);
	if (getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		return -errno;
	len -= (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1;
	if (snprintf(ret, size, "@%.*s", (int)len, a.sun_path + 1) >= (int)size)
		return -ENAMETOOLONG;
	return 0;
}

int notify_open(struct notify *ret)
{
	_cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r, on = 1;

	ret->socket = ret->file = -1;
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		return -errno;
	r = bind_without_name(fd, ret->address, sizeof(ret->address), &ret->file);
	if (r < 0)
		r = bind_abstract(fd, ret->address, sizeof(ret->address));
	if (r == 0)
		ret->socket = take_fd(&fd);
	return r;
}

void notify_close(struct notify *n)
{
	close_fd(&n->socket);
	close_fd(&n->file);
}

static void take_control(struct msghdr *m, struct notification *ret)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);
		struct ucred sender;

		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS && bytes == sizeof(sender)) {
			memcpy(&sender, CMSG_DATA(c), sizeof(sender));
			ret->sender = sender.pid;
		} else if (c->cmsg_type == SCM_RIGHTS && bytes <= sizeof(ret->fds)) {
			memcpy(ret->fds, CMSG_DATA(c), bytes);
			ret->n_fds = bytes / sizeof(int);
		}
	}
}

int notify_receive(const struct notify *n, struct notification *ret)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct ucred)) +
					      CMSG_SPACE(NOTIFY_FDS_MAX * sizeof(int))];
	struct iovec io = { ret->text, NOTIFY_TEXT_MAX };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t len;

	do
		len = recvmsg(n->socket, &m, MSG_CMSG_CLOEXEC);
	while (len < 0 && errno == EINTR);
	if (len < 0)
		return errno == EAGAIN ? 0 : -errno;
	ret->len = (size_t)len;
	ret->text[len] = '\0';
	ret->sender = 0;
	ret->n_fds = 0;
	ret->truncated = (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
	take_control(&m, ret);
	return 1;
}

void notification_done(struct notification *m)
{
	for (size_t i = 0; i < m->n_fds; i++)
		close_fd(&m->fds[i]);
	m->n_fds = 0;
}

/* ---- the text ---- */

/* A name goes into LISTEN_FDNAMES, where ':' separates names (sd_listen_fds(3)). */
static int read_name(const char *value, struct notification *m)
{
	size_t len = strlen(value);

	if (len == 0 || len > NOTIFY_NAME_MAX)
		return -EBADMSG;
	for (size_t i = 0; i < len; i++)
		if (value[i] < ' ' || value[i] > '~' || value[i] == ':')
			return -EBADMSG;
	memcpy(m->name, value, len + 1);
	return 0;
}

static int read_interval(const char *value, struct notification *m)
{
	return number_read(value, UINT64_MAX, &m->interval_us) && m->interval_us > 0 ? 0 : -EBADMSG;
}

/* Returns the value of that variable; or NULL. */
static const char *value_of(const char *line, const char *variable)
{
	size_t len = strlen(variable);

	return strncmp(line, variable, len) == 0 && line[len] == '=' ? line + len + 1 : NULL;
}

static int read_line(const char *line, struct notification *m)
{
	const struct {
		const char *line;
		bool *said;
	} words[] = {
		{ "READY=1", &m->ready },	   { "RELOADING=1", &m->reloading },
		{ "STOPPING=1", &m->stopping },	   { "WATCHDOG=1", &m->alive },
		{ "WATCHDOG=trigger", &m->hung },  { "FDSTORE=1", &m->store },
		{ "FDSTOREREMOVE=1", &m->forget },
	};
	const char *value;

	for (size_t i = 0; i < array_size(words); i++)
		if (strcmp(line, words[i].line) == 0)
			*words[i].said = true;
	m->status |= value_of(line, "STATUS") != NULL;
	value = value_of(line, "FDNAME");
	if (value)
		return read_name(value, m);
	value = value_of(line, "WATCHDOG_USEC");
	return value ? read_interval(value, m) : 0;
}

static void clear(struct notification *m)
{
	m->ready = m->reloading = m->stopping = m->status = m->alive = m->hung = false;
	m->store = m->forget = false;
	m->interval_us = 0;
	m->name[0] = '\0';
}

int notification_parse(struct notification *m)
{
	char copy[sizeof(m->text)], *rest = copy, *line;
	int r = strlen(m->text) == m->len ? 0 : -EBADMSG;

	clear(m);
	memcpy(copy, m->text, m->len + 1);
	while (r == 0 && (line = strsep(&rest, "\n")))
		r = read_line(line, m);
	if (r < 0)
		clear(m);
	return r;
}
