/* SPDX-License-Identifier: MIT
 *
 * The list is text in a memfd: a title, then "NAME FD" in each line. An environment variable has
 * the memfd's number and this process's pid, so that a child that inherits the variable does not
 * take it for its own (LISTEN_PID works in the same way, sd_listen_fds(3)).
 *
 * No other fd may get through: a connection that stays open would never hang up, and an fd of a
 * driver would keep its memory. Libraries do not set FD_CLOEXEC on all of their fds, so
 * fd_list_exec() first sets it on everything (close_range(2), Linux 5.11; glibc has it from 2.34
 * on only). Without an exec that changes nothing.
 */
#include "daemon/state/fd_list.h"

#include "proto/base/grow.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define VARIABLE "GPUSHM_MANIFEST" /* PID:FD */
#define TITLE "gpushm manifest 1\n"
#define LINE_FORMAT "%31[a-z0-9] %d"
_Static_assert(FD_NAME_MAX == 31, "LINE_FORMAT");

int fd_list_add(struct fd_list *l, const char *name, int fd)
{
	struct named_fd *item = grow_append(&l->items, &l->n, sizeof(*item));

	if (!item)
		return -ENOMEM;
	item->fd = fd;
	snprintf(item->name, sizeof(item->name), "%s", name);
	return 0;
}

void fd_list_done(struct fd_list *l)
{
	free(l->items);
	*l = (struct fd_list){ 0 };
}

/* ---- in the program that ends ---- */

static int write_list(const struct fd_list *l, int *ret)
{
	_cleanup_(close_fd) int fd = memfd_create("gpushm-manifest", MFD_CLOEXEC);
	int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	FILE *f = copy < 0 ? NULL : fdopen(copy, "w");

	if (!f) {
		close_fd(&copy);
		return -errno;
	}
	fputs(TITLE, f);
	for (size_t i = 0; i < l->n; i++)
		fprintf(f, "%s %d\n", l->items[i].name, l->items[i].fd);
	if (fclose(f) != 0)
		return -errno;
	*ret = take_fd(&fd);
	return 0;
}

static int set_fd_flags(const struct fd_list *l, int list, int flags)
{
	if (fcntl(list, F_SETFD, flags) < 0)
		return -errno;
	for (size_t i = 0; i < l->n; i++)
		if (fcntl(l->items[i].fd, F_SETFD, flags) < 0)
			return -errno;
	return 0;
}

static int exec_program(int list, const char *program, char *const *argv)
{
	char value[32];

	snprintf(value, sizeof(value), "%d:%d", getpid(), list);
	if (setenv(VARIABLE, value, 1) == 0)
		execve(program, argv, environ);
	return -errno;
}

int fd_list_exec(const struct fd_list *l, const char *program, char *const *argv)
{
	_cleanup_(close_fd) int list = -1;
	int r = write_list(l, &list);

	if (r == 0 && syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		r = -errno;
	if (r < 0)
		return r;
	r = set_fd_flags(l, list, 0);
	if (r == 0)
		r = exec_program(list, program, argv);
	unsetenv(VARIABLE);
	set_fd_flags(l, list, FD_CLOEXEC);
	return r;
}

/* ---- in the program that follows ---- */

static bool read_variable(int *ret)
{
	const char *text = getenv(VARIABLE);
	int pid = 0;
	char end;

	return text && sscanf(text, "%d:%d%c", &pid, ret, &end) == 2 && pid == getpid() && *ret > 2;
}

bool fd_list_is_passed(void)
{
	int fd;

	return read_variable(&fd);
}

static int find_list(int *ret)
{
	int fd = -1;

	if (!read_variable(&fd))
		return 0;
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	*ret = fd;
	return 1;
}

/* Only what is written, to the last blank. */
static int read_line(struct fd_list *l, const char *line)
{
	char name[FD_NAME_MAX + 1], same[64];
	int fd;

	if (sscanf(line, LINE_FORMAT, name, &fd) != 2 || fd < 3)
		return -EBADMSG;
	snprintf(same, sizeof(same), "%s %d\n", name, fd);
	if (strcmp(same, line) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return -EBADMSG;
	return fd_list_add(l, name, fd);
}

static int read_list(int *list, struct fd_list *l)
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
		r = read_line(l, line);
	fclose(f);
	return r;
}

int fd_list_receive(struct fd_list *l)
{
	_cleanup_(close_fd) int list = -1;
	int r = find_list(&list);

	unsetenv(VARIABLE);
	if (r <= 0)
		return r;
	r = read_list(&list, l);
	return r < 0 ? r : 1;
}
