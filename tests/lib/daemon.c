/* SPDX-License-Identifier: MIT
 *
 * Starts and ends a real gpushmd. Nothing here sleeps to be right: the daemon sends a message when
 * it is ready, and waitpid() reports its end. Each wait has a deadline of one minute, so that a
 * test fails instead of hanging.
 */
#include "tests/lib/daemon.h"

#include "proto/base/own.h"
#include "tests/lib/container.h"
#include "tests/lib/run.h"
#include "tests/lib/userns.h"

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define DEADLINE_MS 60000

/* BUILD/tests/FOLDER */
static bool in_tests(const char *folder)
{
	static const char tests[] = "/tests";
	const char *room = strrchr(folder, '/');
	size_t n = strlen(tests);

	return room - folder >= (ptrdiff_t)n && strncmp(room - n, tests, n) == 0;
}

const char *build_path(const char *name)
{
	static char path[PATH_MAX];
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	ck_assert(n > 0);
	self[n] = '\0';
	/* BUILD/tests/FOLDER/test_X, or BUILD/X */
	*strrchr(self, '/') = '\0';
	if (in_tests(self))
		for (int up = 0; up < 2; up++)
			*strrchr(self, '/') = '\0';
	ck_assert_int_lt(snprintf(path, sizeof(path), "%s/%s", self, name), (int)sizeof(path));
	return path;
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
}

static int bind_notify(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* Its standard error is the log that a failed test shows. */
static void cannot(const char *what)
{
	perror(what);
	_exit(126);
}

/* A PID namespace needs its own /proc. */
static bool enter_namespace(void)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("proc", "/proc", "proc", 0, NULL) == 0;
}

void daemon_enter_namespace(void)
{
	if (!enter_namespace())
		cannot("a namespace with its own /proc");
}

/* From now on getsockopt(SO_PEERPIDFD) fails as on a kernel before 6.5, which does not have it. */
static void hide_peer_pidfd(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, DAEMON_SO_PEERPIDFD, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { array_size(code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		cannot("a filter of system calls");
}

/* Tries it: in a chroot, where / is no mount, root can make a namespace, but not a private /proc.
 */
bool daemon_may_be_isolated(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD | CLONE_NEWPID, 0, 0, 0, 0);
	int status = 0;

	if (pid == 0)
		_exit(!enter_namespace());
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		puts("skipped: no PID namespace with a /proc of its own can be made here");
	return pid > 0 && status == 0;
}

static void become_daemon(const struct daemon *d, const struct daemon_options *o)
{
	struct rlimit limit = { o->max_fds, o->max_fds };
	_cleanup_(free_ptr) char *program = strdup(build_path(o->program ? o->program : "gpushmd"));
	char notify[96];
	int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND, 0600);

	/* The daemon dies with its test. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(log, STDERR_FILENO);
	close(log);
	if (o->isolated)
		daemon_enter_namespace();
	if (o->container)
		container_enter(o->container);
	if (o->userns && !userns_enter(o->userns))
		cannot("a user namespace");
	if (o->no_peer_pidfd)
		hide_peer_pidfd();
	snprintf(notify, sizeof(notify), "%s/notify", d->folder);
	setenv("NOTIFY_SOCKET", notify, 1);
	unsetenv("LISTEN_FDS");
	if (o->max_fds && setrlimit(RLIMIT_NOFILE, &limit) < 0)
		cannot("RLIMIT_NOFILE");
	if (o->ordinary_limits && (prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE) < 0 ||
				   prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN) < 0))
		cannot("fewer capabilities");
	if (o->no_stdin)
		close(STDIN_FILENO);
	execl(o->copied ? d->copy : program, "gpushmd", "--no-keeper", "--config", d->config,
	      "--socket", d->socket, o->extra, (char *)NULL);
	cannot(program);
}

static void spawn(struct daemon *d, const struct daemon_options *o)
{
	int flags = (o->isolated ? CLONE_NEWPID : 0) | (o->container ? container_flags() : 0);

	/* fork() with new namespaces for the child */
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD | flags, 0, 0, 0, 0);

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		become_daemon(d, o);
	d->pid = pid;
	daemon_await(d, "READY=1");
}

void daemon_start_with(struct daemon *d, const char *config, const struct daemon_options *o)
{
	char notify[96];

	*d = (struct daemon){ .notify = -1 };
	strcpy(d->folder, "/tmp/gpushm-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(d->folder));
	ck_assert_int_eq(chmod(d->folder, 0755), 0);
	snprintf(d->socket, sizeof(d->socket), "%s/gpushmd.sock", d->folder);
	snprintf(d->config, sizeof(d->config), "%s/gpushmd.conf", d->folder);
	snprintf(d->log, sizeof(d->log), "%s/log", d->folder);
	snprintf(notify, sizeof(notify), "%s/notify", d->folder);
	write_file(d->config, config);
	d->notify = bind_notify(notify);
	if (o->container) {
		ck_assert_int_eq(chown(d->folder, o->container->uid, o->container->uid), 0);
		ck_assert_int_eq(chmod(notify, 0666) | chmod(d->config, 0644), 0);
	}
	snprintf(d->copy, sizeof(d->copy), "%s/gpushmd", d->folder);
	if (o->copied)
		ck_assert_int_eq(run_program("/bin/cp",
					     (const char *[]){ build_path("gpushmd"), d->copy,
							       NULL },
					     notify, sizeof(notify)),
				 0);
	spawn(d, o);
}

void daemon_start(struct daemon *d, const char *config, const char *extra)
{
	daemon_start_with(d, config, &(struct daemon_options){ .extra = extra });
}

void daemon_write_config(const struct daemon *d, const char *config)
{
	write_file(d->config, config);
}

char *daemon_log(const struct daemon *d)
{
	FILE *f = fopen(d->log, "re");
	char *text = NULL;
	size_t size = 0;
	ssize_t n = f ? getdelim(&text, &size, '\0', f) : -1;

	if (f)
		fclose(f);
	if (n >= 0)
		return text;
	free(text);
	return strdup("");
}

unsigned daemon_log_count(const struct daemon *d, const char *text)
{
	_cleanup_(free_ptr) char *log = daemon_log(d);
	unsigned n = 0;

	for (const char *at = log; (at = strstr(at, text)); at++)
		n++;
	return n;
}

void daemon_reload(const struct daemon *d, const char *text)
{
	unsigned before = daemon_log_count(d, text);

	ck_assert_int_eq(kill(d->pid, SIGHUP), 0);
	for (int waited = 0; daemon_log_count(d, text) == before; waited += 10) {
		ck_assert_int_lt(waited, DEADLINE_MS);
		poll(NULL, 0, 10);
	}
}

static void fail_with_log(const struct daemon *d, const char *what)
{
	_cleanup_(free_ptr) char *log = daemon_log(d);

	ck_abort_msg("%s; the daemon's log:\n%s", what, log);
}

static void fail_with_status(struct daemon *d)
{
	char what[64];
	int status = daemon_wait(d);

	snprintf(what, sizeof(what), "the daemon has ended with %s %d",
		 WIFEXITED(status) ? "status" : "signal",
		 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	fail_with_log(d, what);
}

/* Waits for a message; fails if the daemon ends without one. */
static void await_message(struct daemon *d)
{
	_cleanup_(close_fd) int pidfd = (int)syscall(SYS_pidfd_open, d->pid, 0);
	struct pollfd p[] = { { .fd = d->notify, .events = POLLIN },
			      { .fd = pidfd, .events = POLLIN } };

	ck_assert_int_ge(pidfd, 0);
	if (poll(p, array_size(p), DEADLINE_MS) < 1)
		fail_with_log(d, "the daemon did not say what was waited for");
	/* Its last message may have come after poll() looked for one. */
	if (!p[0].revents && poll(p, 1, 0) < 1)
		fail_with_status(d);
}

void daemon_await(struct daemon *d, const char *text)
{
	char message[4096];

	for (;;) {
		ssize_t n;

		await_message(d);
		n = recv(d->notify, message, sizeof(message) - 1, 0);
		ck_assert_int_gt(n, 0);
		message[n] = '\0';
		if (strstr(message, text))
			return;
	}
}

void daemon_forget_notifications(struct daemon *d)
{
	char message[4096];

	while (recv(d->notify, message, sizeof(message), MSG_DONTWAIT) >= 0)
		continue;
}

int daemon_wait(struct daemon *d)
{
	int status = 0;

	ck_assert_int_eq(waitpid(d->pid, &status, 0), d->pid);
	d->pid = 0;
	return status;
}

static void remove_folder(struct daemon *d)
{
	static const char *const names[] = { "gpushmd.sock", "gpushmd.sock.lock",
					     "gpushmd.conf", "log",
					     "notify",	     "gpushmd" };
	char path[PATH_MAX];

	for (size_t i = 0; i < array_size(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", d->folder, names[i]);
		unlink(path);
	}
	close_fd(&d->notify);
	ck_assert_int_eq(rmdir(d->folder), 0);
}

void daemon_stop(struct daemon *d)
{
	int status;

	ck_assert_int_eq(kill(d->pid, SIGTERM), 0);
	status = daemon_wait(d);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail_with_log(d, "the daemon did not end well");
	remove_folder(d);
}

void daemon_crash(struct daemon *d)
{
	int status;

	ck_assert_int_eq(kill(d->pid, SIGKILL), 0);
	status = daemon_wait(d);
	ck_assert(WIFSIGNALED(status));
}

void daemon_restart(struct daemon *d)
{
	spawn(d, &(struct daemon_options){ 0 });
}

void daemon_kill(struct daemon *d)
{
	daemon_crash(d);
	remove_folder(d);
}
