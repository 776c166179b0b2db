/* SPDX-License-Identifier: MIT
 *
 * The ground under the subcommands: the table of them, the options that all take, the connection,
 * and the one place where an error of the library becomes a line on stderr and an exit code.
 * It owns the connection until the process ends. It knows no subcommand's options.
 */
#include "client/ctl/ctl.h"

#include "client/ctl/output.h"
#include "proto/base/own.h"

#include <stdarg.h>
#include <string.h>

const struct command *const commands[] = {
	&command_status, &command_pools, &command_ls,	   &command_stat,  &command_create,
	&command_put,	 &command_get,	 &command_publish, &command_wait,  &command_watch,
	&command_hold,	 &command_rm,	 &command_clean,   &command_flush, &command_restart,
	&command_doctor, NULL,
};

const struct arg ctl_args[] = {
	{ "socket", ARG_TEXT, 's', "PATH", "the daemon's socket ($GPUSHM_SOCKET)",
	  offsetof(struct ctl, socket) },
	{ "json", ARG_JSON, 0, "short|pretty", "one JSON document instead of text",
	  offsetof(struct ctl, json) },
	{ "bytes", ARG_FLAG, 'b', NULL, "sizes as exact numbers of bytes",
	  offsetof(struct ctl, bytes) },
	{ "quiet", ARG_FLAG, 'q', NULL, "say nothing but errors", offsetof(struct ctl, quiet) },
	{ "help", ARG_HELP, 'h', NULL, "this text", 0 },
	{ .name = NULL },
};

const struct command *command_find(const char *name)
{
	for (const struct command *const *c = commands; *c; c++)
		if (!strcmp((*c)->name, name))
			return *c;
	return NULL;
}

const char *command_suggest(const char *typed)
{
	unsigned best_distance = 3;
	const char *best = NULL;

	for (const struct command *const *c = commands; *c; c++) {
		unsigned d = args_distance(typed, (*c)->name);

		/* Two letters wrong in a word of two is no likeness. */
		if (d >= best_distance || d >= strlen((*c)->name))
			continue;
		best_distance = d;
		best = (*c)->name;
	}
	return best;
}

int ctl_connect(struct ctl *ctl)
{
	int r;

	if (ctl->connection)
		return CTL_OK;
	r = gpushm_connect(ctl->socket, &ctl->connection);
	return r < 0 ? ctl_error(CTL_NO_DAEMON, "%s", gpushm_error()) : CTL_OK;
}

int ctl_error(enum exit_code code, const char *format, ...)
{
	_cleanup_(free_ptr) char *text = NULL, *escaped = NULL;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vasprintf(&text, format, ap);
	va_end(ap);
	if (n < 0)
		text = NULL;
	escaped = text ? output_escape(text, (size_t)n) : NULL;
	fprintf(stderr, "gpushmctl: %s\n", escaped ? escaped : "out of memory");
	return code;
}

enum exit_code ctl_exit_code(int error)
{
	switch (-error) {
	case 0:
		return CTL_OK;
	case ENOENT:
		return CTL_NOT_FOUND;
	case ETIMEDOUT:
		return CTL_TIMED_OUT;
	case ECONNRESET:
	case ECONNREFUSED:
	case EPIPE:
		return CTL_NO_DAEMON;
	default:
		return CTL_FAILED;
	}
}

int ctl_refused(int error)
{
	const char *text = gpushm_error();

	return ctl_error(ctl_exit_code(error), "%s", *text ? text : strerror(-error));
}

bool ctl_json(const struct ctl *ctl, struct json *ret)
{
	if (!ctl->json)
		return false;
	json_init(ret, stdout, !strcmp(ctl->json, "pretty"));
	return true;
}

const char *ctl_size(const struct ctl *ctl, uint64_t bytes)
{
	static char buffers[4][24];
	static unsigned next;

	next = (next + 1) % 4;
	return output_size(bytes, ctl->bytes, buffers[next], sizeof(buffers[next]));
}
