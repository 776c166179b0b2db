/* SPDX-License-Identifier: MIT
 *
 * Which process is it? From Linux 6.5 on the kernel says so: SO_PEERPIDFD is a pidfd of exactly the
 * process that connected, in whatever PID namespace it is. Before, there is its pid alone, and
 * between connect() and pidfd_open() that pid may have gone to another process. Two things are
 * looked at against that: the socket has not hung up afterwards, so that somebody still has its
 * other end, and the process has the same start time before and after. What remains is a process
 * that connected, handed the socket to another one (a child, say) and died, and whose pid was used
 * again, all before its connection was accepted: then the new process is the one that is watched.
 * It must have come round to the same pid in that moment; nothing that such a kernel tells can show
 * it.
 */
#include "daemon/catalog/pidfd.h"

#include "proto/base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* asm-generic/socket.h, Linux 6.5 */
#endif

#ifndef PID_FS_MAGIC
#define PID_FS_MAGIC 0x50494446 /* linux/magic.h, Linux 6.9 */
#endif

#define STAT_START_TIME 20 /* fields behind the command's ")": the 22nd of proc_pid_stat(5) */

uint64_t pidfd_start_time(pid_t pid)
{
	char path[32], text[1024];
	_cleanup_(close_fd) int fd = -1;
	const char *at;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n < 0)
		return 0;
	text[n] = '\0';
	/* The command may have blanks and brackets in it: its end is the last one. */
	at = strrchr(text, ')');
	for (int field = 0; at && field < STAT_START_TIME; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

static bool has_hung_up(int socket)
{
	struct pollfd p = { .fd = socket };

	return poll(&p, 1, 0) < 0 || (p.revents & (POLLHUP | POLLERR));
}

static int open_pidfd(int socket, pid_t pid)
{
	uint64_t before = pidfd_start_time(pid);
	_cleanup_(close_fd) int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0)
		return -errno;
	if (before == 0 || has_hung_up(socket) || pidfd_start_time(pid) != before)
		return -ESRCH;
	return take_fd(&fd);
}

int pidfd_of_peer(int socket, pid_t pid)
{
	int fd = -1;
	socklen_t len = sizeof(fd);

	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
		return fd;
	if (errno != ENOPROTOOPT)
		return -errno;
	return pid > 0 ? open_pidfd(socket, pid) : -ESRCH;
}

bool pidfd_has_gone(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) != 0;
}

/* Since Linux 6.9 each process has an inode of its own there, whose number is never used again;
 * before, all pidfds shared one. */
uint64_t pidfd_number(int pidfd)
{
	struct statfs fs;
	struct stat st;

	if (fstatfs(pidfd, &fs) < 0 || fs.f_type != PID_FS_MAGIC || fstat(pidfd, &st) < 0)
		return 0;
	return st.st_ino;
}
