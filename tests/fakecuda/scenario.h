/* SPDX-License-Identifier: MIT
 *
 * The frame of the fake driver's tests. A scenario is a function that runs in a process of its own
 * (fork and exec of the test program, with the scenario's name), so that each has a fresh driver
 * with its own environment and may end by abort(); the Check test of the same name looks at how it
 * ended. A scenario may start further processes, each another function of the program's table.
 */
#pragma once

#include "proto/base/own.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <cuda.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MiB (1ull << 20)
#define PEER 3 /* a started process's socket to who started it */

struct scenario {
	const char *name;
	void (*run)(void);
};

/* How a scenario must end: exit status 0 unless told, and what stderr must say. */
struct ending {
	const char *env; /* "NAME=value NAME=value" */
	int status, signal;
	const char *says;
};

extern const struct scenario scenarios[]; /* of the program; NULL at the end */

#define SCENARIO(name, ...)                                             \
	static void name##_run(void);                                   \
	START_TEST(name)                                                \
	{                                                               \
		scenario_expect(#name, (struct ending){ __VA_ARGS__ }); \
	}                                                               \
	END_TEST                                                        \
	static void name##_run(void)

#define SCENARIO_ENTRY(name) { #name, name##_run },
#define SCENARIO_ADD(name) tcase_add_test(tests, name);

/* ---- inside a scenario ---- */

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
/* A driver function by its name in <cuda.h>, whatever version that means. */
#define cu(name) ((__typeof__(&name))scenario_symbol(TEXT(name)))
#define fake(name) ((name##_fn *)scenario_symbol(#name))

#define MUST(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			_exit(3);                                                       \
		}                                                                       \
	} while (0)
#define GIVES(expected, call)                                                             \
	do {                                                                              \
		CUresult result_ = (call);                                                \
		if (result_ != (expected)) {                                              \
			fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, \
				result_);                                                 \
			_exit(3);                                                         \
		}                                                                         \
	} while (0)
#define OK(call) GIVES(CUDA_SUCCESS, call)
#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)

static inline const char *scenario_library(void)
{
	static char path[PATH_MAX + 64];
	const char *given = getenv("FAKECUDA_LIB");
	ssize_t n;

	if (given)
		return given;
	n = readlink("/proc/self/exe", path, PATH_MAX);
	path[n > 0 ? n : 0] = '\0';
	for (int up = 0; up < 3 && strrchr(path, '/'); up++)
		*strrchr(path, '/') = '\0';
	strcat(path, "/fakecuda/libcuda.so.1");
	return path;
}

static inline void *scenario_symbol(const char *name)
{
	static void *library;
	void *symbol;

	if (!library)
		library = dlopen(scenario_library(), RTLD_NOW);
	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	MUST(library);
	symbol = dlsym(library, name);
	if (!symbol)
		fprintf(stderr, "no %s\n", name);
	MUST(symbol);
	return symbol;
}

static inline int count_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

/* Starts another function of the table in a new process, at the other end of the socket. */
static inline pid_t scenario_start(const char *name, int *ret_socket)
{
	int pair[2];
	pid_t pid;

	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		dup2(pair[1], PEER);
		if (pair[1] == PEER)
			fcntl(PEER, F_SETFD, 0);
		execl("/proc/self/exe", "scenario", name, NULL);
		_exit(127);
	}
	close(pair[1]);
	*ret_socket = pair[0];
	return pid;
}

static inline void scenario_finish(pid_t pid)
{
	int status;

	MUST(waitpid(pid, &status, 0) == pid);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline void scenario_kill(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	MUST(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

/* Bytes, and an fd unless it is -1. */
static inline void tell(int socket, const void *data, size_t size, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec io = { (void *)data, size };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };

	if (fd >= 0) {
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		*CMSG_FIRSTHDR(&m) =
			(struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
	}
	MUST(sendmsg(socket, &m, MSG_NOSIGNAL) == (ssize_t)size);
}

/* The fd that came with it, or -1. */
static inline int hear(int socket, void *data, size_t size)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec io = { data, size };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	int fd = -1;

	MUST(recvmsg(socket, &m, MSG_CMSG_CLOEXEC) == (ssize_t)size);
	if (CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static inline void go(int socket)
{
	tell(socket, "g", 1, -1);
}

static inline void await(int socket)
{
	char c;

	MUST(hear(socket, &c, 1) == -1);
}

/* ---- the Check side ---- */

static inline void put_environment(const char *env)
{
	char copy[512], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", env ? env : "");
	for (char *one = strtok_r(copy, " ", &save); one; one = strtok_r(NULL, " ", &save)) {
		char *value = strchr(one, '=');

		*value = '\0';
		setenv(one, value + 1, 1);
	}
}

static inline void become(const char *name, const char *env, int errors)
{
	struct rlimit none = { 0, 0 };

	put_environment(env);
	setrlimit(RLIMIT_CORE, &none);
	dup2(errors, STDERR_FILENO);
	execl("/proc/self/exe", "scenario", name, NULL);
	_exit(127);
}

static inline void scenario_expect(const char *name, struct ending want)
{
	int before = count_fds(), errors, status;
	char said[4096] = { 0 };
	pid_t pid;

	errors = memfd_create("stderr", MFD_CLOEXEC);
	ck_assert_int_ge(errors, 0);
	pid = fork();
	if (!pid)
		become(name, want.env, errors);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_ge(pread(errors, said, sizeof(said) - 1, 0), 0);
	close(errors);

	if (want.signal)
		ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == want.signal,
			      "status %#x, not signal %d: %s", status, want.signal, said);
	else
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == want.status,
			      "status %#x, not exit %d: %s", status, want.status, said);
	if (want.says)
		ck_assert_msg(strstr(said, want.says) != NULL, "\"%s\" does not say \"%s\"", said,
			      want.says);
	ck_assert_int_eq(count_fds(), before);
}

/* A scenario that returns has closed what it opened, and ends by exit(). */
static inline int scenario_run(const char *name)
{
	int before = count_fds();

	for (const struct scenario *s = scenarios; s->name; s++) {
		if (strcmp(s->name, name))
			continue;
		s->run();
		MUST(count_fds() == before);
		return 0;
	}
	return 127;
}

/* A scenario, where one is named; else the suite: add() adds its tests. */
static inline int scenario_main(int argc, char **argv, const char *suite, void (*add)(TCase *tests))
{
	TCase *tests;

	if (argc > 1) {
		signal(SIGSEGV, SIG_DFL); /* a sanitizer would report it and exit */
		return scenario_run(argv[1]);
	}
	tests = tcase_create(suite);
	add(tests);
	tcase_set_timeout(tests, 60);
	return suite_run(suite, tests, NULL);
}
