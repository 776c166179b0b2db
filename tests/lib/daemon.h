/* SPDX-License-Identifier: MIT
 *
 * A private daemon for a test, with its own folder, socket and configuration. Starting waits until
 * it sends READY=1 to a notify socket of ours, stopping waits until it has exited. Failures end the
 * Check test.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define DAEMON_SO_PEERPIDFD 77 /* SO_PEERPIDFD of asm-generic/socket.h, Linux 6.5 */

struct container;

struct daemon {
	pid_t pid;
	char folder[64]; /* created and removed by daemon.c */
	char socket[96]; /* in it */
	char config[96]; /* in it */
	char log[96];	 /* in it: what the daemon wrote to stderr */
	char copy[96];	 /* in it: its program, if it was copied */
	int notify;	 /* our end of NOTIFY_SOCKET */
};

/* config: the text of gpushmd.conf; "" for the defaults. extra: one more argument, or NULL. */
void daemon_start(struct daemon *d, const char *config, const char *extra);

/* The same, with options that few tests need. */
struct daemon_options {
	const char *program; /* in the build folder; NULL: "gpushmd" */
	const char *extra;   /* one more argument, or NULL */
	bool copied;	  /* run a copy of the program in its folder, which the test may change */
	unsigned max_fds; /* RLIMIT_NOFILE, soft and hard; 0: unchanged */
	bool ordinary_limits; /* without the capabilities that lift limits of resources */
	bool isolated;	      /* in a PID namespace of its own: it can't see our pids */
	bool no_peer_pidfd;   /* as on a kernel before 6.5 */
	const char *userns;   /* in a user namespace with this map (userns_enter()), or NULL */
	bool no_stdin;	      /* standard input is closed */
	const struct container *container; /* in this one, which gets the folder; or NULL */
};
void daemon_start_with(struct daemon *d, const char *config, const struct daemon_options *o);

/* In a child with a PID namespace of its own: mounts a /proc that shows only this namespace. */
void daemon_enter_namespace(void);

/* Returns whether a daemon can be isolated here; if not, prints "skipped: why". */
bool daemon_may_be_isolated(void);

/* Replaces the text of its gpushmd.conf. */
void daemon_write_config(const struct daemon *d, const char *config);

/* Sends SIGHUP and waits until `text` occurs once more in the log. */
void daemon_reload(const struct daemon *d, const char *text);

/* Drops all notifications so far: daemon_await() then waits for a new one. */
void daemon_forget_notifications(struct daemon *d);

/* Counts how often `text` occurs in the log. */
unsigned daemon_log_count(const struct daemon *d, const char *text);

/* Sends SIGTERM; the daemon must exit with 0. Otherwise prints its log. */
void daemon_stop(struct daemon *d);

/* Sends SIGKILL; the daemon must still be alive. */
void daemon_kill(struct daemon *d);

/* The same, but keeps its folder with the socket for daemon_restart(). */
void daemon_crash(struct daemon *d);
void daemon_restart(struct daemon *d);

/* Waits until the daemon exits by itself; returns the status of waitpid(). */
int daemon_wait(struct daemon *d);

/* Waits for a datagram with `text` in it on the notify socket. Fails at once, with the log, if the
 * daemon ends before. */
void daemon_await(struct daemon *d, const char *text);

/* The log so far; free() it. */
char *daemon_log(const struct daemon *d);

/* The path of a file in the build folder, derived from this program's own path; each call uses its
 * own static buffer. */
const char *build_path(const char *name);
