/* SPDX-License-Identifier: MIT
 *
 * A lent fd and the daemon's own are one open file for the kernel, so nothing tells them apart. But
 * the kernel gives a write lease on a file only if nobody else has it open, and a mapping keeps its
 * open file (fs/locks.c, check_conflicting_open(), Linux 5.3). So the daemon lends fds that it has
 * opened anew, closes them when all leases have ended, and asks for a lease with one more fd. The
 * file's first fd, which memfd_create() returned, does not count there (alloc_file_pseudo() does
 * not take write access): systemd keeps that one, and closes it some time after the daemon has
 * asked it to. Not seen are pages that a process has pinned or put into a pipe.
 */
#include "daemon/util/memfd.h"

#include "proto/base/own.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MODE_LENT 0400 /* nobody who gets a fd may open the file again for writing */
#define MODE_OPEN 0600

int memfd_reopen(int fd, int flags)
{
	char path[32];
	int r;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = open(path, flags | O_CLOEXEC);
	return r < 0 ? -errno : r;
}

int memfd_reopen_writable(int fd)
{
	int copy = fchmod(fd, MODE_OPEN) < 0 ? -errno : memfd_reopen(fd, O_RDWR);

	return fchmod(fd, MODE_LENT) < 0 ? -errno : copy;
}

static int failed(const char **ret, const char *call)
{
	*ret = call;
	return -errno;
}

int memfd_make(const char *name, uint64_t bytes, int seals, struct memfd *ret,
	       const char **ret_failed)
{
	_cleanup_(memfd_close) struct memfd m = MEMFD_NONE;

	m.fd_original = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (m.fd_original < 0)
		return failed(ret_failed, "memfd_create");
	/* Before the file's mode forbids it. */
	m.fd = memfd_reopen(m.fd_original, O_RDWR);
	if (m.fd < 0)
		return failed(ret_failed, "/proc/self/fd");
	if (ftruncate(m.fd, (off_t)bytes) < 0)
		return failed(ret_failed, "ftruncate");
	if (fchmod(m.fd, MODE_LENT) < 0)
		return failed(ret_failed, "fchmod");
	if (fcntl(m.fd, F_ADD_SEALS, seals) < 0)
		return failed(ret_failed, "F_ADD_SEALS");
	m.fd_read_only = memfd_reopen(m.fd, O_RDONLY);
	if (m.fd_read_only < 0)
		return failed(ret_failed, "/proc/self/fd");
	*ret = m;
	m = MEMFD_NONE;
	return 0;
}

void memfd_close(struct memfd *m)
{
	close_fd(&m->fd);
	close_fd(&m->fd_read_only);
	close_fd(&m->fd_original);
}

bool memfd_fits(int fd, uint64_t bytes, int seals)
{
	int has = fcntl(fd, F_GET_SEALS);
	struct stat st;

	return has >= 0 && (has & seals) == seals && fstat(fd, &st) == 0 &&
	       st.st_size == (off_t)bytes;
}

void memfd_withdraw(int *fd)
{
	int fresh = *fd < 0 ? -1 : memfd_reopen(*fd, O_RDONLY);

	if (fresh < 0)
		return;
	close_fd(fd);
	*fd = fresh;
}

bool memfd_is_held(int fd)
{
	/* A lease that is granted goes with the fd: nobody is left who could break it. */
	return fcntl(fd, F_SETLEASE, F_WRLCK) < 0 && errno == EAGAIN;
}
