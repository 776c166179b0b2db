/* SPDX-License-Identifier: MIT
 *
 * The list is text in a memfd, "NAME FD" a line below a first line that says what it is; the
 * environment says which fd that is, and of which process, so that a child that inherits the
 * variable does not take it for its own (as LISTEN_PID does, sd_listen_fds(3)).
 *
 * Every other fd must not get through: a connection that stays open would never hang up, and what a
 * driver keeps open would keep its memory. Libraries do not set FD_CLOEXEC on all of theirs, so it
 * is set on everything first (close_range(2), Linux 5.11). That alone changes nothing as long as
 * nothing is executed.
 */
#include "daemon/state/fd_list.h"

#include "proto/base/own.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define VARIABLE "GPUSHM_MANIFEST" /* PID:FD */
#define TITLE "gpushm manifest 1\n"
#define LINE_FORMAT "%31[a-z0-9] %d%c"
_Static_assert(FDSTORE_NAME_MAX == 31, "LINE_FORMAT");

int fd_list_add(struct fd_list *m, const char *name, int fd)
{
	if (m->n == m->room) {
		size_t room = m->room ? 2 * m->room : 64;
		struct fdstore_fd *items = reallocarray(m->items, room, sizeof(*items));

		if (!items)
			return -ENOMEM;
		m->items = items;
		m->room = room;
	}
	m->items[m->n].fd = fd;
	snprintf(m->items[m->n].name, sizeof(m->items->name), "%s", name);
	m->n++;
	return 0;
}

void fd_list_done(struct fd_list *m)
{
	free(m->items);
	*m = (struct fd_list){ 0 };
}

/* ---- handing on ---- */

static int write_list(const struct fd_list *m, int *ret)
{
	_cleanup_(close_fd) int fd = memfd_create("gpushm-manifest", MFD_CLOEXEC);
	int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	FILE *f = copy < 0 ? NULL : fdopen(copy, "w");

	if (!f) {
		close_fd(&copy);
		return -errno;
	}
	fputs(TITLE, f);
	for (size_t i = 0; i < m->n; i++)
		fprintf(f, "%s %d\n", m->items[i].name, m->items[i].fd);
	if (fclose(f) != 0)
		return -errno;
	*ret = take_fd(&fd);
	return 0;
}

static int let_through(const struct fd_list *m, int list, int flags)
{
	if (fcntl(list, F_SETFD, flags) < 0)
		return -errno;
	for (size_t i = 0; i < m->n; i++)
		if (fcntl(m->items[i].fd, F_SETFD, flags) < 0)
			return -errno;
	return 0;
}

static int exec_with(int list, const char *program, char *const *argv)
{
	char value[32];

	snprintf(value, sizeof(value), "%d:%d", getpid(), list);
	if (setenv(VARIABLE, value, 1) == 0)
		execve(program, argv, environ);
	return -errno;
}

int fd_list_exec(const struct fd_list *m, const char *program, char *const *argv)
{
	_cleanup_(close_fd) int list = -1;
	int r = write_list(m, &list);

	if (r == 0 && close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		r = -errno;
	if (r < 0)
		return r;
	r = let_through(m, list, 0);
	if (r == 0)
		r = exec_with(list, program, argv);
	unsetenv(VARIABLE);
	let_through(m, list, FD_CLOEXEC);
	return r;
}

/* ---- receiving ---- */

static int find_list(int *ret)
{
	const char *text = getenv(VARIABLE);
	int pid = 0, fd = -1;
	char end;

	if (!text || sscanf(text, "%d:%d%c", &pid, &fd, &end) != 2 || pid != getpid() || fd < 3)
		return 0;
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	*ret = fd;
	return 1;
}

static int read_line(struct fd_list *m, const char *line)
{
	char name[FDSTORE_NAME_MAX + 1], end;
	int fd;

	if (sscanf(line, LINE_FORMAT, name, &fd, &end) != 3 || end != '\n' || fd < 3 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return -EBADMSG;
	return fd_list_add(m, name, fd);
}

static int read_list(int *list, struct fd_list *m)
{
	FILE *f = lseek(*list, 0, SEEK_SET) < 0 ? NULL : fdopen(*list, "r");
	char line[64];
	int r = 0;

	if (!f)
		return -errno;
	take_fd(list);
	if (!fgets(line, sizeof(line), f) || strcmp(line, TITLE) != 0)
		r = -EBADMSG;
	while (r == 0 && fgets(line, sizeof(line), f))
		r = read_line(m, line);
	fclose(f);
	return r;
}

int fd_list_receive(struct fdstore_fd **ret, size_t *ret_n)
{
	_cleanup_(fd_list_done) struct fd_list m = { 0 };
	_cleanup_(close_fd) int list = -1;
	int r = find_list(&list);

	unsetenv(VARIABLE);
	if (r <= 0)
		return r;
	r = read_list(&list, &m);
	if (r < 0)
		return r;
	*ret_n = m.n;
	*ret = take_ptr(m.items);
	return 1;
}
