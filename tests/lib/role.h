/* SPDX-License-Identifier: MIT
 *
 * More client processes for a test: each runs the test's own program again, in another role. It is
 * a new program, not only a fork(): CUDA does not survive a fork, and neither do our connections.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct role {
	const char *name;
	int (*run)(char **args); /* returns the exit status; args ends with NULL */
};

/* For main(): if the program was started as a role, runs the role and exits. */
void role_dispatch(int argc, char **argv, const struct role *roles, size_t n);

/* A process in a role. *to and *from are the other ends of its standard input and output. args ends
 * with NULL. */
struct role_process {
	pid_t pid;
	int to, from;
};
void role_start(struct role_process *p, const char *name, const char *const *args);

/* The same; the child is made with these flags of clone(2), and calls enter(arg) first. */
void role_start_in(struct role_process *p, const char *name, const char *const *args, int flags,
		   void (*enter)(const void *arg), const void *arg);

/* Reads one line that the role printed; fails the test if the role ended without one. */
void role_read_line(struct role_process *p, char *line, size_t size);
void role_write_line(struct role_process *p, const char *line);

/* Closes the role's input and waits for its end; returns the status of waitpid(). */
int role_wait(struct role_process *p);

/* As role_wait(); the role must exit with 0. */
void role_finish(struct role_process *p);
