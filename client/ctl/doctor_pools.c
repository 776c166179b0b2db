/* SPDX-License-Identifier: MIT
 *
 * The doctor's trial of each pool: a private buffer of 4 KiB, filled and published by this process,
 * and read by another one, `gpushmctl get`, because that is what pools are for. The buffer
 * is transient and goes with this process's lease, whatever happens in between.
 */
#include "client/ctl/doctor.h"
#include "client/ctl/entry.h"
#include "client/ctl/transfer.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#define TRIAL_BYTES 4096

extern char **environ;

/* No byte is the same in two trials: what an earlier one left behind is not taken for ours. */
static void make_pattern(unsigned char *buf, uint64_t id)
{
	uint64_t x = id * 0x9e3779b97f4a7c15u + 1;

	for (size_t i = 0; i < TRIAL_BYTES; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		buf[i] = (unsigned char)(x >> 56);
	}
}

/* Starts `gpushmctl get --raw NAME -` with its output in a pipe. 0 or -errno. */
static int spawn_reader(const struct doctor *d, char *name, int *ret_fd, pid_t *ret_pid)
{
	char get[] = "get", raw[] = "--raw", output[] = "-", self[] = "gpushmctl";
	char socket[] = "--socket", *at = d->ctl->socket ? strdup(d->ctl->socket) : NULL;
	char *argv[] = { self, get, raw, name, output, at ? socket : NULL, at, NULL };
	posix_spawn_file_actions_t actions;
	_cleanup_(close_fd) int in = -1, out = -1;
	int fds[2], r;

	if (pipe2(fds, O_CLOEXEC) < 0) {
		r = -errno;
		free(at);
		return r;
	}
	in = fds[0];
	out = fds[1];
	posix_spawn_file_actions_init(&actions);
	r = -posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (r == 0)
		r = -posix_spawn(ret_pid, "/proc/self/exe", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	free(at);
	if (r == 0)
		*ret_fd = take_fd(&in);
	return r;
}

static void judge(struct doctor *d, const char *pool, const char *kind, const unsigned char *wrote,
		  const unsigned char *got, ssize_t n, int status)
{
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		doctor_say(d, FINDING_FAIL, pool, "its message is above, on standard error",
			   "%s: another process could not read a buffer (%s %d)", kind,
			   WIFSIGNALED(status) ? "signal" : "exit code",
			   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	else if (n != TRIAL_BYTES || memcmp(wrote, got, TRIAL_BYTES))
		doctor_say(d, FINDING_FAIL, pool, "do not trust this pool; please report it",
			   "%s: another process read something else than was written", kind);
	else
		doctor_say(d, FINDING_OK, pool, NULL,
			   "%s: written here, read by another process, the same", kind);
}

/* The buffer is published: another process reads it. */
static void read_back(struct doctor *d, const char *pool, const char *kind, char *name,
		      const unsigned char *wrote)
{
	unsigned char got[TRIAL_BYTES];
	_cleanup_(close_fd) int fd = -1;
	int status = 0, r;
	ssize_t n;
	pid_t pid;

	fflush(stdout);
	r = spawn_reader(d, name, &fd, &pid);
	if (r < 0) {
		doctor_say(d, FINDING_FAIL, pool, NULL, "can't start a second process: %s",
			   strerror(-r));
		return;
	}
	n = transfer_read(fd, got, sizeof(got));
	close_fd(&fd);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	judge(d, pool, kind, wrote, got, n, status);
}

static int make_trial(struct doctor *d, const char *pool, const char *name, unsigned char *pattern,
		      struct gpushm_buffer **ret)
{
	struct gpushm_options o = {
		.struct_size = sizeof(o), .pool = pool, .mode = 0600, .flags = GPUSHM_TRANSIENT
	};
	int64_t shape[] = { TRIAL_BYTES };
	struct gpushm_array_spec spec = { .name = "", .ndim = 1, .shape = shape };
	int r = gpushm_dtype_parse("uint8", &spec.dtype);

	if (r == 0)
		r = gpushm_create_arrays(d->ctl->connection, name, &spec, 1, &o, ret);
	if (r < 0)
		return r;
	make_pattern(pattern, gpushm_buffer_id(*ret));
	r = gpushm_write(*ret, 0, pattern, TRIAL_BYTES);
	return r < 0 ? r : gpushm_publish(*ret, GPUSHM_SEALED);
}

static void try_pool(struct doctor *d, const struct gpushm_pool *p)
{
	unsigned char pattern[TRIAL_BYTES];
	struct gpushm_buffer *b = NULL;
	char name[64];
	int r;

	snprintf(name, sizeof(name), "~/gpushmctl-doctor-%d", getpid());
	r = make_trial(d, p->name, name, pattern, &b);
	if (r < 0)
		doctor_say(d, r == -ENOSPC || r == -EDQUOT ? FINDING_WARN : FINDING_FAIL, p->name,
			   NULL, "%s: %s", entry_kind(p->kind), gpushm_error());
	else
		read_back(d, p->name, entry_kind(p->kind), name, pattern);
	r = gpushm_close(b);
	if (r < 0)
		doctor_say(d, FINDING_FAIL, p->name, NULL, "close: %s", gpushm_error());
}

void doctor_pools(struct doctor *d)
{
	_cleanup_(free_ptr) struct gpushm_pool *pools = NULL;
	size_t n = 0;
	int r = gpushm_pools(d->ctl->connection, &pools, &n);

	if (r < 0)
		doctor_say(d, FINDING_FAIL, "pools", NULL, "%s", gpushm_error());
	for (size_t i = 0; i < n; i++) {
		if (pools[i].failed)
			doctor_say(d, FINDING_FAIL, pools[i].name, NULL, "%s: %s",
				   entry_kind(pools[i].kind), pools[i].why);
		else if (!pools[i].allowed)
			doctor_say(
				d, FINDING_WARN, pools[i].name,
				"ask for allow-users or allow-groups of the pool in gpushmd.conf",
				"%s: you may not create in it", entry_kind(pools[i].kind));
		else
			try_pool(d, &pools[i]);
	}
}
