/* SPDX-License-Identifier: MIT
 *
 * What crun and runc do for a container, as far as it concerns a daemon and its clients.
 */
#include "tests/lib/container.h"

#include "proto/base/own.h"
#include "tests/lib/daemon.h"
#include "tests/lib/user.h"
#include "tests/lib/userns.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* The new root is made here: a folder that every machine has. */
#define ROOT "/mnt"
#define CANNOT 125
#define COPIED_AT_ONCE (1u << 30)

int container_flags(void)
{
	return CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWUTS |
	       CLONE_NEWCGROUP;
}

static void cannot(const char *what)
{
	fprintf(stderr, "container: %s: %s\n", what, strerror(errno));
	_exit(CANNOT);
}

/* Makes all folders of ROOT/path; those that are there stay. */
static const char *make_folders(const char *path)
{
	static char full[PATH_MAX];

	snprintf(full, sizeof(full), ROOT "%s", path);
	for (char *slash = full + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(full, 0755);
		*slash = '/';
	}
	mkdir(full, 0755);
	return full;
}

static void bind_folder(const char *from, const char *path, unsigned long flags)
{
	const char *to = make_folders(path);

	if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0 ||
	    (flags && mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | flags, NULL) < 0))
		cannot(path);
}

/* On Debian /lib is a link into /usr. */
static void bind_system(const char *path)
{
	char target[64];
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	char link_path[64];

	if (n < 0) {
		if (access(path, F_OK) == 0)
			bind_folder(path, path, 0);
		return;
	}
	target[n] = '\0';
	snprintf(link_path, sizeof(link_path), ROOT "%s", path);
	if (symlink(target, link_path) < 0)
		cannot(path);
}

static void write_users(const struct container *c)
{
	FILE *f;

	make_folders("/etc");
	f = fopen(ROOT "/etc/passwd", "we");
	if (!f || fprintf(f, "root:x:0:0::/:/bin/sh\n%s:x:%u:%u::/:/bin/sh\n",
			  c->user ? c->user : "app", c->uid, c->uid) < 0)
		cannot("/etc/passwd");
	fclose(f);
}

static void copy_program(const char *path)
{
	_cleanup_(close_fd) int in = open(path, O_RDONLY | O_CLOEXEC), out = -1;
	char to[PATH_MAX];
	ssize_t n;

	snprintf(to, sizeof(to), "%s", path);
	*strrchr(to, '/') = '\0';
	make_folders(to);
	snprintf(to, sizeof(to), ROOT "%s", path);
	out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	while ((n = sendfile(out, in, NULL, COPIED_AT_ONCE)) > 0)
		;
	if (n < 0)
		cannot(path);
}

/* This program, BUILD/tests/FOLDER/test_X, and what it needs of BUILD. Not the folder itself: it or
 * its files may be closed to the container's user. */
static void copy_programs(void)
{
	static const char *const needed[] = { "gpushmd", "libgpushm*.so.*", "fakecuda/libcuda*",
					      "deps/lacking/*.so*" };
	char build[PATH_MAX] = { 0 }, pattern[PATH_MAX + 32];

	/* Check's assertions do not work before the first test. */
	if (readlink("/proc/self/exe", build, sizeof(build) - 1) < 0)
		cannot("its own program");
	copy_program(build);
	for (int up = 0; up < 3; up++)
		*strrchr(build, '/') = '\0';
	for (size_t i = 0; i < array_size(needed); i++) {
		glob_t found;

		snprintf(pattern, sizeof(pattern), "%s/%s", build, needed[i]);
		if (glob(pattern, 0, NULL, &found) == 0)
			for (size_t k = 0; k < found.gl_pathc; k++)
				copy_program(found.gl_pathv[k]);
		globfree(&found);
	}
}

static void fill_root(const struct container *c)
{
	static const char *const system[] = { "/usr", "/bin", "/sbin", "/lib", "/lib64" };

	for (size_t i = 0; i < array_size(system); i++)
		bind_system(system[i]);
	bind_folder("/dev", "/dev", 0);
	copy_programs();
	write_users(c);
	make_folders("/tmp");
	if (chmod(make_folders("/run"), c->open_run ? 0777 : 0755) < 0 ||
	    mount("proc", make_folders("/proc"), "proc", 0, NULL) < 0 ||
	    mount("tmpfs", make_folders("/dev/shm"), "tmpfs", 0, NULL) < 0)
		cannot("/proc and /dev/shm");
	if (c->sockets)
		bind_folder(c->sockets, c->at ? c->at : "/run/gpushm", MS_RDONLY);
	if (c->folder)
		bind_folder(c->folder, c->folder, 0);
}

static void change_root(const struct container *c)
{
	mode_t mask;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", ROOT, "tmpfs", 0, "mode=755") < 0)
		cannot("a new root");
	mask = umask(022);
	fill_root(c);
	umask(mask);
	if (chdir(ROOT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0 || chdir("/") < 0 ||
	    mount(NULL, "/", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0)
		cannot("pivot_root");
}

void container_enter(const struct container *c)
{
	char map[32];

	change_root(c);
	if (!user_become(c->uid, c->uid))
		cannot("its user");
	snprintf(map, sizeof(map), "0 %u 1", c->uid);
	if (c->userns && !userns_enter(map))
		cannot("its user namespace");
	/* Another user's process has forgotten that it dies with its parent. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void enter(const void *c)
{
	container_enter(c);
}

void container_start(struct role_process *p, const struct container *c, const char *name,
		     const char *const *args)
{
	role_start_in(p, name, args, container_flags(), enter, c);
}

static bool has_peer_pidfds(void)
{
	int pair[2] = { -1, -1 }, fd = -1;
	socklen_t size = sizeof(fd);
	bool has;

	has = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 &&
	      getsockopt(pair[0], SOL_SOCKET, DAEMON_SO_PEERPIDFD, &fd, &size) == 0;
	close_fd(&fd);
	close_fd(&pair[0]);
	close_fd(&pair[1]);
	if (!has)
		puts("skipped: no SO_PEERPIDFD (Linux 6.5)");
	return has;
}

bool container_may_start(void)
{
	static const struct container c = { .uid = 65529 };
	int status = 0;
	pid_t pid;

	if (!user_may_change() || !has_peer_pidfds())
		return false;
	pid = (pid_t)syscall(SYS_clone, SIGCHLD | container_flags(), 0, 0, 0, 0);
	if (pid == 0) {
		container_enter(&c);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status) {
		puts("skipped: no containers can be made here (namespaces or mounts are refused)");
		return false;
	}
	return true;
}
