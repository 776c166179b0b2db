/* SPDX-License-Identifier: MIT
 *
 * What systemd is to the daemon, for a test: it holds the listening socket and the fd store, and
 * starts the daemon again with what was kept. A thread reads the notify socket, as systemd does.
 */
#ifndef GPUSHM_TESTS_LIB_KEEPER_H
#define GPUSHM_TESTS_LIB_KEEPER_H

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
	bool isolated;	     /* it starts it in a PID namespace of its own */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned ready;	    /* READY=1 so far */
	unsigned reloading; /* RELOADING=1 so far */
	unsigned marks;	    /* messages of our own that have been read */
	bool done;
	struct kept *kept;
	size_t n_kept;
};

void keeper_init(struct keeper *k, const char *config);
void keeper_start(struct keeper *k); /* and waits for READY=1 */
/* Starts it without waiting; keeper_await() does. */
void keeper_spawn(struct keeper *k);
void keeper_await(struct keeper *k);

/* Ends it by that signal; it must have been alive. */
void keeper_end(struct keeper *k, int signal);
void keeper_done(struct keeper *k);

/* As if a daemon had it kept: the fd is the keeper's now. */
void keeper_keep(struct keeper *k, const char *name, int fd);

/* How many fds are kept, whose names start with that letter. */
size_t keeper_count(struct keeper *k, char letter);

/* How often the log of all its daemons has that text in it. */
unsigned keeper_log_count(const struct keeper *k, const char *text);

/* The generation of the journal that is kept: the highest. */
unsigned long long keeper_generation(struct keeper *k);

#endif
