/* SPDX-License-Identifier: MIT
 *
 * Measures what an honest user notices of a hostile one: how long its OPENs take on an idle daemon,
 * and beside each attack of hostile.h; and how much memory, how many descriptors and how many lines
 * of the log the hostile user gets out of the daemon.
 *
 * The daemon's loop runs on one processor, all else on another. The daemon and the honest clients
 * have real-time priorities: what is measured is the daemon, not the kernel's scheduler.
 *
 * The control is what the machine does to all processes. The one that echoes runs on the daemon's
 * processor, with the clients' priority: it does not wait for the daemon, but as the daemon it
 * waits while the hypervisor has taken the processor away, or the kernel gives it to ordinary
 * processes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct latency {
	unsigned n;
	double p50, p90, p99, max; /* us */
};

/* What honest clients do, each for itself. */
enum {
	OPENS,	  /* an OPEN each millisecond */
	CONNECTS, /* connect() and HELLO, each 10 ms */
	CONTROL,  /* sends a byte, each millisecond, to a process that sends it back */
	CLIENTS
};

struct attacked {
	struct latency idle[CLIENTS], beside[CLIENTS];
	long rss_before, rss_max; /* KiB of anonymous memory */
	unsigned fds_before, fds_max, lines;
	unsigned long requests; /* a second */
};

struct fairness_options {
	const char *program; /* of the daemon, in the build folder; NULL: "gpushmd" */
	unsigned connections;
	unsigned idle_ms, beside_ms;
};

/* Starts a daemon, measures, and ends it. Failures end the Check test. */
void fairness_measure(const char *attack, const struct fairness_options *o, struct attacked *ret);

/* Gives the daemon's loop a processor, and lets its other threads and the client use another one.
 * Both get real-time priorities, the client the higher one. */
void fairness_place_daemon(pid_t daemon);
void fairness_place_client(pid_t client);

/* The p99 of an OPEN that is promised beside an attack: 3 ms, or 10 times the idle p99. */
double fairness_limit_us(const struct attacked *a);

/* For a program's table of roles: { "honest", fairness_honest_role }. */
int fairness_honest_role(char **args);
