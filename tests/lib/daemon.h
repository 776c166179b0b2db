/* SPDX-License-Identifier: MIT
 *
 * A private daemon for a test: its own folder, socket and configuration; started until it says
 * READY=1 on a notify socket of ours, stopped until it has exited. Failures end the Check test.
 */
#ifndef GPUSHM_TESTS_LIB_DAEMON_H
#define GPUSHM_TESTS_LIB_DAEMON_H

#include <stdbool.h>
#include <sys/types.h>

#define DAEMON_SO_PEERPIDFD 77 /* SO_PEERPIDFD of asm-generic/socket.h, Linux 6.5 */

struct daemon {
	pid_t pid;
	char folder[64]; /* made by us, removed at the end */
	char socket[96]; /* in it */
	char config[96]; /* in it */
	char log[96];	 /* in it: what the daemon wrote to stderr */
	char copy[96];	 /* in it: its program, if that was copied */
	int notify;	 /* our end of NOTIFY_SOCKET */
};

/* config: the text of gpushmd.conf; "" for the defaults. extra: one more argument, or NULL. */
void daemon_start(struct daemon *d, const char *config, const char *extra);

/* The same with what few tests want. */
struct daemon_options {
	const char *program; /* in the build folder; NULL: "gpushmd" */
	const char *extra;   /* one more argument, or NULL */
	bool copied;	     /* it runs from a copy in its folder, that the test may change */
	unsigned max_fds;    /* RLIMIT_NOFILE, soft and hard; 0: as it is */
	bool isolated;	     /* in a PID namespace of its own: it does not see our pids */
	bool no_peer_pidfd;  /* as on a kernel before 6.5 */
	bool no_stdin;	     /* that is closed */
};
void daemon_start_with(struct daemon *d, const char *config, const struct daemon_options *o);

/* In a child with a PID namespace of its own: has it see no process but its own. */
void daemon_enter_namespace(void);

/* Whether a daemon can be isolated here; else prints "skipped: why". */
bool daemon_may_be_isolated(void);

/* Writes another text to its gpushmd.conf. */
void daemon_write_config(const struct daemon *d, const char *config);

/* SIGHUP, and waits until the log has `text` in it once more than before. */
void daemon_reload(const struct daemon *d, const char *text);

/* The notifications so far are thrown away: daemon_await() is for what comes from now on. */
void daemon_forget_notifications(struct daemon *d);

/* How often the log has `text` in it. */
unsigned daemon_log_count(const struct daemon *d, const char *text);

/* SIGTERM, and it must exit with 0. Prints its log where it does not. */
void daemon_stop(struct daemon *d);

/* SIGKILL; it must have been alive. */
void daemon_kill(struct daemon *d);

/* The same, but its folder stays, socket and all, for daemon_restart(). */
void daemon_crash(struct daemon *d);
void daemon_restart(struct daemon *d);

/* Waits for it to exit by itself; returns the status of waitpid(). */
int daemon_wait(struct daemon *d);

/* Waits for a datagram on the notify socket that has `text` in it. */
void daemon_await(struct daemon *d, const char *text);

/* The log so far; free() it. */
char *daemon_log(const struct daemon *d);

/* The path of something in the build folder, from this program's own; a static buffer for each
 * call. */
const char *build_path(const char *name);

#endif
