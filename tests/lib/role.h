/* SPDX-License-Identifier: MIT
 *
 * More client processes for a test: the test's own program once more, in another role. A fresh
 * program, not a bare fork(): CUDA does not survive a fork, and neither do our connections.
 */
#ifndef GPUSHM_TESTS_LIB_ROLE_H
#define GPUSHM_TESTS_LIB_ROLE_H

#include <stddef.h>
#include <sys/types.h>

struct role {
	const char *name;
	int (*run)(char **args); /* returns the exit status; args ends with NULL */
};

/* For main(): where the program was started as a role, runs it and exits. */
void role_dispatch(int argc, char **argv, const struct role *roles, size_t n);

/* A process in a role, its standard input and output at the other end of *to and *from. args ends
 * with NULL. */
struct role_process {
	pid_t pid;
	int to, from;
};
void role_start(struct role_process *p, const char *name, const char *const *args);

/* Reads one line that the role printed; fails the test if it has ended without one. */
void role_read_line(struct role_process *p, char *line, size_t size);
void role_write_line(struct role_process *p, const char *line);

/* Closes its input and waits for its end; returns waitpid()'s status. */
int role_wait(struct role_process *p);

/* As role_wait(), and it must have exited with 0. */
void role_finish(struct role_process *p);

#endif
