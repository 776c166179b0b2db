/* SPDX-License-Identifier: MIT
 *
 * A test decides when the next daemon starts, but the keeper starts it 250 ms after a death. So the
 * test stops the keeper (SIGSTOP) before it ends the daemon, and lets it go on with a SIGHUP, by
 * which the keeper waits no longer. What the keeper reports comes in the order in which it
 * happened: a message about the death after all messages of the dead daemon, before all of the next
 * one.
 */
#include "tests/lib/keeper.h"

#include "proto/base/own.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define DEADLINE_MS 60000
#define COUNTED "are kept, by the first letters of their names:"

pid_t keeper_child(pid_t keeper)
{
	char path[64];
	int pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", keeper, keeper);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	if (fscanf(f, "%d", &pid) != 1)
		pid = 0;
	fclose(f);
	return pid;
}

static void hold(struct supervisor *k)
{
	int status = 0;

	ck_assert_int_eq(kill(k->keeper, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(k->keeper, &status, WUNTRACED), k->keeper);
	ck_assert_msg(WIFSTOPPED(status), "the keeper ended with status 0x%x; see %s", status,
		      k->log);
	k->is_held = true;
}

static void let_go(struct supervisor *k)
{
	ck_assert_int_eq(kill(k->keeper, SIGCONT), 0);
	k->is_held = false;
}

void keeper_start_now(struct supervisor *k)
{
	if (!k->never_held)
		ck_assert_int_eq(kill(k->keeper, SIGHUP), 0);
	if (k->is_held)
		let_go(k);
}

static void await_report(struct supervisor *k)
{
	struct timespec deadline;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += DEADLINE_MS / 1000;
	pthread_mutex_lock(&k->lock);
	while (k->restarts < k->deaths)
		ck_assert_msg(pthread_cond_timedwait(&k->changed, &k->lock, &deadline) == 0,
			      "the keeper does not notice the death; see %s", k->log);
	pthread_mutex_unlock(&k->lock);
}

/* After the report the keeper's child is the next daemon, or one after that. */
void keeper_await_start(struct supervisor *k)
{
	await_report(k);
	for (int waited = 0; (k->pid = keeper_child(k->keeper)) == 0; waited++) {
		ck_assert_msg(waited < DEADLINE_MS, "the keeper starts no daemon; see %s", k->log);
		poll(NULL, 0, 1);
	}
}

/* A daemon that died at once may not have been seen at all. */
bool keeper_has_lost(struct supervisor *k)
{
	bool has;

	pthread_mutex_lock(&k->lock);
	has = k->restarts > k->deaths;
	pthread_mutex_unlock(&k->lock);
	has |= keeper_child(k->keeper) != k->pid;
	k->deaths += has;
	return has;
}

/* As for waitpid(): the last number of proc_pid_stat(5). */
static int status_of_zombie(pid_t pid)
{
	char path[64], line[1024] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	ck_assert(f && fgets(line, sizeof(line), f));
	fclose(f);
	return atoi(strrchr(line, ' '));
}

/* The daemon may have died by itself just before, and the next one may run already. */
int keeper_end_daemon(struct supervisor *k, int signal)
{
	struct pollfd end = { -1, POLLIN, 0 };

	if (!k->never_held && !k->is_held)
		hold(k);
	if (keeper_has_lost(k)) {
		k->pid = keeper_child(k->keeper);
		if (k->pid == 0)
			return SIGKILL;
	}
	end.fd = (int)syscall(SYS_pidfd_open, k->pid, 0);
	ck_assert_int_ge(end.fd, 0);
	ck_assert_int_eq(kill(k->pid, signal), 0);
	ck_assert_msg(poll(&end, 1, DEADLINE_MS) == 1, "the daemon does not end; see %s", k->log);
	close(end.fd);
	k->deaths++;
	return k->is_held ? status_of_zombie(k->pid) : signal == SIGKILL ? signal : 0;
}

/* A daemon that made its socket has a lock for it, whose file stays. */
static bool is_own_socket(const struct supervisor *k)
{
	char lock[128];

	snprintf(lock, sizeof(lock), "%s.lock", k->socket);
	return access(lock, F_OK) == 0;
}

void keeper_end(struct supervisor *k)
{
	int status = 0;

	ck_assert_int_eq(kill(k->keeper, SIGTERM), 0);
	if (k->is_held)
		let_go(k);
	ck_assert_int_eq(waitpid(k->keeper, &status, 0), k->keeper);
	ck_assert_msg(status == 0, "the keeper ended with status 0x%x; see %s", status, k->log);
	ck_assert(!is_own_socket(k) || access(k->socket, F_OK) < 0);
	k->keeper = 0;
}

static char *read_log(const struct supervisor *k)
{
	FILE *f = fopen(k->log, "re");
	char *text = NULL;
	size_t size = 0;

	ck_assert(f && getdelim(&text, &size, '\0', f) >= 0);
	fclose(f);
	return text;
}

static size_t parse_count(const struct supervisor *k, char letter)
{
	_cleanup_(free_ptr) char *log = read_log(k);
	const char *line = NULL, *at;
	char key[] = { ' ', letter, ' ', '\0' };
	size_t len;

	for (at = log; (at = strstr(at, COUNTED)); at++)
		line = at + strlen(COUNTED);
	ck_assert_ptr_nonnull(line);
	len = strcspn(line, "\n");
	at = memmem(line, len, key, strlen(key));
	return at ? strtoul(at + strlen(key), NULL, 10) : 0;
}

/* A keeper that is stopped must run for the answer; then it has 250 ms until it starts a daemon. */
size_t keeper_count(struct supervisor *k, char letter)
{
	unsigned before = supervisor_log_count(k, COUNTED);
	bool was_held = k->is_held;

	ck_assert_int_eq(kill(k->keeper, SIGUSR1), 0);
	if (was_held)
		let_go(k);
	for (int waited = 0; supervisor_log_count(k, COUNTED) == before; waited++) {
		ck_assert_msg(waited < DEADLINE_MS, "the keeper does not answer; see %s", k->log);
		poll(NULL, 0, 1);
	}
	if (was_held)
		hold(k);
	return parse_count(k, letter);
}
