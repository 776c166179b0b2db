/* SPDX-License-Identifier: MIT
 *
 * Stands in for systemd in a test: it holds the listening socket and the fd store, and starts each
 * next daemon with the stored fds. A thread reads the notify socket, as systemd does.
 *
 * With SUPERVISOR=keeper in the environment gpushmd's own keeper does all that instead, and the
 * thread reads what the keeper passes on (keeper.c). What the keeper does not show then is not
 * there: the fds themselves, and the journal's generation.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

struct kept {
	char name[64];
	int fd;
};

struct supervisor {
	pid_t pid;    /* of the daemon */
	pid_t keeper; /* 0: this program is the supervisor */
	char folder[64], socket[96], log[96], config[96];
	int listening, notify;
	const char *program; /* in the build folder, or an absolute path; "gpushmd" */
	bool isolated;	     /* start daemons in a PID namespace of their own */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned ready;		   /* READY=1 so far */
	unsigned reloading;	   /* RELOADING=1 so far */
	unsigned marks;		   /* own messages that the thread has read */
	unsigned deaths, restarts; /* of the daemon: known to the test, reported by the keeper */
	bool with_keeper, is_held; /* is_held: the keeper is stopped, so that no daemon starts */
	bool never_held;	   /* the keeper starts each daemon when it wants to */
	/* A letter: of what this daemon sends, nothing after the first FDSTOREREMOVE of such a name
	 * counts, as if it had been killed there. Not over the keeper. */
	char last_forgotten;
	bool is_cut; /* that one has come */
	bool done;
	struct kept *kept;
	size_t n_kept;
};

/* Whether SUPERVISOR=keeper; then says that a test is skipped. */
bool supervisor_skips(const char *test);

void supervisor_init(struct supervisor *k, const char *config);
void supervisor_start(struct supervisor *k); /* waits for READY=1 */
/* Starts a daemon without waiting; supervisor_await() waits. */
void supervisor_spawn(struct supervisor *k);
void supervisor_await(struct supervisor *k);

/* Returns whether the daemon has died by SIGKILL without supervisor_end(); call supervisor_spawn()
 * then. */
bool supervisor_has_died(struct supervisor *k);

/* Ends the daemon by this signal; the daemon must still be alive. */
void supervisor_end(struct supervisor *k, int signal);
void supervisor_done(struct supervisor *k);

/* Stores the fd as if a daemon had sent it; the supervisor owns it now. Over the keeper only before
 * the first start. */
void supervisor_keep(struct supervisor *k, const char *name, int fd);

/* The number of stored fds whose names start with this letter. */
size_t supervisor_count(struct supervisor *k, char letter);

/* Counts how often the text occurs in the log of all its daemons. */
unsigned supervisor_log_count(const struct supervisor *k, const char *text);

/* The generation of the stored journal: the highest one. Not over the keeper. */
unsigned long long supervisor_generation(struct supervisor *k);
