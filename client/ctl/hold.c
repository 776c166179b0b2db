/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl hold NAME`: opens a buffer, prints one line, and keeps the lease until its input ends,
 * so that a script can keep memory alive: `coproc gpushmctl hold NAME`. Its lease also ends if a
 * signal kills it.
 */
#include "client/ctl/ctl.h"

#include "proto/base/own.h"

#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>

struct options {
	bool write;
	uint64_t timeout;
};

#define RETRY_MS 1000 /* while the daemon refuses the connection */

/* A request makes the library reconnect to a restarted daemon, and take its leases along. */
static int reconnect(struct ctl *ctl)
{
	_cleanup_(free_result) struct gpushm_status *status = NULL;

	return gpushm_status(ctl->connection, &status);
}

static bool has_gone(int error)
{
	return error == -ECONNRESET || error == -EPROTO;
}

int hold_until_eof(struct ctl *ctl)
{
	struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
				{ .fd = gpushm_fd(ctl->connection), .events = POLLIN } };
	bool refused = false;
	char scrap[4096];
	ssize_t n;
	int r;

	for (;;) {
		fds[1].fd = refused ? -1 : gpushm_fd(ctl->connection);
		if (poll(fds, array_size(fds), refused ? RETRY_MS : -1) < 0 && errno != EINTR)
			return ctl_error(CTL_FAILED, "poll: %s", strerror(errno));
		r = refused || fds[1].revents ? reconnect(ctl) : 0;
		if (has_gone(r))
			return ctl_error(CTL_NO_DAEMON,
					 "the daemon has gone: the memory stays until this process "
					 "ends, its name does not");
		/* The daemon still has the lease, as long as this process lives. */
		if (r < 0 && !refused)
			ctl_error(CTL_FAILED, "%s; trying again each second", gpushm_error());
		refused = r < 0;
		if (!fds[0].revents)
			continue;
		n = read(STDIN_FILENO, scrap, sizeof(scrap));
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return ctl_error(CTL_FAILED, "standard input: %s", strerror(errno));
		if (n == 0)
			return CTL_OK;
	}
}

/* The lease's number, for people. The daemon sends it with the holders, and these only to the
 * buffer's owner and to admins; else 0. */
static uint64_t find_lease(struct ctl *ctl, const char *name, enum gpushm_access access)
{
	_cleanup_(free_result) struct gpushm_stat *s = NULL;
	uint64_t lease = 0;

	if (gpushm_stat(ctl->connection, name, 0, GPUSHM_HOLDERS, &s) < 0)
		return 0;
	for (size_t i = 0; i < s->n_holders; i++)
		if (s->holders[i]->pid == getpid() && s->holders[i]->access == access)
			lease = s->holders[i]->lease;
	return lease;
}

static void report(const struct ctl *ctl, const char *name, uint64_t lease)
{
	struct json j;

	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "name", name);
		json_int(&j, "pid", getpid());
		if (lease)
			json_id(&j, "lease", lease);
		else
			json_null(&j, "lease");
		json_close(&j, '}');
	} else if (lease) {
		output_line(stdout, "held %s %d %" PRIu64, name, getpid(), lease);
	} else {
		output_line(stdout, "held %s %d -", name, getpid());
	}
	output_flush();
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	enum gpushm_access access = o->write ? GPUSHM_WRITE : GPUSHM_READ;
	struct gpushm_buffer *b = NULL;
	int r = gpushm_open(ctl->connection, words[0], access, o->timeout, NULL, &b), closed;

	if (r < 0)
		return ctl_refused(r);
	report(ctl, words[0], find_lease(ctl, words[0], access));
	r = hold_until_eof(ctl);
	closed = gpushm_close(b);
	return r == CTL_OK ? ctl_result(closed) : r;
}

const struct command command_hold = {
	.name = "hold",
	.synopsis = "[--write] [--timeout=TIME] NAME",
	.about = "keep a buffer open until the end of input",
	.more = "Prints \"held NAME PID LEASE\" when it has the buffer, then waits for the end of "
		"its\ninput.",
	OPTIONS(options,
		FLAG(options, write, "write", 'w',
		     "open it for writing; only a shared buffer allows this"),
		ARG_TIMEOUT(options)),
	.words = { 1, 1 },
	.run = run,
};
