/* SPDX-License-Identifier: MIT
 *
 * What gpushm-exporter and gpushm-relay begin with.
 */
#include "client/common/process.h"

#include "client/gpushm.h"
#include "proto/systemd/systemd.h"

#include <stdio.h>
#include <sys/resource.h>

void process_options(const struct args_program *p, char *const *argv, void *base)
{
	struct args_program server = *p;
	char version[128];

	snprintf(version, sizeof(version), "%s (libgpushm %s, %s)", GPUSHM_VERSION,
		 gpushm_version(), systemd_library);
	server.synopsis = "[OPTIONS]";
	server.version = version;
	args_read(&server, argv, base);
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
