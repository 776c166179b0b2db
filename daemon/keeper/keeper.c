/* SPDX-License-Identifier: MIT
 *
 * One loop: signals, notifications, the ends of children, and deadlines. The daemon does not know
 * this program: it speaks systemd's protocol, and finds its fds as under systemd. Where systemd has
 * a setting, the keeper does as gpushmd.service says: Restart=always, RestartSec=250ms,
 * WatchdogSec=30, FileDescriptorStoreMax=32768.
 *
 * The keeper knows nothing of what the fds are, with one exception: if the daemon made its socket
 * itself, the keeper removes the socket's file at the end. It reads no configuration and uses
 * neither CUDA nor libuv, so that there is little that can end it. If it is killed, the daemon
 * says so and ends, too (PR_SET_PDEATHSIG).
 *
 * It owns the kept fds, its two sockets and the daemon's process.
 */
#include "daemon/keeper/keeper.h"

#include "daemon/keeper/kept_fds.h"
#include "daemon/keeper/notify.h"
#include "daemon/keeper/resident.h"
#include "daemon/util/fds.h"
#include "daemon/util/log.h"
#include "daemon/util/program.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/systemd/systemd.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define DELAY_MIN_MS 250u  /* before the next start */
#define DELAY_MAX_MS 4000u /* reached by daemons that end before they are ready */
#define WATCHDOG_US 30000000u
#define START_MS 90000u	  /* until the first WATCHDOG=1: TimeoutStartSec= of systemd */
#define STOP_MS 90000u	  /* from a signal or STOPPING=1 to the end: TimeoutStopSec= */
#define GIVE_BACK_MS 200u /* from some work until the memory for it is given back */
#define OWN_FDS 64u	  /* that the keeper and a starting daemon need beside the kept ones */
#define FDS_LEAST 64u	  /* a daemon, which has half of them, needs some 20 without clients */
#define DATAGRAMS_MAX \
	8192u /* at once; the queue of a socket is shorter (net.unix.max_dgram_qlen) */
#define NEVER UINT64_MAX

#define LISTENER "gpushmd" /* names of the daemon's fds: daemon/ipc/endpoint.c */
#define LISTENER_LOCK "lock"

static const int handled[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD };
/* They wait for the daemon until it has its handlers: reexec_hold_signals(). */
static const int forwarded[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR2 };

struct keeper {
	char *program; /* owned */
	char *const *argv;
	sigset_t mask; /* of this process at its start, and of the daemon */
	int signals;   /* owned; signalfd */
	struct notify notify;
	struct kept_fds kept;
	pid_t daemon;	/* 0: none runs */
	bool ready;	/* this daemon has said READY=1 */
	bool is_late;	/* it has not reported within the interval */
	bool was_ready; /* one of them has */
	bool stopping, ended;
	int status; /* exit status, once ended */
	unsigned delay_ms;
	uint64_t watchdog_us; /* 0: no watchdog */
	uint64_t interval_ms; /* the same for this daemon, which may have chosen another */
	/* CLOCK_MONOTONIC in ms, or NEVER: */
	uint64_t start_at, hung_at, kill_at, give_back_at;
};

bool keeper_is_needed(void)
{
	return !systemd_keeps_fds();
}

static uint64_t from_now(uint64_t ms)
{
	return clock_monotonic_ms() + ms;
}

/* ---- a daemon starts ---- */

static int set_variables(const struct keeper *k)
{
	char number[24], pid[24];
	int r;

	snprintf(number, sizeof(number), "%" PRIu64, k->watchdog_us);
	snprintf(pid, sizeof(pid), "%d", getpid());
	r = setenv("NOTIFY_SOCKET", k->notify.address, 1);
	if (r == 0 && k->watchdog_us)
		r = setenv("WATCHDOG_USEC", number, 1) < 0 || setenv("WATCHDOG_PID", pid, 1) < 0;
	snprintf(number, sizeof(number), "%zu", k->kept.max);
	return r == 0 && setenv("FDSTORE", number, 1) == 0 ? 0 : -ENOMEM;
}

/* The file is looked up again, so that a new version of the program is taken. The daemon has each
 * kept fd open itself: if it may open no more than the keeper keeps, none is too many to be kept.
 */
static void become_daemon(struct keeper *k, pid_t keeper)
{
	sigset_t mask = k->mask;
	int r;

	for (size_t i = 0; i < array_size(forwarded); i++)
		sigaddset(&mask, forwarded[i]);
	sigdelset(&mask, KEEPER_KILLED);
	prctl(PR_SET_PDEATHSIG, KEEPER_KILLED);
	if (getppid() != keeper) /* it died before the line above */
		_exit(EXIT_FAILURE);
	r = set_variables(k);
	if (r == 0)
		r = kept_fds_pass_on(&k->kept);
	if (r == 0 && k->kept.max < KEPT_FDS_MAX)
		r = fds_lower_limit((uint32_t)k->kept.max);
	if (r == 0) {
		sigprocmask(SIG_SETMASK, &mask, NULL);
		execv(k->program, k->argv);
		r = -errno;
	}
	log_error_id(LOG_ID_DAEMON_DIED, "%s can't be run: %s", k->program, strerror(-r));
	_exit(127);
}

static void start_later(struct keeper *k)
{
	k->start_at = from_now(k->delay_ms);
	k->delay_ms = k->delay_ms * 2 < DELAY_MAX_MS ? k->delay_ms * 2 : DELAY_MAX_MS;
}

static void start(struct keeper *k)
{
	pid_t self = getpid();

	k->start_at = NEVER;
	k->ready = k->is_late = false;
	k->interval_ms = k->watchdog_us / 1000;
	k->daemon = fork();
	if (k->daemon == 0)
		become_daemon(k, self);
	if (k->daemon < 0) {
		log_error_id(LOG_ID_DAEMON_DIED, "the daemon can't be started: %s",
			     strerror(errno));
		k->daemon = 0;
		start_later(k);
		return;
	}
	k->hung_at = k->interval_ms ? from_now(START_MS) : NEVER;
}

/* ---- notifications ---- */

/* What another supervisor wants to know, which starts the keeper but keeps no fds. To it a new
 * start is a reload, as a planned restart is. */
static void pass_on(const struct keeper *k, const struct notification *m)
{
	if (m->store || m->forget || (m->stopping && !k->stopping))
		return;
	if (m->ready || m->reloading || m->stopping || m->status || m->alive)
		systemd_notify("%s", m->text);
}

static void pass_on_restart(void)
{
	systemd_notify("RELOADING=1\nMONOTONIC_USEC=%" PRIu64
		       "\nWATCHDOG=1\nSTATUS=the daemon died and is started again",
		       clock_monotonic_ns() / 1000);
}

static void keep(struct keeper *k, struct notification *m)
{
	const char *name = m->name[0] ? m->name : "stored";
	int r = 0;

	for (size_t i = 0; i < m->n_fds && r == 0; i++)
		r = kept_fds_add(&k->kept, name, &m->fds[i]);
	if (r < 0)
		log_error_id(LOG_ID_STATE_NOT_WRITTEN,
			     "a file descriptor of the daemon (%s) can't be kept: %s; %zu are kept",
			     name, strerror(-r), k->kept.n);
}

static void take_notification(struct keeper *k, struct notification *m)
{
	if (m->store)
		keep(k, m);
	else if (m->forget && m->name[0])
		kept_fds_remove(&k->kept, m->name);
	if (m->interval_us)
		k->interval_ms = m->interval_us / 1000;
	if (m->ready) {
		k->ready = k->was_ready = true;
		k->delay_ms = DELAY_MIN_MS;
	}
	if (m->stopping) {
		k->interval_ms = 0;
		k->kill_at = k->kill_at == NEVER ? from_now(STOP_MS) : k->kill_at;
	}
	if (m->ready || m->alive || m->stopping || m->interval_us) {
		k->is_late = false;
		k->hung_at = k->interval_ms ? from_now(k->interval_ms) : NEVER;
	}
	if (m->hung) {
		k->is_late = true;
		k->hung_at = 0;
	}
	pass_on(k, m);
}

/* BARRIER=1 (sd_notify_barrier(3)) needs nothing more: its fd is closed when all before it are
 * read. MAINPID= is not followed: the daemon is the child, also across its exec. */
static void read_notifications(struct keeper *k)
{
	static struct notification m;

	for (unsigned i = 0; i < DATAGRAMS_MAX && notify_receive(&k->notify, &m) > 0; i++) {
		if (m.sender != k->daemon || k->daemon == 0)
			log_debug("pid %d is not the daemon: its notification is dropped",
				  m.sender);
		else if (m.truncated || notification_parse(&m) < 0)
			log_error_id(LOG_ID_STATE_NOT_WRITTEN,
				     "a notification of the daemon can't be read: it is too long, "
				     "brings "
				     "too many file descriptors, or makes no sense");
		else
			take_notification(k, &m);
		notification_done(&m);
	}
}

/* ---- a daemon ends ---- */

static void log_end(const struct keeper *k, pid_t pid, int status)
{
	char how[64], rest[128];

	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how), "was killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(how, sizeof(how), "ended with status %d", WEXITSTATUS(status));
	snprintf(rest, sizeof(rest),
		 "%zu file descriptors are kept, and it is started again in %u ms", k->kept.n,
		 k->delay_ms);
	log_warning_id(LOG_ID_DAEMON_DIED, "the daemon (pid %d) %s; %s", pid, how, rest);
}

static int exit_status(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* What the daemon sent before its end counts. */
static void on_end(struct keeper *k, int status)
{
	pid_t pid = k->daemon;

	read_notifications(k);
	k->daemon = 0;
	k->hung_at = k->kill_at = NEVER;
	/* A daemon that ends by itself before it ever served has said why. */
	if (k->stopping || (!k->was_ready && WIFEXITED(status))) {
		k->ended = true;
		k->status = exit_status(status);
		return;
	}
	/* Somebody else killed it: that says nothing about the next one. */
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		k->delay_ms = DELAY_MIN_MS;
	log_end(k, pid, status);
	pass_on_restart();
	start_later(k);
}

/* As PID 1 the keeper is the parent of all processes that have lost their own. */
static void reap(struct keeper *k)
{
	int status = 0;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == k->daemon)
			on_end(k, status);
}

/* ---- signals ---- */

static void stop(struct keeper *k, int signal)
{
	k->stopping = true;
	if (k->daemon == 0) {
		k->ended = true;
		return;
	}
	k->kill_at = k->kill_at == NEVER ? from_now(STOP_MS) : k->kill_at;
	kill(k->daemon, signal);
}

/* Without a daemon there is nothing to reload, and no reason to wait longer: the administrator has
 * repaired what ended it. */
static void reload(struct keeper *k)
{
	if (k->daemon)
		kill(k->daemon, SIGHUP);
	else if (!k->ended)
		k->start_at = 0;
}

/* For administrators and tests: gpushmd's names begin with a letter that says what the fd is. */
static void log_kept(struct keeper *k)
{
	char text[512];

	read_notifications(k);
	kept_fds_describe(&k->kept, text, sizeof(text));
	log_notice("%zu file descriptors are kept, by the first letters of their names:%s",
		   k->kept.n, text);
}

static void on_signal(struct keeper *k, int signal)
{
	switch (signal) {
	case SIGTERM:
	case SIGINT:
		stop(k, signal);
		break;
	case SIGHUP:
		reload(k);
		break;
	case SIGUSR1:
		log_kept(k);
		break;
	case SIGUSR2:
		if (k->daemon)
			kill(k->daemon, signal);
		break;
	}
}

/* Of the children that have ended by now, the daemon may have ended by the same Ctrl-C. All other
 * signals come after them, so that they find what is true now. */
static void read_signals(struct keeper *k)
{
	struct signalfd_siginfo info;
	bool came[_NSIG] = { false };

	while (read(k->signals, &info, sizeof(info)) == sizeof(info))
		came[info.ssi_signo] = true;
	k->stopping |= came[SIGTERM] || came[SIGINT];
	if (came[SIGCHLD])
		reap(k);
	for (size_t i = 0; i < array_size(handled) && !k->ended; i++)
		if (came[handled[i]])
			on_signal(k, handled[i]);
}

static int open_signals(struct keeper *k)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < array_size(handled); i++)
		sigaddset(&set, handled[i]);
	signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, &k->mask) < 0)
		return -errno;
	k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return k->signals < 0 ? -errno : 0;
}

/* ---- deadlines ---- */

static void kill_daemon(struct keeper *k, const char *why)
{
	log_error_id(LOG_ID_DAEMON_DIED, "the daemon (pid %d) %s: it is killed", k->daemon, why);
	kill(k->daemon, SIGKILL);
	k->hung_at = k->kill_at = NEVER;
}

/* If both processes were frozen for a while, by Ctrl-Z or with their container, the daemon gets
 * some time to report before it counts as hung. */
static void on_late(struct keeper *k)
{
	if (k->is_late) {
		kill_daemon(k, "has not reported within the watchdog's time");
		return;
	}
	k->is_late = true;
	k->hung_at = from_now(k->interval_ms / 2);
}

static void act_on_time(struct keeper *k)
{
	uint64_t now = clock_monotonic_ms();

	if (k->ended)
		return;
	if (k->daemon && now >= k->hung_at)
		on_late(k);
	if (k->daemon && now >= k->kill_at)
		kill_daemon(k, "does not end");
	if (!k->daemon && now >= k->start_at)
		start(k);
	if (now >= k->give_back_at) {
		k->give_back_at = NEVER;
		resident_give_back();
	}
}

static int ms_left(const struct keeper *k)
{
	uint64_t now = clock_monotonic_ms(), first = k->start_at;

	first = k->hung_at < first ? k->hung_at : first;
	first = k->kill_at < first ? k->kill_at : first;
	first = k->give_back_at < first ? k->give_back_at : first;
	if (first == NEVER)
		return -1;
	return first <= now ? 0 : first - now > INT32_MAX ? INT32_MAX : (int)(first - now);
}

/* ---- the whole ---- */

/* systemd's own interval is halved, so that the keeper is faster than systemd. */
static uint64_t choose_interval(void)
{
	uint64_t usec = 0;

	if (!getenv("WATCHDOG_USEC"))
		return WATCHDOG_US;
	if (!systemd_has_watchdog(&usec))
		return 0;
	return getenv("NOTIFY_SOCKET") ? usec / 2 : usec;
}

/* The daemon may open as many as can be kept: at least half of what this process may. */
static int share_fds(struct keeper *k)
{
	uint32_t limit, own;

	fds_raise_limit();
	limit = fds_limit();
	own = limit / 2 < OWN_FDS ? limit / 2 : OWN_FDS;
	k->kept.max = limit - own < KEPT_FDS_MAX ? limit - own : KEPT_FDS_MAX;
	if (limit >= FDS_LEAST)
		return 0;
	log_error_id(LOG_ID_CANT_START,
		     "only %u files may be open, and a keeper and its daemon need %u: raise the "
		     "hard limit (ulimit -Hn)",
		     limit, FDS_LEAST);
	return -EMFILE;
}

static int open_all(struct keeper *k)
{
	int r = share_fds(k);

	if (r < 0)
		return r;
	k->program = program_path();
	k->watchdog_us = choose_interval();
	k->delay_ms = DELAY_MIN_MS;
	k->start_at = k->hung_at = k->kill_at = NEVER;
	r = k->program ? kept_fds_receive(&k->kept) : -ENOENT;
	if (r == 0)
		r = notify_open(&k->notify);
	return r < 0 ? r : open_signals(k);
}

static void run(struct keeper *k)
{
	struct pollfd polled[] = { { k->signals, POLLIN, 0 }, { k->notify.socket, POLLIN, 0 } };

	k->give_back_at = from_now(GIVE_BACK_MS);
	start(k);
	while (!k->ended) {
		if (poll(polled, array_size(polled), ms_left(k)) > 0 && k->give_back_at == NEVER)
			k->give_back_at = from_now(GIVE_BACK_MS);
		read_signals(k);
		read_notifications(k);
		act_on_time(k);
	}
}

/* The daemon leaves its socket to its successor; now none follows. Without the lock's fd the socket
 * came from outside. */
static void remove_socket(const struct keeper *k)
{
	struct sockaddr_un a = { 0 };
	socklen_t len = sizeof(a) - 1;
	int fd = kept_fds_find(&k->kept, LISTENER);

	if (fd >= 0 && kept_fds_find(&k->kept, LISTENER_LOCK) >= 0 &&
	    getsockname(fd, (struct sockaddr *)&a, &len) == 0 && a.sun_path[0])
		unlink(a.sun_path);
}

int keeper_run(char *const *argv)
{
	static struct keeper keeper = { .signals = -1, .notify = { .socket = -1, .file = -1 } };
	struct keeper *k = &keeper;
	int r;

	log_name = "gpushmd keeper";
	k->argv = argv;
	prctl(PR_SET_NAME, "gpushmd-keeper");
	r = open_all(k);
	if (r == 0)
		run(k);
	else
		log_error_id(LOG_ID_CANT_START,
			     "it can't start: %s; gpushmd --no-keeper runs without it",
			     strerror(-r));
	remove_socket(k);
	kept_fds_done(&k->kept);
	notify_close(&k->notify);
	close_fd(&k->signals);
	free(take_ptr(k->program));
	return r < 0 ? EXIT_FAILURE : k->status;
}
