/* SPDX-License-Identifier: MIT
 *
 * First the daemon runs the new program once with --check-restart. It reads the configuration, and
 * its exit status says whether it would start with it and understands the journal that it would
 * get. A file that is missing, can't be executed or lacks a library fails there, too. The daemon
 * continues to serve during the check, and stays if the check fails.
 *
 * Signals are held from the check on: a signal that came before is handled by the loop before the
 * child's end is, and one that comes later reaches the next program.
 */
#include "daemon/state/reexec.h"

#include "daemon/state/journal.h"
#include "daemon/util/log.h"
#include "daemon/util/program.h"
#include "proto/base/own.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LIMIT_MS 10000u
#define ARGS_MAX 64u
#define WHY_MAX 200u

void reexec_hold_signals(bool hold)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

void reexec_init(struct reexec *r, uv_loop_t *loop, char *const *argv,
		 const struct reexec_calls *calls, void *arg)
{
	*r = (struct reexec){ .loop = loop, .argv = argv, .calls = calls, .arg = arg };
	r->program = program_path();
	list_init(&r->asked);
	uv_timer_init(loop, &r->limit);
	r->limit.data = r;
}

void reexec_done(struct reexec *r)
{
	r->ended = true;
	if (r->checking)
		uv_process_kill(&r->check, SIGKILL);
	uv_close((uv_handle_t *)&r->limit, NULL);
	free(take_ptr(r->program));
}

/* on_refused() may ask again: the next refusal is for that one. */
static void refuse(struct reexec *r)
{
	const struct fault f = r->fault;
	struct restarter *it;
	struct list refused;

	reexec_hold_signals(false);
	log_error_id(LOG_ID_NO_RESTART, "no restart: %s", f.text);
	list_init(&refused);
	list_move(&r->asked, &refused);
	list_drain (it, &refused, link)
		it->on_refused(it, &f);
}

static void check(struct reexec *r);

/* Whether a process has suspended, or the daemon evicted, a buffer since the check began: then the
 * program is asked again. At most once, because no version is higher. */
static bool is_outdated(const struct reexec *r)
{
	char why[WHY_MAX];

	return r->calls->version(r->arg, why, sizeof(why)) > r->version;
}

static void on_check_closed(uv_handle_t *handle)
{
	struct reexec *r = handle->data;

	r->checking = false;
	if (r->ended)
		return;
	/* The file may be gone since the check. After go() it is too late to find out: go() ends
	 * every connection. */
	if (r->fault.code == CODE_OK && access(r->program, X_OK) < 0)
		fault(&r->fault, CODE_RESTART, "%s can't be run: %s; gpushmd goes on as it is",
		      r->program, strerror(errno));
	if (r->fault.code == CODE_OK && is_outdated(r)) {
		check(r);
		return;
	}
	if (r->fault.code == CODE_OK)
		r->calls->go(&r->fault, r->arg);
	refuse(r);
}

/* A program that can't read the journal ends with EXIT_FAILURE; an error of the configuration is
 * another status. */
static void tell_failed(struct reexec *r, int status, int signal)
{
	char why[WHY_MAX] = "";

	if (r->version > JOURNAL_VERSION && signal == 0 && status == EXIT_FAILURE)
		r->calls->version(r->arg, why, sizeof(why));
	fault(&r->fault, CODE_RESTART,
	      "%s would not take over: its check ended with %s %d; see the log%s%s; "
	      "gpushmd goes on as it is",
	      r->program ? r->program : "the program", signal ? "signal" : "status",
	      signal ? signal : status, why[0] ? "; " : "", why);
}

static void on_check_exit(uv_process_t *check, int64_t status, int signal)
{
	struct reexec *r = check->data;

	if (!r->ended)
		uv_timer_stop(&r->limit);
	if (r->fault.code == CODE_OK && (status != 0 || signal != 0))
		tell_failed(r, (int)status, signal);
	uv_close((uv_handle_t *)check, on_check_closed);
}

static void on_limit(uv_timer_t *timer)
{
	struct reexec *r = timer->data;

	fault(&r->fault, CODE_RESTART,
	      "%s would not take over: its check did not end in %u s; gpushmd goes on as it is",
	      r->program, LIMIT_MS / 1000);
	uv_process_kill(&r->check, SIGKILL);
}

/* Its stderr is our stderr. */
static int spawn(struct reexec *r, char **args)
{
	uv_stdio_container_t stdio[] = {
		{ .flags = UV_IGNORE },
		{ .flags = UV_IGNORE },
		{ .flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO },
	};
	const uv_process_options_t options = { .exit_cb = on_check_exit,
					       .file = r->program,
					       .args = args,
					       .stdio_count = array_size(stdio),
					       .stdio = stdio };

	r->check.data = r;
	return uv_spawn(r->loop, &r->check, &options);
}

static void check(struct reexec *r)
{
	char option[32], why[WHY_MAX], *args[ARGS_MAX] = { r->argv[0], option };
	size_t n = 2;
	int e;

	r->version = r->calls->version(r->arg, why, sizeof(why));
	snprintf(option, sizeof(option), "--check-restart=%u", r->version);
	for (char *const *at = r->argv + 1; *at && n + 1 < ARGS_MAX; at++)
		args[n++] = *at;
	r->checking = true;
	r->fault = (struct fault){ 0 };
	reexec_hold_signals(true);
	e = spawn(r, args);
	if (e == 0) {
		uv_timer_start(&r->limit, on_limit, LIMIT_MS, 0);
		return;
	}
	fault(&r->fault, CODE_RESTART, "%s can't be run: %s; gpushmd goes on as it is", r->program,
	      strerror(-e));
	uv_close((uv_handle_t *)&r->check, on_check_closed);
}

int reexec_ask(struct reexec *r, struct restarter *who, struct fault *f)
{
	if (!r->program)
		return fault(f, CODE_RESTART,
			     "gpushmd does not know where its program was started from");
	if (who)
		list_insert(&r->asked, &who->link);
	if (!r->checking)
		check(r);
	return -EINPROGRESS;
}
