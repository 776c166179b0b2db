/* SPDX-License-Identifier: MIT
 *
 * What gpushm-exporter and gpushm-relay begin with.
 */
#include "client/common/process.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

void process_refuse_words(const char *program, int argc, char *const *argv)
{
	if (optind == argc)
		return;
	fprintf(stderr, "%s: unexpected word \"%s\"; --help lists the options\n", program,
		argv[optind]);
	exit(2);
}

static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

void process_prepare(bool takes_hangup, sigset_t *ret)
{
	raise_limit();
	sigemptyset(ret);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGINT);
	if (takes_hangup)
		sigaddset(ret, SIGHUP);
	/* The threads inherit the blocked signals. */
	sigprocmask(SIG_BLOCK, ret, NULL);
	signal(SIGPIPE, SIG_IGN);
}
