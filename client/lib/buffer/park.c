/* SPDX-License-Identifier: MIT
 *
 * PARK: a supervisor has the driver freeze another process of its user, and thaw it. A helper,
 * `gpushmctl --driver`, makes the driver's calls, which may never return: this process waits for it
 * until a deadline alone. The daemon is asked twice whether the process has let go of all: before
 * the driver locks it, so that it can be asked to, and afterwards, when it can't import any more.
 */
#include "client/gpushm_memory.h"
#include "client/lib/base/error.h"
#include "client/lib/base/process.h"
#include "client/lib/link/request.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define LOOK_MS 5u /* between two looks at what the process still has mapped */
#define TEXT_MAX 127u
#define STEP(name) GPUSHM__PROTO__PARK_STEP__PARK_##name

struct parking {
	struct gpushm *c;
	pid_t pid, helper;
	uint64_t deadline;
	uint32_t flags;
	int pidfd, socket; /* of the process; to the helper */
	bool parked;	   /* says the daemon */
};

/* ---- the daemon ---- */

static int read_parked(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	*(bool *)to = reply->done->parked;
	return 0;
}

static int tell(struct parking *p, Gpushm__Proto__ParkStep step, const char *text)
{
	Gpushm__Proto__Park park = GPUSHM__PROTO__PARK__INIT;

	SET(&park, step, step);
	SET(&park, pid, p->pid);
	SET(&park, self, getpid());
	if (text)
		SET(&park, text, connection_bytes(text));
	return request_read(p->c, request_with(PARK, park, &park), read_parked, &p->parked);
}

/* Where the driver does not come back, its process is killed if that is wanted. The error that
 * there is stays. */
static int give_up(struct parking *p, int r, Gpushm__Proto__ParkStep step)
{
	char text[TEXT_MAX + 1];

	error_guard();
	snprintf(text, sizeof(text), "%s", gpushm_error());
	tell(p, step, text);
	if (step == STEP(STUCK) && p->flags & GPUSHM_KILL_STUCK)
		syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
	return r;
}

/* ---- the helper ---- */

static int spawn(struct parking *p, int socket, const char *program)
{
	posix_spawn_file_actions_t actions;
	char pid[16], ms[16];
	const char *const words[] = { "gpushmctl", "--driver", pid, ms, NULL };
	int r;

	snprintf(pid, sizeof(pid), "%d", p->pid);
	snprintf(ms, sizeof(ms), "%u", (unsigned)clock_left_ms(p->deadline) / 2 + 1);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
	r = posix_spawnp(&p->helper, program, &actions, NULL, (char **)words, environ);
	posix_spawn_file_actions_destroy(&actions);
	return r == 0 ? 0
		      : error_set(r,
				  "the helper program %s does not start: %s (GPUSHMCTL names it)",
				  program, strerror(r));
}

static int start(struct parking *p)
{
	const char *program = getenv("GPUSHMCTL");
	_cleanup_(close_fd) int theirs = -1;
	int ends[2];

	p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	if (p->pidfd < 0)
		return error_set(errno, "process %d: %m", p->pid);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return error_set(errno, "can't make a socket: %m");
	p->socket = ends[0];
	theirs = ends[1];
	return spawn(p, theirs, program ? program : "gpushmctl");
}

/* The helper ends by itself, unless the driver does not come back. */
static void end(struct parking *p)
{
	close_fd(&p->pidfd);
	close_fd(&p->socket);
	for (int i = 0; p->helper > 0 && waitpid(p->helper, NULL, WNOHANG) == 0 && i < 100; i++) {
		if (i == 50)
			kill(p->helper, SIGKILL);
		poll(NULL, 0, 2);
	}
}

/* -ETIMEDOUT: the driver does not come back. A helper that has ended hangs up. */
static int drive(struct parking *p, const char *call)
{
	struct pollfd reply = { .fd = p->socket, .events = POLLIN };
	char text[256] = "";
	int r;

	send(p->socket, call, 1, MSG_NOSIGNAL);
	do
		r = poll(&reply, 1, (int)clock_left_ms(p->deadline));
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return error_set(ETIMEDOUT,
				 "process %d: the driver does not come back, and nor may the "
				 "process",
				 p->pid);
	if (recv(p->socket, text, sizeof(text) - 1, 0) <= 0)
		return error_set(EIO, "process %d: the helper gpushmctl has ended", p->pid);
	return strcmp(text, "ok") == 0 ? 0 : error_set(EIO, "process %d: %s", p->pid, text);
}

/* ---- the calls ---- */

/* It is frozen afterwards, or it runs, or nobody knows. */
static int freeze(struct parking *p)
{
	Gpushm__Proto__ParkStep undo = STEP(UNASK);
	int r = drive(p, "l");

	if (r == 0) {
		r = tell(p, STEP(FREEZE), NULL);
		undo = r == 0 ? STEP(BACK) : undo;
		r = r == 0 ? drive(p, "c") : r;
		error_guard();
		if (r < 0 && r != -ETIMEDOUT && drive(p, "u") < 0)
			r = -ETIMEDOUT;
	}
	if (r == 0)
		return tell(p, STEP(DONE), NULL);
	return give_up(p, r, r == -ETIMEDOUT ? STEP(STUCK) : undo);
}

static int park(struct parking *p)
{
	int r;

	while ((r = tell(p, STEP(ASK), NULL)) == -EBUSY && clock_left_ms(p->deadline) > 0)
		poll(NULL, 0, LOOK_MS);
	if (r < 0)
		return give_up(p, r, STEP(UNASK));
	return p->parked ? 0 : freeze(p);
}

static int unpark(struct parking *p)
{
	int r = tell(p, STEP(THAW), NULL);

	if (r < 0)
		return r;
	r = drive(p, "r");
	return r == 0 ? tell(p, STEP(BACK), NULL) : give_up(p, r, STEP(STUCK));
}

static int check(struct gpushm *c, uint32_t flags)
{
	int r = error_flags(flags, GPUSHM_KILL_STUCK);

	if (r == 0)
		r = connection_check(c);
	if (r == 0 && !c->parks)
		r = error_set(ENOSYS, "gpushmd is older than this library: upgrade it");
	return r;
}

static int run(struct gpushm *c, pid_t pid, uint64_t timeout_ms, uint32_t flags,
	       int (*what)(struct parking *p))
{
	struct parking p = { .c = c, .pid = pid, .flags = flags, .pidfd = -1, .socket = -1 };
	int r = check(c, flags);

	p.deadline = clock_deadline(timeout_ms < INT_MAX ? timeout_ms : INT_MAX);
	if (r == 0)
		r = start(&p);
	if (r == 0)
		r = what(&p);
	end(&p);
	return r;
}

int gpushm_park(struct gpushm *c, pid_t pid, uint64_t timeout_ms, uint32_t flags)
{
	return run(c, pid, timeout_ms, flags, park);
}

int gpushm_unpark(struct gpushm *c, pid_t pid, uint64_t timeout_ms, uint32_t flags)
{
	return run(c, pid, timeout_ms, flags, unpark);
}

int gpushm_may_park(struct gpushm *c, const char *unless)
{
	struct parking self = { .c = c, .pid = getpid() };
	int r = check(c, 0);

	if (r == 0 && unless && (!*unless || strlen(unless) > TEXT_MAX))
		r = error_set(EINVAL, "unless: a reason of 1 to %u bytes, or NULL", TEXT_MAX);
	if (r < 0)
		return r;
	process()->park = unless ? 2 : 1;
	return tell(&self, STEP(PROMISE), unless);
}
