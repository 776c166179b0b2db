/* SPDX-License-Identifier: MIT
 *
 * Starts roles. A role reads and writes lines on its standard input and output, so that a test and
 * its helper processes wait for each other without sleeping.
 */
#include "tests/lib/role.h"

#include "proto/base/own.h"

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ARGS_MAX 12

void role_dispatch(int argc, char **argv, const struct role *roles, size_t n)
{
	if (argc < 3 || strcmp(argv[1], "--role") != 0)
		return;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < n; i++)
		if (strcmp(argv[2], roles[i].name) == 0)
			exit(roles[i].run(argv + 3));
	exit(127);
}

/* fork() with other namespaces for the child */
static pid_t fork_with(int flags)
{
	return flags ? (pid_t)syscall(SYS_clone, SIGCHLD | flags, 0, 0, 0, 0) : fork();
}

void role_start_in(struct role_process *p, const char *name, const char *const *args, int flags,
		   void (*enter)(const void *arg), const void *arg)
{
	char self[PATH_MAX] = { 0 };
	const char *argv[ARGS_MAX + 4] = { self, "--role", name };
	int in[2], out[2];

	ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	for (int i = 0; i < ARGS_MAX && args && args[i]; i++)
		argv[3 + i] = args[i];
	fflush(NULL);
	p->pid = fork_with(flags);
	ck_assert_int_ge(p->pid, 0);
	if (p->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		if (enter)
			enter(arg);
		execv(self, (char **)argv);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	p->to = in[1];
	p->from = out[0];
}

void role_start(struct role_process *p, const char *name, const char *const *args)
{
	role_start_in(p, name, args, 0, NULL, NULL);
}

void role_read_line(struct role_process *p, char *line, size_t size)
{
	size_t n = 0;

	while (n + 1 < size) {
		ck_assert_msg(read(p->from, &line[n], 1) == 1, "a helper ended without a word");
		if (line[n] == '\n')
			break;
		n++;
	}
	line[n] = '\0';
}

void role_write_line(struct role_process *p, const char *line)
{
	/* One write: a helper that waits for one byte may have ended before a second one. */
	ck_assert_int_eq(dprintf(p->to, "%s\n", line), (int)strlen(line) + 1);
}

int role_wait(struct role_process *p)
{
	int status = 0;

	close_fd(&p->to);
	ck_assert_int_eq(waitpid(p->pid, &status, 0), p->pid);
	close_fd(&p->from);
	return status;
}

void role_finish(struct role_process *p)
{
	int status = role_wait(p);

	ck_assert_msg(WIFEXITED(status), "a helper died of signal %d", WTERMSIG(status));
	ck_assert_msg(WEXITSTATUS(status) == 0, "a helper ended with %d", WEXITSTATUS(status));
}
