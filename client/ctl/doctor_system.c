/* SPDX-License-Identifier: MIT
 *
 * The doctor's tests of the kernel (host pools need sealed memfds, and the daemon needs pidfds to
 * know which processes have exited), of limits, of containers and WSL2, and of the NVIDIA driver's
 * device nodes. These are opened as CUDA opens them, for reading and writing, and closed at once;
 * opening does nothing to a device. A machine without a GPU gets one warning, not five failures,
 * because host pools need no driver.
 */
#include "client/ctl/doctor.h"
#include "proto/base/own.h"
#include "proto/base/userns.h"

#include <dirent.h>
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

/* The first line of a file in /proc; "" if it cannot be read. */
static void read_line(const char *path, char *buf, size_t size)
{
	_cleanup_(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, buf, size - 1);

	buf[n < 0 ? 0 : n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
}

static void test_memfd(struct doctor *d)
{
	_cleanup_(close_fd) int fd = memfd_create("gpushmctl", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		doctor_fail(d, "memfd",
			    "host pools need memfd_create(2): allow it in the container's seccomp "
			    "profile, or look at vm.memfd_noexec",
			    "memfd_create: %s", strerror(errno));
	else if (ftruncate(fd, 4096) < 0 ||
		 fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		doctor_fail(d, "memfd", "host pools need sealed memfds (Linux 3.17)",
			    "F_ADD_SEALS: %s", strerror(errno));
	else
		doctor_ok(d, "memfd", "sealed anonymous files work");
}

/* SO_PEERPIDFD, Linux 6.5: also for a process in another PID namespace. */
static bool kernel_names_peers(void)
{
	_cleanup_(close_fd) int a = -1, b = -1, peer = -1;
	socklen_t len = sizeof(peer);
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
		a = pair[0];
		b = pair[1];
	}
	return getsockopt(a, SOL_SOCKET, SO_PEERPIDFD, &peer, &len) == 0;
}

static void test_pidfd(struct doctor *d)
{
	_cleanup_(close_fd) int own = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (own < 0) {
		doctor_fail(d, "pidfd",
			    "the daemon needs pidfd_open(2) (Linux 5.3) to know when a process has "
			    "gone",
			    "pidfd_open: %s", strerror(errno));
		return;
	}
	if (kernel_names_peers())
		doctor_ok(d, "pidfd", "the kernel names a socket's process");
	else
		doctor_ok(d, "pidfd",
			  "pidfd_open works; SO_PEERPIDFD (Linux 6.5) does not, so a process that "
			  "dies while it connects may be taken for another");
}

static void check_kernel(struct doctor *d)
{
	struct utsname u;

	if (uname(&u) < 0)
		return;
	if (strcasestr(u.release, "microsoft"))
		doctor_warn(d, "kernel",
			    "use vmm, pinned or host pools; mempool needs a native Linux driver",
			    "%s: WSL2 can't export memory pools as file descriptors", u.release);
	else
		doctor_ok(d, "kernel", "%s %s", u.sysname, u.release);
}

/* An open buffer takes up to two fds; a GPU buffer's fd is closed after the import. */
static void check_files(struct doctor *d)
{
	struct rlimit l;
	char all[64];

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return;
	read_line("/proc/sys/fs/file-max", all, sizeof(all));
	/* systemd sets LONG_MAX for "no limit". */
	if (!strcmp(all, "9223372036854775807"))
		strcpy(all, "unlimited");
	if (l.rlim_cur < 1024)
		doctor_warn(d, "open files", "raise it: ulimit -n 4096",
			    "this shell's limit is %" PRIu64 " (hard %" PRIu64
			    "); each open buffer may take two",
			    (uint64_t)l.rlim_cur, (uint64_t)l.rlim_max);
	else
		doctor_ok(d, "open files", "limit %" PRIu64 " (hard %" PRIu64 "), system %s",
			  (uint64_t)l.rlim_cur, (uint64_t)l.rlim_max, all);
}

static void check_memory(struct doctor *d)
{
	struct output_text locked = { "unlimited" };
	char limit[64];
	struct rlimit l;

	read_line("/sys/fs/cgroup/memory.max", limit, sizeof(limit));
	if (getrlimit(RLIMIT_MEMLOCK, &l) == 0 && l.rlim_cur != RLIM_INFINITY)
		locked = ctl_size(d->ctl, l.rlim_cur);
	if (limit[0] && strcmp(limit, "max"))
		doctor_warn(d, "memory",
			    "host and pinned buffers count against the limit of the process that "
			    "touches them first",
			    "this control group may use %s; locked memory: %s",
			    ctl_size(d->ctl, strtoull(limit, NULL, 10)).text, locked.text);
	else
		doctor_ok(d, "memory", "no limit of this control group; locked memory: %s",
			  locked.text);
}

static void check_container(struct doctor *d)
{
	struct stat st;
	bool inside = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
		      getenv("container");
	bool own_pids = stat("/proc/self/ns/pid", &st) == 0 && st.st_ino != FIRST_PID_NAMESPACE;

	/* Only a daemon outside must find its processes in another PID namespace. */
	if (own_pids && !kernel_names_peers())
		doctor_warn(
			d, "container",
			"to use a daemon outside, share the host's PIDs (--pid=host, hostPID), "
			"or see unwatched-clients in gpushmd.conf(5)",
			"its processes are in a PID namespace of their own, and this kernel has "
			"no SO_PEERPIDFD (Linux 6.5)");
	else if (own_pids)
		doctor_ok(d, "container",
			  "yes: a PID namespace of its own, whose processes the kernel can name to "
			  "a daemon outside");
	else
		doctor_ok(d, "container", "%s",
			  inside ? "yes, in the host's PID namespace" : "none");
}

static void check_users(struct doctor *d)
{
	uid_t unmapped = userns_unmapped_uid();

	if (unmapped == (uid_t)-1)
		doctor_ok(d, "users", "this user namespace has all users");
	else
		doctor_warn(
			d, "users",
			"to use a daemon outside, see GPUSHM_UNMAPPED_DAEMON in gpushm(3); for a "
			"daemon in here see unmapped-users in gpushmd.conf(5)",
			"this user namespace has some users only, and shows others as uid %u",
			unmapped);
}

/* /dev/nvidia0 and so on: "nvidia" and digits only. */
static bool is_gpu(const char *name)
{
	return !strncmp(name, "nvidia", 6) && name[6] &&
	       strspn(name + 6, "0123456789") == strlen(name + 6);
}

static bool test_node(struct doctor *d, const char *name)
{
	char path[300];
	_cleanup_(close_fd) int fd = -1;

	snprintf(path, sizeof(path), "/dev/%s", name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		return true;
	if (errno == ENOENT)
		doctor_fail(d, "device nodes",
			    "create it: nvidia-modprobe -u -c 0 (or start nvidia-persistenced)",
			    "%s is missing", path);
	else if (errno == EPERM)
		doctor_fail(d, "device nodes",
			    "the device control group forbids it: DeviceAllow= of the unit, or "
			    "--gpus of the container",
			    "%s: %s", path, strerror(errno));
	else
		doctor_fail(d, "device nodes",
			    "look at its owner and mode, and at NVreg_DeviceFileMode", "%s: %s",
			    path, strerror(errno));
	return false;
}

/* Counts the GPUs that have a node, and the nodes that can be opened. */
static void test_gpus(struct doctor *d, unsigned *ret_found, unsigned *ret_open)
{
	DIR *dev = opendir("/dev");

	*ret_found = *ret_open = 0;
	if (!dev)
		return;
	for (struct dirent *e = readdir(dev); e; e = readdir(dev)) {
		if (!is_gpu(e->d_name))
			continue;
		++*ret_found;
		*ret_open += test_node(d, e->d_name);
	}
	closedir(dev);
}

static void test_nodes(struct doctor *d)
{
	unsigned found, open;
	bool loaded = access("/proc/driver/nvidia/version", F_OK) == 0;

	if (access("/dev/dxg", F_OK) == 0) {
		doctor_ok(d, "device nodes", "/dev/dxg: the GPU of WSL2");
		return;
	}
	test_gpus(d, &found, &open);
	if (!found) {
		doctor_warn(
			d, "device nodes",
			loaded ? "the driver is loaded: run nvidia-smi once as root, or start the "
				 "container with --gpus all"
			       : "if there is a GPU, install its driver and load it: modprobe "
				 "nvidia",
			"no /dev/nvidia0: host pools only");
		return;
	}
	if (test_node(d, "nvidiactl") && test_node(d, "nvidia-uvm") && open == found)
		doctor_ok(d, "device nodes", "%u GPUs, nvidiactl and nvidia-uvm can be opened",
			  open);
}

void doctor_system(struct doctor *d)
{
	check_kernel(d);
	check_container(d);
	check_users(d);
	test_memfd(d);
	test_pidfd(d);
	check_files(d);
	check_memory(d);
	test_nodes(d);
}
