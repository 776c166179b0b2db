/* SPDX-License-Identifier: MIT
 *
 * A process may map one id by itself, its own. For groups it must give up setgroups(2) first
 * (user_namespaces(7)).
 */
#include "tests/lib/userns.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return written;
}

bool userns_enter(const char *map)
{
	/* After setresuid() the files of /proc/self belong to root (proc(5)). */
	if (prctl(PR_SET_DUMPABLE, 1) < 0 || unshare(CLONE_NEWUSER) < 0)
		return false;
	return map[0] == '\0' ||
	       (write_text("/proc/self/setgroups", "deny") &&
		write_text("/proc/self/uid_map", map) && write_text("/proc/self/gid_map", map));
}

bool userns_may_enter(void)
{
	char map[32];
	int status = 1;
	pid_t pid = fork();

	snprintf(map, sizeof(map), "0 %u 1", geteuid());
	if (pid == 0)
		_exit(!userns_enter(map));
	waitpid(pid, &status, 0);
	if (status)
		puts("skipped: no user namespaces here (user.max_user_namespaces, or a container)");
	return status == 0;
}
