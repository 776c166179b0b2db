/* SPDX-License-Identifier: MIT
 *
 * The doctor's look at the kernel and at what surrounds this process: sealed memfds and pidfds (the
 * host pools and the daemon's judgement of who has gone rest on them), limits, and the two places
 * where things are different, containers and WSL2. It opens nothing that it does not close.
 */
#include "client/ctl/doctor.h"
#include "client/ctl/output.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* asm-generic/socket.h, Linux 6.5 */
#endif

/* The inode of the first PID namespace: PROC_PID_INIT_INO of linux/proc_ns.h. */
#define FIRST_PID_NAMESPACE 0xeffffffcu

/* The first line of a file in /proc; "" if it can't be read. */
static void read_line(const char *path, char *buf, size_t size)
{
	_cleanup_(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, buf, size - 1);

	buf[n < 0 ? 0 : n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
}

static void try_memfd(struct doctor *d)
{
	_cleanup_(close_fd) int fd = memfd_create("gpushmctl", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		doctor_say(d, FINDING_FAIL, "memfd",
			   "host pools need memfd_create(2): allow it in the container's seccomp "
			   "profile, or look at vm.memfd_noexec",
			   "memfd_create: %s", strerror(errno));
	else if (ftruncate(fd, 4096) < 0 ||
		 fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		doctor_say(d, FINDING_FAIL, "memfd", "host pools need sealed memfds (Linux 3.17)",
			   "F_ADD_SEALS: %s", strerror(errno));
	else
		doctor_say(d, FINDING_OK, "memfd", NULL, "sealed anonymous files work");
}

static void try_pidfd(struct doctor *d)
{
	_cleanup_(close_fd) int a = -1, b = -1, peer = -1;
	_cleanup_(close_fd) int own = (int)syscall(SYS_pidfd_open, getpid(), 0);
	socklen_t len = sizeof(peer);
	int pair[2];

	if (own < 0) {
		doctor_say(d, FINDING_FAIL, "pidfd",
			   "the daemon needs pidfd_open(2) (Linux 5.3) to know when a process has "
			   "gone",
			   "pidfd_open: %s", strerror(errno));
		return;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
		a = pair[0];
		b = pair[1];
	}
	if (getsockopt(a, SOL_SOCKET, SO_PEERPIDFD, &peer, &len) == 0)
		doctor_say(d, FINDING_OK, "pidfd", NULL, "the kernel names a socket's process");
	else
		doctor_say(d, FINDING_OK, "pidfd", NULL,
			   "pidfd_open works; SO_PEERPIDFD (Linux 6.5) does not, so a process that "
			   "dies while it connects may be taken for another");
}

static void look_at_kernel(struct doctor *d)
{
	struct utsname u;

	if (uname(&u) < 0)
		return;
	if (strcasestr(u.release, "microsoft"))
		doctor_say(d, FINDING_WARN, "kernel",
			   "use vmm, pinned or host pools; mempool needs a native Linux driver",
			   "%s: WSL2 can't export memory pools as file descriptors", u.release);
	else
		doctor_say(d, FINDING_OK, "kernel", NULL, "%s %s", u.sysname, u.release);
}

/* A buffer that is open takes up to two of them, a GPU pool's import none that stays. */
static void look_at_files(struct doctor *d)
{
	struct rlimit l;
	char all[64];

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return;
	read_line("/proc/sys/fs/file-max", all, sizeof(all));
	/* What systemd sets for "no limit" (LONG_MAX). */
	if (!strcmp(all, "9223372036854775807"))
		strcpy(all, "unlimited");
	if (l.rlim_cur < 1024)
		doctor_say(d, FINDING_WARN, "open files", "raise it: ulimit -n 4096",
			   "this shell's limit is %" PRIu64 " (hard %" PRIu64
			   "); each open buffer may take two",
			   (uint64_t)l.rlim_cur, (uint64_t)l.rlim_max);
	else
		doctor_say(d, FINDING_OK, "open files", NULL,
			   "limit %" PRIu64 " (hard %" PRIu64 "), system %s", (uint64_t)l.rlim_cur,
			   (uint64_t)l.rlim_max, all);
}

static void look_at_memory(struct doctor *d)
{
	char limit[64], locked[32] = "unlimited";
	struct rlimit l;

	read_line("/sys/fs/cgroup/memory.max", limit, sizeof(limit));
	if (getrlimit(RLIMIT_MEMLOCK, &l) == 0 && l.rlim_cur != RLIM_INFINITY)
		output_size(l.rlim_cur, d->ctl->bytes, locked, sizeof(locked));
	if (limit[0] && strcmp(limit, "max"))
		doctor_say(d, FINDING_WARN, "memory",
			   "host and pinned buffers count against it in the group of who touches "
			   "them first",
			   "this control group may use %s; locked memory: %s",
			   ctl_size(d->ctl, strtoull(limit, NULL, 10)), locked);
	else
		doctor_say(d, FINDING_OK, "memory", NULL,
			   "no limit of this control group; locked memory: %s", locked);
}

static void look_at_container(struct doctor *d)
{
	struct stat st;
	bool inside = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
		      getenv("container");
	bool own_pids = stat("/proc/self/ns/pid", &st) == 0 && st.st_ino != FIRST_PID_NAMESPACE;

	if (!inside && !own_pids) {
		doctor_say(d, FINDING_OK, "container", NULL, "none");
		return;
	}
	doctor_say(
		d, FINDING_WARN, "container",
		"to use a daemon outside: mount /run/gpushm into the container, share the host's "
		"PIDs (--pid=host), and give it the GPUs (--gpus all)",
		"%s%s", inside ? "this is a container" : "this is no container",
		own_pids ? "; its processes are in a PID namespace of their own" : "");
}

void doctor_system(struct doctor *d)
{
	look_at_kernel(d);
	look_at_container(d);
	try_memfd(d);
	try_pidfd(d);
	look_at_files(d);
	look_at_memory(d);
}
