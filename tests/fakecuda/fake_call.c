/* SPDX-License-Identifier: MIT
 *
 * The entry of every driver call. One mutex makes the library thread-safe; no code inside calls an
 * exported function, so the mutex is never taken twice. Here are the counters, the failure of
 * FAKECUDA_FAIL, and the log. This file knows nothing about the calls themselves.
 *
 * The log is opened for each line: tests count the fds of this process, and an open log would be
 * one of them.
 */
#include "tests/fakecuda/fake_call.h"

#include "proto/base/own.h"
#include "tests/fakecuda/fake_checkpoint.h"
#include "tests/fakecuda/fakecuda.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct counter {
	struct counter *next;
	const char *name;
	unsigned long calls;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pid_t owner; /* the process that has called cuInit; 0: none */
static struct counter *counters;
static struct {
	bool read;
	unsigned long at; /* 0: none */
	unsigned long seen;
	char name[64]; /* "": any */
	CUresult with;
	bool lenient; /* a give-back has failed: the caller can't know what it still owns */
} failure;

/* Length of a call's name without its version. */
static size_t base_length(const char *name)
{
	const char *version = strstr(name, "_v");

	return version ? (size_t)(version - name) : strlen(name);
}

static bool same_call(const char *a, const char *b)
{
	return base_length(a) == base_length(b) && !strncmp(a, b, base_length(a));
}

static void failure_read(void)
{
	const char *fail = getenv("FAKECUDA_FAIL"), *with = getenv("FAKECUDA_FAIL_WITH");
	char *rest;

	failure.read = true;
	failure.with = with ? (CUresult)atoi(with) : CUDA_ERROR_UNKNOWN;
	if (!fail)
		return;

	failure.at = strtoul(fail, &rest, 10);
	if (*rest == ':')
		snprintf(failure.name, sizeof(failure.name), "%s", rest + 1);
}

static CUresult failure_due(const char *name)
{
	if (!failure.read)
		failure_read();
	if (failure.name[0] && !same_call(failure.name, name))
		return CUDA_SUCCESS;
	return ++failure.seen == failure.at ? failure.with : CUDA_SUCCESS;
}

static void count(const char *name)
{
	struct counter *c = counters;

	while (c && strcmp(c->name, name))
		c = c->next;
	if (!c) {
		c = calloc(1, sizeof(*c));
		if (!c)
			abort();
		c->name = name;
		c->next = counters;
		counters = c;
	}
	c->calls++;
}

static void log_line(const char *name, CUresult result)
{
	const char *path = getenv("FAKECUDA_LOG");
	_cleanup_(close_fd) int fd = -1;

	if (!path)
		return;
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (fd >= 0)
		dprintf(fd, "%d %s %s\n", getpid(), name,
			error_name(result) ? error_name(result) : "?");
}

/* Outside the lock: a driver call that hangs must not block calls for other GPUs. */
static void hang_if_due(const char *name)
{
	static _Atomic unsigned long seen;
	const char *hang = getenv("FAKECUDA_HANG"), *until = getenv("FAKECUDA_HANG_UNTIL");
	char *rest = NULL;
	bool all = hang && *hang == '*';
	unsigned long at = hang ? strtoul(hang + all, &rest, 10) : 0;

	if ((at == 0 && !all) || !until || (*rest == ':' && !same_call(rest + 1, name)) ||
	    (++seen != at && !all))
		return;
	while (access(until, F_OK) < 0)
		poll(NULL, 0, 5);
}

void call_lock(void)
{
	pthread_mutex_lock(&lock);
}

void call_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

CUresult call_enter(struct call *c, const char *name, enum call_kind kind)
{
	CUresult due;

	*c = (struct call){ .name = name, .kind = kind };
	if (!call_in_own_process())
		return CUDA_ERROR_NOT_INITIALIZED;

	hang_if_due(name);
	if (owner && !checkpoint_wait(name))
		return CUDA_ERROR_OPERATING_SYSTEM;
	call_lock();
	c->locked = true;
	count(name);
	if (kind != CALL_EARLY && !owner)
		return CUDA_ERROR_NOT_INITIALIZED;

	due = failure_due(name);
	if (due && kind == CALL_GIVES_BACK) {
		c->injected = due;
		failure.lenient = true;
		return CUDA_SUCCESS;
	}
	return due;
}

CUresult call_leave(struct call *c, CUresult result)
{
	if (c->injected)
		result = c->injected;
	log_line(c->name, result);
	if (c->locked)
		call_unlock();
	return result;
}

void call_set_initialised(void)
{
	owner = getpid();
}

bool call_in_own_process(void)
{
	return !owner || owner == getpid();
}

CUresult misuse(const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);

	if (failure.lenient)
		return CUDA_ERROR_INVALID_VALUE;
	dprintf(STDERR_FILENO, "fakecuda: abort: %s\n", line);
	abort();
}

bool is_broken(const char *fact)
{
	return !strcmp(getenv("FAKECUDA_BREAK") ?: "", fact);
}

unsigned long long env_bytes(const char *name, unsigned long long otherwise)
{
	static const char units[] = "KMG";
	const char *value = getenv(name), *unit;
	unsigned long long bytes;
	char *rest;

	if (!value || !*value)
		return otherwise;
	bytes = strtoull(value, &rest, 0);
	unit = *rest ? strchr(units, *rest) : NULL;
	return unit ? bytes << (10 * (unit - units + 1)) : bytes;
}

unsigned long fakecuda_calls(const char *name)
{
	unsigned long calls = 0;

	call_lock();
	for (struct counter *c = counters; c; c = c->next)
		if (!name || same_call(c->name, name))
			calls += c->calls;
	call_unlock();
	return calls;
}

void fakecuda_reset_fail(unsigned long n)
{
	call_lock();
	if (!failure.read)
		failure_read();
	failure.at = n;
	failure.seen = 0;
	failure.lenient = false;
	call_unlock();
}
