/* SPDX-License-Identifier: MIT
 *
 * Starts and ends the processes of the comparison, and collects what they measure. A process that
 * fails or hangs costs one row: all are ended and started anew.
 */
#include "tests/bench/streams/crew.h"

#include "proto/base/own.h"

#include <err.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define JOB_MS 40000 /* for one job at most */

/* ---- processes ---- */

/* In the child: fd becomes number `to`, which exec() keeps. */
static void pass_fd(int fd, int to)
{
	if (dup2(fd, to) < 0)
		_exit(126);
}

/* High numbers, so that pass_fd() overwrites none that it still needs. */
static int move_up(int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, 64);

	close(fd);
	if (moved < 0)
		err(1, "an fd");
	return moved;
}

static void make_pair(int type, int *ret)
{
	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ret) < 0)
		err(1, "a socket pair");
	ret[0] = move_up(ret[0]);
	ret[1] = move_up(ret[1]);
}

static pid_t spawn(struct crew *c, const char *const *args, int *ret_control)
{
	int pair[2];
	pid_t pid;

	make_pair(SOCK_STREAM, pair);
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (pid == 0) {
		pass_fd(c->board_fd, BOARD_FD);
		pass_fd(pair[1], CONTROL_FD);
		for (unsigned i = 0; i < 2 * LANES; i++)
			pass_fd(c->lanes[i], LANE_FD + (int)i);
		execv("/proc/self/exe", (char *const *)(uintptr_t)args);
		_exit(127);
	}
	close(pair[1]);
	*ret_control = pair[0];
	return pid;
}

/* Waits for a process's byte. */
static bool hear(int control, int timeout_ms)
{
	struct pollfd p = { control, POLLIN, 0 };
	char byte;

	return poll(&p, 1, timeout_ms) == 1 && read(control, &byte, 1) == 1;
}

static bool say(int control)
{
	return send(control, "", 1, MSG_NOSIGNAL) == 1;
}

/* ---- the crew ---- */

static void note_error(struct crew *c)
{
	snprintf(c->error, sizeof(c->error), "%s",
		 c->board->error[0] ? c->board->error : "it took too long, or a process ended");
}

static bool start_sides(struct crew *c)
{
	bool good = true;

	for (unsigned i = 0; i < LANES; i++)
		make_pair(SOCK_SEQPACKET, &c->lanes[2 * i]);
	for (unsigned i = 0; i < SIDES; i++) {
		char number[8];
		const char *const args[] = {
			"streams", "--side", number, c->socket, c->memory, NULL
		};

		snprintf(number, sizeof(number), "%u", i);
		c->pids[i] = spawn(c, args, &c->control[i]);
	}
	for (unsigned i = 0; i < SIDES; i++)
		good = hear(c->control[i], JOB_MS) && good;
	if (!good)
		note_error(c);
	return good;
}

static void end_sides(struct crew *c)
{
	for (unsigned i = 0; i < SIDES; i++) {
		close_fd(&c->control[i]);
		kill(c->pids[i], SIGKILL);
		waitpid(c->pids[i], NULL, 0);
	}
	for (unsigned i = 0; i < 2 * LANES; i++)
		close_fd(&c->lanes[i]);
}

bool crew_start(struct crew *c, const char *socket, const char *memory)
{
	*c = (struct crew){ .socket = socket, .memory = memory };
	c->board = board_new(&c->board_fd);
	c->board_fd = move_up(c->board_fd);
	return start_sides(c);
}

void crew_stop(struct crew *c)
{
	end_sides(c);
	close_fd(&c->board_fd);
}

static bool fail(struct crew *c)
{
	note_error(c);
	end_sides(c);
	board_reset(c->board, &c->board->job);
	start_sides(c);
	return false;
}

static void begin(struct crew *c, const struct job *job)
{
	struct job numbered = *job;

	numbered.serial = ++c->serial;
	board_reset(c->board, &numbered);
	for (unsigned i = 0; i < job->sides; i++)
		say(c->control[i]);
}

/* One that ends takes its part from the barrier: the others are not waited for. */
static bool finish(struct crew *c, const struct job *job)
{
	struct pollfd p[SIDES];
	unsigned left = job->sides;
	char byte;

	for (unsigned i = 0; i < job->sides; i++)
		p[i] = (struct pollfd){ c->control[i], POLLIN, 0 };
	while (left > 0) {
		if (poll(p, job->sides, JOB_MS) <= 0)
			return false;
		for (unsigned i = 0; i < job->sides; i++) {
			if (p[i].fd < 0 || !p[i].revents)
				continue;
			if (read(p[i].fd, &byte, 1) != 1)
				return false;
			p[i].fd = -1;
			left--;
		}
	}
	return true;
}

bool crew_run(struct crew *c, const struct job *job, struct sample *ret)
{
	begin(c, job);
	if (!finish(c, job))
		return fail(c);
	for (size_t i = 0; i < c->board->n_samples; i++)
		sample_add(ret, c->board->samples[i]);
	return true;
}

/* ---- a reader that is killed ---- */

/* Kills it and waits until it is really gone; returns when, in ns. */
static uint64_t kill_and_await(pid_t pid, struct sample *gone)
{
	_cleanup_(close_fd) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = { pidfd, POLLIN, 0 };
	uint64_t start = now_ns(), end;

	kill(pid, SIGKILL);
	poll(&p, 1, JOB_MS);
	end = now_ns();
	waitpid(pid, NULL, 0);
	sample_add(gone, (double)(end - start) / 1e6);
	return end;
}

/* Waits until the producer has made two more frames: then its wait is over. */
static bool await_frames(struct crew *c)
{
	uint64_t from = atomic_load(&c->board->done);

	for (unsigned ms = 0; atomic_load(&c->board->done) < from + 2; ms++) {
		if (ms > JOB_MS || atomic_load(&c->board->failed))
			return false;
		usleep(1000);
	}
	return true;
}

static bool kill_one(struct crew *c, pid_t victim, int control, struct sample *gone,
		     struct sample *after_end, struct sample *longest)
{
	uint64_t ended;

	if (!say(control) || !hear(control, JOB_MS))
		return false;
	atomic_store(&c->board->longest_ns, 0);
	usleep(20000);
	ended = kill_and_await(victim, gone);
	usleep(20000);
	if (!await_frames(c))
		return false;
	sample_add(longest, (double)atomic_load(&c->board->longest_ns) / 1e6);
	sample_add(after_end,
		   ((double)atomic_load(&c->board->longest_end_ns) - (double)ended) / 1e6);
	return true;
}

bool crew_kill_reader(struct crew *c, const struct job *job, const char *follow,
		      struct sample *gone, struct sample *after_end, struct sample *longest)
{
	const char *const args[] = { "streams", "--victim", c->socket, c->memory, follow, NULL };
	_cleanup_(close_fd) int control = -1;
	bool good;
	pid_t victim;

	begin(c, job);
	victim = spawn(c, args, &control);
	good = hear(control, JOB_MS) && await_frames(c) &&
	       kill_one(c, victim, control, gone, after_end, longest);
	kill(victim, SIGKILL);
	waitpid(victim, NULL, 0);
	atomic_store(&c->board->stop, 1);
	return (good && finish(c, job)) || fail(c);
}
