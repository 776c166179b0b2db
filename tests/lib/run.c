/* SPDX-License-Identifier: MIT
 *
 * Runs a program to its end and keeps its output in memory. The program gets no input, and it is
 * killed with the test.
 */
#include "tests/lib/run.h"

#include "proto/base/own.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define ARGS_MAX 12

static void become(const char *path, const char *const *args, int out)
{
	const char *argv[ARGS_MAX + 2] = { path };
	int null = open("/dev/null", O_RDWR);

	for (int i = 0; i < ARGS_MAX && args[i]; i++)
		argv[i + 1] = args[i];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(null, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	execv(path, (char **)argv);
	_exit(127);
}

static void read_all(int fd, char *text, size_t size)
{
	char rest[512];
	size_t len = 0;
	ssize_t n;

	do {
		char *to = len + 1 < size ? text + len : rest;

		n = read(fd, to, to == rest ? sizeof(rest) : size - 1 - len);
		ck_assert_int_ge(n, 0);
		len += to == rest ? 0 : (size_t)n;
	} while (n > 0);
	text[len] = '\0';
}

int run_program(const char *path, const char *const *args, char *text, size_t size)
{
	int out[2], status = 0;
	pid_t pid;

	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		become(path, args, out[1]);
	close(out[1]);
	read_all(out[0], text, size);
	close(out[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
