/* SPDX-License-Identifier: MIT
 *
 * Owns the workers' processes and their pipes. A worker prints "ready TIME", waits for a line,
 * prints "attached ID TIME", waits for a line, prints "done RIGHT WHERE" and ends. The times are in
 * us and of one gpushm_open(). Its stderr is ours.
 *
 * All workers are started before any is waited for. They attach to the model one after the other,
 * when CUDA has started in all of them: so each time is that of an attach, not of a wait for the
 * driver's locks. All are attached before any computes: in between the daemon can be asked for the
 * holders.
 */
#include "client/examples/demo/workers.h"

#include "client/examples/demo/wait.h"
#include "proto/base/own.h"

#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define READY_MS 120000 /* eight processes start CUDA at once */
#define ATTACH_MS 20000
#define COMPUTE_MS 60000

static void become_worker(const char *program, const char *socket, const struct worker *w, int in,
			  int out)
{
	char from[24], n[24];

	if (dup2(in, 0) < 0 || dup2(out, 1) < 0)
		_exit(126);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("GPUSHM_SOCKET", socket, 1);
	wait_undo_in_child();
	snprintf(from, sizeof(from), "%ld", w->first);
	snprintf(n, sizeof(n), "%ld", w->count);
	execl(program, program, from, n, (char *)NULL);
	dprintf(2, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

static int start(struct worker *w, const char *program, const char *socket)
{
	int in[2] = { -1, -1 }, out[2] = { -1, -1 };
	int r = pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 ? 0 : -errno;

	if (r == 0) {
		w->pid = fork();
		r = w->pid < 0 ? -errno : 0;
	}
	if (r == 0 && w->pid == 0)
		become_worker(program, socket, w, in[0], out[1]);
	if (r < 0)
		w->pid = 0;
	w->in = take_fd(&in[1]);
	w->out = take_fd(&out[0]);
	close_fd(&in[0]);
	close_fd(&out[1]);
	return r;
}

int workers_start(struct worker *w, const char *program, const char *socket, long first, long count)
{
	for (long i = 0; i < WORKERS; i++)
		w[i] = (struct worker){ .in = -1,
					.out = -1,
					.first = first + count * i / WORKERS,
					.count = count * (i + 1) / WORKERS - count * i / WORKERS };
	for (int i = 0; i < WORKERS; i++) {
		int r = start(&w[i], program, socket);

		if (r < 0) {
			warnx("%s: %s", program, strerror(-r));
			return r;
		}
	}
	return 0;
}

/* Reads one line without its end, a byte at a time: a worker writes three lines in all. */
static int read_line(struct worker *w, char *line, size_t size, int64_t deadline)
{
	for (size_t n = 0; n + 1 < size; n++) {
		int r = wait_readable(w->out, deadline);

		if (r < 0)
			return r;
		if (read(w->out, &line[n], 1) != 1)
			return -EPROTO;
		if (line[n] == '\n') {
			line[n] = '\0';
			return 0;
		}
	}
	return -EPROTO;
}

static int wait_ready(struct worker *w, int64_t deadline)
{
	char line[128];
	int r = read_line(w, line, sizeof(line), deadline);

	return r < 0 ? r : sscanf(line, "ready %lf", &w->start_us) == 1 ? 0 : -EPROTO;
}

static int go(struct worker *w, int64_t deadline)
{
	return write(w->in, "\n", 1) == 1 ? 0 : -errno;
}

static int attach(struct worker *w, int64_t deadline)
{
	char line[128];
	int r = go(w, deadline);

	if (r == 0)
		r = read_line(w, line, sizeof(line), deadline);
	if (r < 0)
		return r;
	return sscanf(line, "attached %" SCNu64 " %lf", &w->buffer, &w->attach_us) == 2 ? 0
											: -EPROTO;
}

static int wait_done(struct worker *w, int64_t deadline)
{
	char line[128], rest = 0;
	int status = 0, r = read_line(w, line, sizeof(line), deadline);

	if (r < 0)
		return r;
	if (sscanf(line, "done %ld %31[^\n]", &w->right, w->where) != 2)
		return -EPROTO;
	r = wait_readable(w->out, deadline);
	if (r < 0)
		return r;
	if (read(w->out, &rest, 1) != 0)
		return -EPROTO;
	waitpid(w->pid, &status, 0);
	w->pid = 0;
	return status == 0 ? 0 : -EIO;
}

/* Takes a step with each worker, and prints which failed. */
static int each_worker(struct worker *w, int (*step)(struct worker *, int64_t), int64_t ms,
		       const char *what)
{
	int64_t deadline = wait_deadline(ms);

	for (int i = 0; i < WORKERS; i++) {
		int r = step(&w[i], deadline);

		if (r < 0 && r != -EINTR)
			warnx("worker %d did not %s: %s", i, what,
			      r == -EPROTO ? "it ended, or printed something else" : strerror(-r));
		if (r < 0)
			return r;
	}
	return 0;
}

int workers_attach(struct worker *w)
{
	int r = each_worker(w, wait_ready, READY_MS, "get ready");

	return r < 0 ? r : each_worker(w, attach, ATTACH_MS, "attach");
}

int workers_compute(struct worker *w)
{
	int r = each_worker(w, go, COMPUTE_MS, "start");

	return r < 0 ? r : each_worker(w, wait_done, COMPUTE_MS, "finish");
}

long workers_print(const struct worker *w)
{
	long right = 0, count = 0;

	printf("worker     samples      right  accuracy  first open     attach  computed on\n");
	for (int i = 0; i < WORKERS; i++) {
		printf("%6d  %4ld - %4ld  %3ld / %3ld   %6.2f %%  %7.2f ms  %6.0f us  %s\n", i,
		       w[i].first, w[i].first + w[i].count - 1, w[i].right, w[i].count,
		       100.0 * (double)w[i].right / (double)w[i].count, w[i].start_us / 1e3,
		       w[i].attach_us, w[i].where);
		right += w[i].right;
		count += w[i].count;
	}
	printf("   all               %3ld / %3ld   %6.2f %%\n\n", right, count,
	       100.0 * (double)right / (double)count);
	return right;
}

void workers_clear(struct worker *w)
{
	for (int i = 0; i < WORKERS; i++) {
		if (w[i].pid > 0) {
			kill(w[i].pid, SIGKILL);
			waitpid(w[i].pid, NULL, 0);
			w[i].pid = 0;
		}
		close_fd(&w[i].in);
		close_fd(&w[i].out);
	}
}
