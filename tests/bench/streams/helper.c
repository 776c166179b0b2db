/* SPDX-License-Identifier: MIT
 *
 * A Python program beside the processes of the comparison: one line there, one line back.
 */
#include "tests/bench/streams/crew.h"

#include "proto/base/own.h"

#include <err.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 90000 /* PyTorch takes its time */
#define LINE_MAX_BYTES (1u << 20)

void helper_start(struct helper *h, const char *script, const char *socket, const char *memory)
{
	const char *python = getenv("PYTHON");
	int in[2], out[2];

	*h = (struct helper){ .to = -1, .from = -1 };
	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		err(1, "pipe");
	h->pid = fork();
	if (h->pid == 0) {
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		execlp(python ? python : "python3", "python3", "-B", script, socket, memory,
		       (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	h->to = in[1];
	h->from = out[0];
}

/* Reads to the end of a line. */
static bool read_line(struct helper *h, char *line)
{
	struct pollfd p = { h->from, POLLIN, 0 };
	size_t n = 0;

	while (n + 1 < LINE_MAX_BYTES && poll(&p, 1, START_MS) == 1) {
		ssize_t r = read(h->from, line + n, LINE_MAX_BYTES - 1 - n);

		if (r <= 0)
			return false;
		n += (size_t)r;
		line[n] = '\0';
		if (line[n - 1] == '\n')
			return true;
	}
	return false;
}

static bool refuse(struct helper *h, const char *why)
{
	snprintf(h->error, sizeof(h->error), "%.*s", (int)strcspn(why, "\n"), why);
	return false;
}

/* The reply is "ok NUMBER NUMBER ...", or a reason why there is none. */
static bool read_numbers(struct helper *h, char *line, struct sample *ret)
{
	char *at = line + 2, *end;

	if (strncmp(line, "ok", 2) != 0)
		return refuse(h, line);
	for (double v = strtod(at, &end); end != at; v = strtod(at, &end)) {
		sample_add(ret, v);
		at = end;
	}
	return true;
}

bool helper_ask(struct helper *h, const char *line, struct sample *ret)
{
	_cleanup_(free_ptr) char *reply = malloc(LINE_MAX_BYTES);

	if (h->to < 0)
		return refuse(h, h->error[0] ? h->error : "its program has ended");
	if (dprintf(h->to, "%s\n", line) > 0 && read_line(h, reply))
		return read_numbers(h, reply, ret);
	helper_stop(h);
	return refuse(h, "its program failed, or took too long");
}

void helper_stop(struct helper *h)
{
	if (h->pid == 0 || h->to < 0)
		return;
	close_fd(&h->to);
	close_fd(&h->from);
	for (int ms = 0; ms < 3000; ms += 50) {
		if (waitpid(h->pid, NULL, WNOHANG) == h->pid)
			return;
		usleep(50000);
	}
	kill(h->pid, SIGKILL);
	waitpid(h->pid, NULL, 0);
}
