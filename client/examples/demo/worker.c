/* SPDX-License-Identifier: MIT
 *
 * Owns a worker's process and two pipes. The worker says "ready TIME", waits for a line, says
 * "attached ID TIME", waits for a line, says "done RIGHT WHERE" and ends. Times are in us and of
 * one gpushm_open(). Its stderr is ours.
 */
#include "client/examples/demo/worker.h"

#include "client/examples/demo/wait.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static void become_worker(const char *program, const char *socket, long first, long count, int in,
			  int out)
{
	char from[24], n[24];

	if (dup2(in, 0) < 0 || dup2(out, 1) < 0)
		_exit(126);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("GPUSHM_SOCKET", socket, 1);
	wait_undo_in_child();
	snprintf(from, sizeof(from), "%ld", first);
	snprintf(n, sizeof(n), "%ld", count);
	execl(program, program, from, n, (char *)NULL);
	dprintf(2, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

int worker_start(const char *program, const char *socket, long first, long count,
		 struct worker **ret)
{
	int in[2] = { -1, -1 }, out[2] = { -1, -1 };
	struct worker *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->first = first;
	w->count = count;
	if (pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0)
		w->pid = fork();
	else
		w->pid = -1;
	if (w->pid == 0)
		become_worker(program, socket, first, count, in[0], out[1]);

	w->in = take_fd(&in[1]);
	w->out = take_fd(&out[0]);
	close_fd(&in[0]);
	close_fd(&out[1]);
	if (w->pid < 0) {
		int r = -errno;

		w->pid = 0;
		worker_free(w);
		return r;
	}
	*ret = w;
	return 0;
}

/* One line without its end, a byte at a time: there are three of them in a worker's life. */
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

int worker_ready(struct worker *w, int64_t deadline)
{
	char line[128];
	int r = read_line(w, line, sizeof(line), deadline);

	if (r < 0)
		return r;
	return sscanf(line, "ready %lf", &w->start_us) == 1 ? 0 : -EPROTO;
}

int worker_go(struct worker *w)
{
	return write(w->in, "\n", 1) == 1 ? 0 : -errno;
}

int worker_attach(struct worker *w, int64_t deadline)
{
	char line[128];
	int r = worker_go(w);

	if (r == 0)
		r = read_line(w, line, sizeof(line), deadline);
	if (r < 0)
		return r;
	return sscanf(line, "attached %" SCNu64 " %lf", &w->buffer, &w->attach_us) == 2 ? 0
											: -EPROTO;
}

int worker_done(struct worker *w, int64_t deadline)
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

struct worker *worker_free(struct worker *w)
{
	if (!w)
		return NULL;
	if (w->pid > 0) {
		kill(w->pid, SIGKILL);
		waitpid(w->pid, NULL, 0);
	}
	close_fd(&w->in);
	close_fd(&w->out);
	free(w);
	return NULL;
}
