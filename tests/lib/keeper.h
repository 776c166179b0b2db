/* SPDX-License-Identifier: MIT
 *
 * Stands in for systemd in a test: it holds the listening socket and the fd store, and starts each
 * next daemon with the stored fds. A thread reads the notify socket, as systemd does.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

struct kept {
	char name[64];
	int fd;
};

struct keeper {
	pid_t pid;
	char folder[64], socket[96], log[96], config[96];
	int listening, notify;
	const char *program; /* in the build folder; "gpushmd" */
	bool isolated;	     /* start daemons in a PID namespace of their own */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned ready;	    /* READY=1 so far */
	unsigned reloading; /* RELOADING=1 so far */
	unsigned marks;	    /* own messages that the thread has read */
	bool done;
	struct kept *kept;
	size_t n_kept;
};

void keeper_init(struct keeper *k, const char *config);
void keeper_start(struct keeper *k); /* waits for READY=1 */
/* Starts a daemon without waiting; keeper_await() waits. */
void keeper_spawn(struct keeper *k);
void keeper_await(struct keeper *k);

/* Ends the daemon by this signal; the daemon must still be alive. */
void keeper_end(struct keeper *k, int signal);
void keeper_done(struct keeper *k);

/* Stores the fd as if a daemon had sent it; the keeper owns it now. */
void keeper_keep(struct keeper *k, const char *name, int fd);

/* The number of stored fds whose names start with this letter. */
size_t keeper_count(struct keeper *k, char letter);

/* Counts how often the text occurs in the log of all its daemons. */
unsigned keeper_log_count(const struct keeper *k, const char *text);

/* The generation of the stored journal: the highest one. */
unsigned long long keeper_generation(struct keeper *k);
