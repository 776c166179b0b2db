/* SPDX-License-Identifier: MIT
 *
 * The list of commands, the options that all of them take, the connection, and the one place where
 * an error of the library becomes a line on stderr and an exit code. The process keeps the
 * connection until it ends, and has one set of signal handlers. Nothing here knows a command's own
 * options.
 */
#include "client/ctl/ctl.h"

#include "proto/base/own.h"
#include "proto/base/suggest.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#define PAUSE_MS 200 /* between two tries to connect */
/* As libgpushm's $GPUSHM_RECONNECT_MS, where no daemon keeps anything. */
#define RECONNECT_MS 10000

const struct command *const commands[] = {
	&command_status,  &command_pools,   &command_ls,      &command_stat,
	&command_create,  &command_put,	    &command_get,     &command_load,
	&command_save,	  &command_verify,  &command_wait,    &command_watch,
	&command_events,  &command_streams, &command_follow,  &command_hold,
	&command_rm,	  &command_mv,	    &command_clean,   &command_flush,
	&command_top,	  &command_doctor,  &command_restart, &command_metrics,
	&command_pull,	  &command_evict,   &command_demote,  &command_promote,
	&command_keep,	  &command_wanted,  &command_park,    &command_unpark,
	&command_suspend, &command_resume,  &command_help,    NULL,
};

const struct arg ctl_args[] = {
	ARG(ctl, socket, "socket", ARG_TEXT, 's', "PATH",
	    "connect to this socket ($GPUSHM_SOCKET)"),
	ARG(ctl, json, "json", ARG_JSON, 0, "short|pretty",
	    "print one JSON document instead of text"),
	FLAG(ctl, bytes, "bytes", 'b', "print sizes as exact numbers of bytes"),
	FLAG(ctl, quiet, "quiet", 'q', "print errors only"),
	{ "help", ARG_HELP, 'h', NULL, "print this text", 0 },
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
	const char *names[array_size(commands)];
	size_t n = 0;

	for (; commands[n]; n++)
		names[n] = commands[n]->name;
	return suggest_name(typed, names, n);
}

int ctl_connect(struct ctl *ctl)
{
	if (ctl->connection || gpushm_connect(ctl->socket, &ctl->connection) == 0)
		return CTL_OK;
	return ctl_error(CTL_NO_DAEMON, "%s", gpushm_error());
}

int ctl_connect_again(struct ctl *ctl)
{
	for (unsigned waited = 0;; waited += PAUSE_MS) {
		ctl->connection = gpushm_disconnect(ctl->connection);
		if (gpushm_connect(ctl->socket, &ctl->connection) == 0)
			return CTL_OK;
		if (waited >= RECONNECT_MS)
			return ctl_error(CTL_NO_DAEMON, "%s", gpushm_error());
		poll(NULL, 0, PAUSE_MS);
	}
}

int ctl_error(enum exit_code code, const char *format, ...)
{
	_cleanup_(free_ptr) char *text = NULL, *named = NULL;
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&text, format, ap) < 0)
		text = NULL;
	va_end(ap);
	named = text ? output_name_users(text) : NULL;
	output_line(stderr, "gpushmctl: %s", named ? named : "out of memory");
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
		return strcmp(gpushm_error_code(), "NO_REPLY") ? CTL_TIMED_OUT : CTL_NO_DAEMON;
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

int ctl_result(int r)
{
	return r < 0 ? ctl_refused(r) : CTL_OK;
}

bool ctl_json(const struct ctl *ctl, struct json *ret)
{
	if (!ctl->json)
		return false;
	json_init(ret, stdout, !strcmp(ctl->json, "pretty"));
	return true;
}

int ctl_print(const struct ctl *ctl, struct table *t)
{
	unsigned flags = (ctl->colour ? TABLE_COLOUR : 0) | (ctl->wide ? TABLE_WIDE : 0);

	return table_print(t, flags, stdout) < 0 ? ctl_error(CTL_FAILED, "out of memory") : CTL_OK;
}

int ctl_each(struct ctl *ctl, const void *options, size_t n, char **words,
	     int (*one)(struct ctl *ctl, const void *options, const char *word))
{
	int first = CTL_OK;

	for (size_t i = 0; i < n; i++) {
		int r = one(ctl, options, words[i]);

		first = first ? first : r;
	}
	return first;
}

int ctl_flush(void)
{
	if (fflush(stdout) == 0)
		return CTL_OK;
	if (errno == EPIPE)
		return CTL_FAILED;
	clearerr(stdout);
	return ctl_error(CTL_FAILED, "standard output: %s", strerror(errno));
}

/* ---- signals ---- */

/* The handler only notes the number. Outside of transfers the signals keep their default action, so
 * that a request which waits for a name can be ended. */
static volatile sig_atomic_t caught;

static void on_signal(int number)
{
	caught = number;
}

static void set_signals(void (*handler)(int))
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

	for (size_t i = 0; i < array_size(signals); i++) {
		/* Without SA_RESTART, so that a read from a silent pipe ends. */
		struct sigaction a = { .sa_handler = handler, .sa_flags = (int)SA_RESETHAND };
		struct sigaction old;

		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &a, NULL);
	}
}

bool ctl_interrupted(void)
{
	return caught != 0;
}

void ctl_obey_signal(void)
{
	if (!caught)
		return;
	set_signals(SIG_DFL);
	raise(caught);
}

void ctl_catch_signals(void)
{
	set_signals(on_signal);
}

void ctl_release_signals(void)
{
	set_signals(SIG_DFL);
}

void ctl_ignore_signals(void)
{
	set_signals(SIG_IGN);
	caught = 0;
}
