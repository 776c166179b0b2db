/* SPDX-License-Identifier: MIT
 *
 * Owns the daemon's process, its folder in $TMPDIR (or /tmp), and the socket on which the daemon
 * reports that it is ready, by sd_notify(3)'s protocol: so nothing here guesses when it is. The
 * folder holds the log and the sockets.
 */
#include "client/examples/demo/server.h"

#include "client/examples/demo/wait.h"
#include "proto/base/own.h"

#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define START_MS 60000 /* cuInit on a machine with many GPUs takes seconds */
#define STOP_MS 20000

static int make_dir(struct server *s)
{
	const char *tmp = getenv("TMPDIR");

	/* A socket's path has 107 bytes at most. */
	if (!tmp || strlen(tmp) > sizeof(s->dir) - sizeof("/gpushm-demo-XXXXXX"))
		tmp = "/tmp";
	snprintf(s->dir, sizeof(s->dir), "%s/gpushm-demo-XXXXXX", tmp);
	if (!mkdtemp(s->dir)) {
		int r = -errno;

		warn("%s", s->dir);
		s->dir[0] = '\0';
		return r;
	}
	snprintf(s->socket, sizeof(s->socket), "%s/gpushmd.sock", s->dir);
	return 0;
}

static int open_notify(struct server *s, char *path, size_t size)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(path, size, "%s/notify", s->dir);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	s->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->notify < 0 || bind(s->notify, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return 0;
}

/* Runs in the child. The daemon gets a process group of its own, because a Ctrl-C is for the demo,
 * which then stops the daemon. An empty configuration has the default pools of gpushmd.conf(5). */
static void become_daemon(const struct server *s, const char *program, const char *notify)
{
	char log[96];
	int null = open("/dev/null", O_RDONLY), out = -1;

	snprintf(log, sizeof(log), "%s/log", s->dir);
	out = open(log, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (null < 0 || out < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(126);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	setenv("NOTIFY_SOCKET", notify, 1);
	unsetenv("WATCHDOG_USEC");
	unsetenv("LISTEN_FDS");
	wait_undo_in_child();
	execl(program, program, "--no-keeper", "--config", "/dev/null", "--socket", s->socket,
	      (char *)NULL);
	dprintf(2, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

static int is_ready(const struct server *s)
{
	char message[4096];
	ssize_t n = recv(s->notify, message, sizeof(message) - 1, 0);

	if (n < 0)
		return 0;
	message[n] = '\0';
	return strncmp(message, "READY=1", 7) == 0 || strstr(message, "\nREADY=1") != NULL;
}

static int wait_until_ready(const struct server *s)
{
	struct pollfd fds[] = { { .fd = s->notify, .events = POLLIN },
				{ .fd = s->pidfd, .events = POLLIN } };
	int64_t deadline = wait_deadline(START_MS);

	for (;;) {
		int r = wait_fds(fds, 2, deadline);

		if (r < 0)
			return r;
		if (fds[0].revents && is_ready(s))
			return 0;
		if (fds[1].revents)
			return -ECHILD;
	}
}

static int start(struct server *s, const char *program)
{
	char notify[96];
	int r = make_dir(s);

	if (r == 0)
		r = open_notify(s, notify, sizeof(notify));
	if (r < 0)
		return r;

	s->pid = fork();
	if (s->pid == 0)
		become_daemon(s, program, notify);
	if (s->pid < 0) {
		s->pid = 0;
		return -errno;
	}
	s->pidfd = pidfd_open(s->pid, 0);
	return s->pidfd < 0 ? -errno : wait_until_ready(s);
}

int demo_server_start(const char *program, struct server **ret)
{
	struct server *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->pidfd = -1;
	s->notify = -1;
	r = start(s, program);
	if (r < 0) {
		if (r != -EINTR)
			warnx("%s does not get ready: %s", program,
			      r == -ECHILD ? "it ended" : strerror(-r));
		server_show_log(s);
		server_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int server_stop(struct server *s)
{
	struct pollfd gone = { .fd = s->pidfd, .events = POLLIN };
	int status = 0;

	/* Not wait_readable(), so that a second Ctrl-C does not end the clean-up after the first.
	 */
	kill(s->pid, SIGTERM);
	if (poll(&gone, 1, STOP_MS) != 1) {
		warnx("gpushmd does not stop");
		return -ETIMEDOUT;
	}
	waitpid(s->pid, &status, 0);
	s->pid = 0;
	if (status != 0) {
		warnx("gpushmd ended with %s %d", WIFSIGNALED(status) ? "signal" : "status",
		      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		return -EIO;
	}
	return 0;
}

void server_show_log(const struct server *s)
{
	char path[96], text[4096];
	_cleanup_(close_fd) int fd = -1;
	ssize_t n = 0;

	snprintf(path, sizeof(path), "%s/log", s->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && (n = read(fd, text, sizeof(text))) > 0)
		fprintf(stderr, "%.*s", (int)n, text);
}

static void remove_dir(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry = NULL;

	while (dir && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	if (rmdir(path) < 0)
		warn("%s", path);
}

struct server *server_free(struct server *s)
{
	if (!s)
		return NULL;
	if (s->pid > 0) {
		kill(s->pid, SIGKILL);
		waitpid(s->pid, NULL, 0);
	}
	close_fd(&s->pidfd);
	close_fd(&s->notify);
	if (s->dir[0])
		remove_dir(s->dir);
	free(s);
	return NULL;
}
