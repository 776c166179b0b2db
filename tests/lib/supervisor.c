/* SPDX-License-Identifier: MIT
 *
 * Stands in for systemd: socket activation, READY=1, FDSTORE=1 and FDSTOREREMOVE=1 as in
 * sd_notify(3) and sd_listen_fds(3). It does not know what the stored fds are.
 */
#include "tests/lib/supervisor.h"

#include "proto/base/own.h"
#include "tests/lib/daemon.h"
#include "tests/lib/keeper.h"

#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

static int bind_at(const char *path, int type)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static void value_of(const char *text, const char *key, char *value, size_t size)
{
	const char *at = strstr(text, key);

	snprintf(value, size, "%.*s", at ? (int)strcspn(at + strlen(key), "\n") : 0,
		 at ? at + strlen(key) : "");
}

static void forget(struct supervisor *k, const char *name)
{
	size_t left = 0;

	for (size_t i = 0; i < k->n_kept; i++) {
		if (strcmp(k->kept[i].name, name) == 0)
			close(k->kept[i].fd);
		else
			k->kept[left++] = k->kept[i];
	}
	k->n_kept = left;
}

void supervisor_keep(struct supervisor *k, const char *name, int fd)
{
	k->kept = realloc(k->kept, (k->n_kept + 1) * sizeof(*k->kept));
	snprintf(k->kept[k->n_kept].name, sizeof(k->kept->name), "%s", name);
	k->kept[k->n_kept++].fd = fd;
}

static void on_message(struct supervisor *k, const char *text, int *fd)
{
	char name[64];

	value_of(text, "FDNAME=", name, sizeof(name));
	pthread_mutex_lock(&k->lock);
	if (k->is_cut && !strstr(text, "MARK=1") && !strstr(text, "QUIT=1")) {
		pthread_mutex_unlock(&k->lock);
		return;
	}
	if (strstr(text, "FDSTOREREMOVE=1")) {
		forget(k, name);
		k->is_cut = k->last_forgotten && name[0] == k->last_forgotten;
	} else if (strstr(text, "FDSTORE=1") && *fd >= 0)
		supervisor_keep(k, name, take_fd(fd));
	if (strstr(text, "READY=1"))
		k->ready++;
	if (strstr(text, KEEPER_RESTARTS)) {
		k->ready = 0;
		k->restarts++;
	} else if (strstr(text, "RELOADING=1")) {
		k->reloading++;
	}
	if (strstr(text, "MARK=1"))
		k->marks++;
	if (strstr(text, "QUIT=1"))
		k->done = true;
	pthread_cond_broadcast(&k->changed);
	pthread_mutex_unlock(&k->lock);
}

static void *read_notifications(void *arg)
{
	struct supervisor *k = arg;

	while (!k->done) {
		char text[4096], control[CMSG_SPACE(sizeof(int))];
		struct iovec io = { text, sizeof(text) - 1 };
		struct msghdr m = { .msg_iov = &io,
				    .msg_iovlen = 1,
				    .msg_control = control,
				    .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(k->notify, &m, MSG_CMSG_CLOEXEC);
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		_cleanup_(close_fd) int fd = -1;

		if (n < 0)
			continue;
		text[n] = '\0';
		if (h && h->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(h), sizeof(fd));
		on_message(k, text, &fd);
	}
	return NULL;
}

static bool is_keeper_tested(void)
{
	const char *text = getenv("SUPERVISOR");

	return text && strcmp(text, "keeper") == 0;
}

bool supervisor_skips(const char *test)
{
	if (is_keeper_tested())
		printf("skipped: %s: the keeper does not show what it keeps\n", test);
	return is_keeper_tested();
}

static void listen_at_socket(struct supervisor *k)
{
	k->listening = bind_at(k->socket, SOCK_SEQPACKET);
	ck_assert_int_eq(listen(k->listening, 128), 0);
}

void supervisor_init(struct supervisor *k, const char *config)
{
	char notify[96];
	FILE *f;

	*k = (struct supervisor){ .program = "gpushmd", .listening = -1 };
	k->with_keeper = is_keeper_tested();
	strcpy(k->folder, "/tmp/gpushm-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(k->folder));
	snprintf(k->socket, sizeof(k->socket), "%s/gpushmd.sock", k->folder);
	snprintf(k->log, sizeof(k->log), "%s/log", k->folder);
	snprintf(k->config, sizeof(k->config), "%s/conf", k->folder);
	snprintf(notify, sizeof(notify), "%s/notify", k->folder);
	f = fopen(k->config, "we");
	ck_assert(f && fputs(config, f) >= 0 && fclose(f) == 0);
	if (!k->with_keeper)
		listen_at_socket(k);
	k->notify = bind_at(notify, SOCK_DGRAM);
	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->changed, NULL);
	pthread_create(&k->thread, NULL, read_notifications, k);
}

/* The daemon gets its fds as 3, 4, ...; they are moved there from above that range. */
static void place_fds(struct supervisor *k, char *names, size_t size)
{
	int base = 3 + (int)k->n_kept + 64;
	size_t len;

	for (size_t i = 0; i < k->n_kept; i++)
		k->kept[i].fd = fcntl(k->kept[i].fd, F_DUPFD, base);
	k->listening = fcntl(k->listening, F_DUPFD, base);
	dup2(k->listening, 3);
	len = (size_t)snprintf(names, size, "gpushmd");
	for (size_t i = 0; i < k->n_kept; i++) {
		dup2(k->kept[i].fd, 4 + (int)i);
		close(k->kept[i].fd);
		len += (size_t)snprintf(names + len, size - len, ":%s", k->kept[i].name);
	}
	close(k->listening);
}

static void become_daemon(struct supervisor *k)
{
	static char names[128 << 10];
	char text[128], program[256];
	int log = open(k->log, O_WRONLY | O_CREAT | O_APPEND, 0600);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(log, STDERR_FILENO);
	close(log);
	if (k->isolated)
		daemon_enter_namespace();
	snprintf(program, sizeof(program), "%s",
		 k->program[0] == '/' ? k->program : build_path(k->program));
	snprintf(text, sizeof(text), "%s/notify", k->folder);
	setenv("NOTIFY_SOCKET", text, 1);
	unsetenv("FDSTORE");
	if (k->with_keeper)
		unsetenv("GPUSHM_FDSTORE");
	else
		setenv("GPUSHM_FDSTORE", "1", 1);
	/* The daemon ends with memory that the next one takes over, a mempool for example: that is
	 * not a leak. */
	unsetenv("FAKECUDA_STRICT");
	if (k->listening >= 0) {
		place_fds(k, names, sizeof(names));
		snprintf(text, sizeof(text), "%d", getpid());
		setenv("LISTEN_PID", text, 1);
		snprintf(text, sizeof(text), "%zu", k->n_kept + 1);
		setenv("LISTEN_FDS", text, 1);
		setenv("LISTEN_FDNAMES", names, 1);
	}
	execl(program, "gpushmd", "--config", k->config, "--socket", k->socket, (char *)NULL);
	perror(program);
	_exit(127);
}

static void notify_ourselves(struct supervisor *k, const char *text)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/notify", k->folder);
	ck_assert_int_gt(sendto(fd, text, strlen(text), 0, (struct sockaddr *)&a, sizeof(a)), 0);
	close(fd);
}

/* Sends an own message after the daemon's: when it is read, all before it are read, too. */
static void drain(struct supervisor *k)
{
	struct timespec deadline;
	unsigned mark;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += 60;
	pthread_mutex_lock(&k->lock);
	mark = k->marks;
	pthread_mutex_unlock(&k->lock);
	notify_ourselves(k, "MARK=1");
	pthread_mutex_lock(&k->lock);
	while (k->marks == mark)
		ck_assert_int_eq(pthread_cond_timedwait(&k->changed, &k->lock, &deadline), 0);
	pthread_mutex_unlock(&k->lock);
}

static pid_t start_program(struct supervisor *k)
{
	pid_t pid;

	pthread_mutex_lock(&k->lock);
	k->ready = 0;
	k->is_cut = false;
	/* fork() with a new PID namespace for the child */
	pid = (pid_t)syscall(SYS_clone, SIGCHLD | (k->isolated ? CLONE_NEWPID : 0), 0, 0, 0, 0);
	if (pid == 0)
		become_daemon(k);
	pthread_mutex_unlock(&k->lock);
	ck_assert_int_gt(pid, 0);
	return pid;
}

/* The keeper gets what is kept so far with the listening socket, as from a systemd without an fd
 * store; without kept fds its daemon makes a socket itself. */
static void spawn_keeper(struct supervisor *k)
{
	if (k->n_kept > 0)
		listen_at_socket(k);
	k->keeper = start_program(k);
	for (size_t i = 0; i < k->n_kept; i++)
		close(k->kept[i].fd);
	k->n_kept = 0;
	close_fd(&k->listening);
}

/* Like systemd, reads all messages of the last daemon before it starts the next one. */
void supervisor_spawn(struct supervisor *k)
{
	if (!k->with_keeper) {
		drain(k);
		k->pid = start_program(k);
		return;
	}
	if (k->keeper == 0)
		spawn_keeper(k);
	else
		keeper_start_now(k);
	keeper_await_start(k);
}

bool supervisor_has_died(struct supervisor *k)
{
	int status = 0;

	if (k->with_keeper)
		return keeper_has_lost(k);
	if (waitpid(k->pid, &status, WNOHANG) == 0)
		return false;
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "the daemon ended with status 0x%x; see %s", status, k->log);
	return true;
}

static bool is_ready_within(struct supervisor *k, int ms)
{
	struct timespec deadline;
	bool ready;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_nsec += ms * 1000000L;
	deadline.tv_sec += deadline.tv_nsec / 1000000000;
	deadline.tv_nsec %= 1000000000;
	pthread_mutex_lock(&k->lock);
	while (k->ready == 0 && pthread_cond_timedwait(&k->changed, &k->lock, &deadline) == 0)
		continue;
	ready = k->ready > 0;
	pthread_mutex_unlock(&k->lock);
	return ready;
}

static bool has_ended(const struct supervisor *k)
{
	siginfo_t info = { 0 };
	pid_t pid = k->with_keeper ? k->keeper : k->pid;

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid != 0;
}

void supervisor_await(struct supervisor *k)
{
	for (int waited = 0; !is_ready_within(k, 100); waited += 100) {
		ck_assert_msg(waited < 60000, "the daemon does not get ready; see %s", k->log);
		if (!has_ended(k))
			continue;
		drain(k);
		ck_assert_msg(is_ready_within(k, 0),
			      "the daemon has ended before it was ready; see %s", k->log);
	}
}

void supervisor_start(struct supervisor *k)
{
	supervisor_spawn(k);
	supervisor_await(k);
}

void supervisor_end(struct supervisor *k, int signal)
{
	int status = 0;

	if (k->with_keeper) {
		status = keeper_end_daemon(k, signal);
	} else {
		ck_assert_int_eq(kill(k->pid, signal), 0);
		ck_assert_int_eq(waitpid(k->pid, &status, 0), k->pid);
	}
	if (signal == SIGKILL)
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	else
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
			      "the daemon ended with status 0x%x; see %s", status, k->log);
	k->pid = 0;
}

void supervisor_done(struct supervisor *k)
{
	static const char *const names[] = { "gpushmd.sock", "gpushmd.sock.lock", "notify", "log",
					     "conf" };
	char path[128];

	if (k->keeper)
		keeper_end(k);
	notify_ourselves(k, "QUIT=1");
	pthread_join(k->thread, NULL);
	for (size_t i = 0; i < k->n_kept; i++)
		close(k->kept[i].fd);
	free(k->kept);
	close_fd(&k->listening);
	close(k->notify);
	for (size_t i = 0; i < array_size(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", k->folder, names[i]);
		unlink(path);
	}
	rmdir(k->folder);
}

size_t supervisor_count(struct supervisor *k, char letter)
{
	size_t n = 0;

	if (k->with_keeper)
		return keeper_count(k, letter);
	drain(k);
	pthread_mutex_lock(&k->lock);
	for (size_t i = 0; i < k->n_kept; i++)
		n += k->kept[i].name[0] == letter;
	pthread_mutex_unlock(&k->lock);
	return n;
}

unsigned long long supervisor_generation(struct supervisor *k)
{
	unsigned long long best = 0, n;

	pthread_mutex_lock(&k->lock);
	for (size_t i = 0; i < k->n_kept; i++) {
		n = k->kept[i].name[0] == 'j' ? strtoull(k->kept[i].name + 1, NULL, 36) : 0;
		best = n > best ? n : best;
	}
	pthread_mutex_unlock(&k->lock);
	return best;
}

unsigned supervisor_log_count(const struct supervisor *k, const char *text)
{
	_cleanup_(free_ptr) char *log = NULL;
	FILE *f = fopen(k->log, "re");
	unsigned n = 0;
	size_t size = 0;

	ck_assert(f && getdelim(&log, &size, '\0', f) >= 0);
	fclose(f);
	for (const char *at = log; (at = strstr(at, text)); at++)
		n++;
	return n;
}
