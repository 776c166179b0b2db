/* SPDX-License-Identifier: MIT
 *
 * Processes and their pidfds.
 *
 * From Linux 6.5 on the kernel identifies the peer: SO_PEERPIDFD is a pidfd of exactly the process
 * that connected, in any PID namespace. Older kernels give only its pid, and between connect() and
 * pidfd_open() another process may have got that pid. Two checks help against that: the socket has
 * not hung up afterwards, so that some process still has its other end, and the process has the
 * same start time before and after. One case remains: a process connects, passes the socket to
 * another one (a child, for example) and dies, and its pid is used again, all before the daemon
 * accepts the connection. Then the daemon watches the new process. Nothing that such a kernel
 * reports can show it.
 */
#include "daemon/catalog/pidfd.h"

#include "proto/base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
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
	/* The command may contain blanks and brackets: the last bracket ends it. */
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

int pidfd_open_started(pid_t pid, uint64_t start_time)
{
	_cleanup_(close_fd) int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	/* The pid may be a thread's by now: EINVAL, and ENOENT since Linux 6.9. */
	if (fd < 0)
		return errno == EINVAL || errno == ENOENT ? -ESRCH : -errno;
	return pidfd_start_time(pid) == start_time ||
			       (start_time != 0 && pidfd_number(fd) == start_time)
		       ? take_fd(&fd)
		       : -ESRCH;
}

static int open_by_pid(int socket, pid_t pid)
{
	uint64_t start_time = pidfd_start_time(pid);
	_cleanup_(close_fd) int fd = pidfd_open_started(pid, start_time);

	if (fd < 0)
		return fd;
	return start_time == 0 || has_hung_up(socket) ? -ESRCH : take_fd(&fd);
}

int pidfd_of_peer(int socket, pid_t pid)
{
	int fd = -1;
	socklen_t len = sizeof(fd);

	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
		return fd;
	if (errno != ENOPROTOOPT)
		return -errno;
	return pid > 0 ? open_by_pid(socket, pid) : -ESRCH;
}

bool pidfd_has_gone(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) != 0;
}

/* Since Linux 6.9 the inode of a pidfd belongs to its process alone, and its number is never used
 * again; before, all pidfds shared one inode. */
uint64_t pidfd_number(int pidfd)
{
	struct statfs fs;
	struct stat st;

	if (fstatfs(pidfd, &fs) < 0 || fs.f_type != PID_FS_MAGIC || fstat(pidfd, &st) < 0)
		return 0;
	return st.st_ino;
}

/* ---- shared by the connections of a process ---- */

int pidfds_init(struct pidfds *all)
{
	return hashtable_init(&all->by_process);
}

void pidfds_done(struct pidfds *all)
{
	hashtable_done(&all->by_process);
}

static uint64_t hash_of(pid_t pid, uint64_t start_time)
{
	return hashtable_hash_u64(start_time ^ (uint64_t)pid << 40);
}

static bool is_linked(const struct pidfd *p)
{
	return p->start_time != 0;
}

struct pidfd *pidfd_find(const struct pidfds *all, uid_t uid, pid_t pid, uint64_t start_time)
{
	struct pidfd *it;

	if (start_time == 0)
		return NULL;
	hashtable_foreach (it, &all->by_process, hash_of(pid, start_time), link)
		if (it->uid == uid && it->pid == pid && it->start_time == start_time)
			return it;
	return NULL;
}

/* The pid of a process that has died since it connected may be another one's by now, and the start
 * time is read after that. The number can't be mistaken. */
static struct pidfd *find_same(const struct pidfds *all, int fd, uid_t uid, pid_t pid,
			       uint64_t start_time)
{
	struct pidfd *found = pidfd_find(all, uid, pid, start_time);

	return found && found->number == pidfd_number(fd) ? found : NULL;
}

struct pidfd *pidfd_share(struct pidfds *all, int *fd, uid_t uid, pid_t pid, uint64_t start_time)
{
	_cleanup_(close_fd) int own = take_fd(fd);
	struct pidfd *p = find_same(all, own, uid, pid, start_time);

	if (p) {
		p->users++;
		return p;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	*p = (struct pidfd){ .all = all, .pid = pid, .uid = uid, .start_time = start_time };
	p->number = pidfd_number(own);
	p->fd = take_fd(&own);
	p->users = 1;
	list_init(&p->suspects);
	list_init(&p->park.held);
	if (is_linked(p))
		hashtable_insert(&all->by_process, &p->link, hash_of(pid, start_time));
	return p;
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct pidfd *p = handle->data;

	close_fd(&p->fd);
	free(p);
}

struct pidfd *pidfd_release(struct pidfd *p)
{
	if (!p || --p->users > 0)
		return NULL;
	if (is_linked(p))
		hashtable_drop(&p->all->by_process, &p->link);
	p->all->parked -= p->park.state == PARK_PARKED;
	discharge(&p->charge);
	discharge(&p->kept_charge);
	if (p->watched) {
		uv_close((uv_handle_t *)&p->poll, on_poll_closed);
		return NULL;
	}
	close_fd(&p->fd);
	free(p);
	return NULL;
}
