/* SPDX-License-Identifier: MIT
 *
 * gpushmd's command line. Bad arguments and a bad configuration end the program here, with a
 * message on stderr, before anything has changed.
 */
#include "daemon/keeper/keeper.h"
#include "daemon/pool/pools.h"
#include "daemon/server.h"
#include "daemon/state/fd_list.h"
#include "daemon/state/journal.h"
#include "daemon/state/reexec.h"
#include "daemon/util/fds.h"
#include "daemon/util/log.h"
#include "proto/base/args.h"
#include "proto/base/own.h"
#include "proto/systemd/systemd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { EXIT_USAGE = 2 };

struct arguments {
	const char *config, *socket;
	uint64_t journal; /* --check-restart; 0: not asked */
	bool check, dump, debug, no_keeper;
};

static const struct arg args[] = {
	ARG(arguments, config, "config", ARG_TEXT, 'c', "FILE",
	    "read FILE and FILE.d/*.conf (" GPUSHM_SYSCONFDIR "/gpushm/gpushmd.conf)"),
	ARG(arguments, socket, "socket", ARG_TEXT, 's', "PATH",
	    "listen at PATH instead of the configured path"),
	FLAG(arguments, no_keeper, "no-keeper", 0,
	     "run without a second process that keeps all buffers if this one dies"),
	FLAG(arguments, check, "check-config", 0,
	     "print every error of the configuration, and end"),
	ARG(arguments, journal, "check-restart", ARG_COUNT, 0, "N",
	    "check that it can follow a daemon whose journal has version N, and end"),
	FLAG(arguments, dump, "dump-config", 0, "print each value with its file and line, and end"),
	FLAG(arguments, debug, "debug", 0, "also log each connection, request and freed buffer"),
	{ .name = NULL },
};

static void parse(char *const *argv, struct arguments *ret)
{
	char version[128];
	const struct args_program program = {
		.name = "gpushmd",
		.synopsis = "[--config FILE] [--socket PATH] [--no-keeper] [--debug]\n"
			    "       gpushmd --check-config | --dump-config [--config FILE]\n"
			    "       gpushmd --check-restart N [--config FILE]",
		.about = "Own pools of GPU and host memory, and lend named buffers of them to "
			 "processes.",
		.version = version,
		.args = args,
	};

	snprintf(version, sizeof(version), "%s (%s)", GPUSHM_VERSION, systemd_library);
	args_read(&program, argv, ret);
	ret->check |= ret->journal != 0;
}

/* An fd of ours in the place of a standard stream that was closed would be written to; and libuv
 * aborts where one of its own is there (uv__close(), src/unix/core.c). */
static void open_standard_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	close_fd(&fd);
}

/* Called by the daemon that is about to exec this program (state/reexec.c). */
static int check_journal(uint64_t version)
{
	if (version == 0 || (version >= JOURNAL_VERSION_OLDEST && version <= JOURNAL_VERSION_AWAY))
		return EXIT_SUCCESS;
	fprintf(stderr,
		"gpushmd: the journal to take over has version %" PRIu64
		", and gpushmd " GPUSHM_VERSION
		" reads versions %u to %u: it can't follow the one that runs\n",
		version, JOURNAL_VERSION_OLDEST, JOURNAL_VERSION_AWAY);
	return EXIT_FAILURE;
}

/* A daemon that runs already, and execs this program, stays without a keeper: the program gets its
 * fds in this process. */
static bool wants_keeper(const struct arguments *a)
{
	return !a->no_keeper && !a->check && !a->dump && keeper_is_needed() && !fd_list_is_passed();
}

/* A daemon that nobody keeps would look as if it were safe: it ends, and nobody else can say why.
 */
static void on_keeper_killed(int signal)
{
	static const char text[] =
		"gpushmd: error: the keeper was killed: nobody keeps the file descriptors of "
		"buffers any more, so the daemon ends; buffers that no process has mapped are "
		"gone\n";

	alarm(1); /* where nobody reads stderr */
	_exit(write(STDERR_FILENO, text, sizeof(text) - 1) < 0 ? 2 : 1);
}

int main(int argc, char **argv)
{
	struct arguments a = { 0 };
	struct config *config = NULL;
	int r;

	open_standard_streams();
	reexec_hold_signals(true);
	parse(argv, &a);
	log_open(a.debug ? LOG_DEBUG : LOG_INFO);
	if (wants_keeper(&a))
		return keeper_run(argv);
	r = server_load_config(a.config, a.socket, stderr, &config);
	if (r < 0) {
		fprintf(stderr, "gpushmd: the configuration%s%s can't be used: %s\n",
			a.config ? " " : "", a.config ? a.config : "", strerror(-r));
		return EXIT_USAGE;
	}
	if (a.check || a.dump) {
		if (a.dump)
			config_dump(config, stdout);
		else if (a.journal == 0)
			r = pools_check(config, stderr);
		config_free(config);
		return r < 0 ? EXIT_USAGE : check_journal(a.journal);
	}
	signal(SIGPIPE, SIG_IGN);
	signal(KEEPER_KILLED, on_keeper_killed);
	signal(SIGXFSZ, SIG_IGN); /* memory beyond the limit of files is an error: EFBIG */
	umask(077);
	fds_raise_limit(); /* each buffer takes up to three fds */
	return server_run(a.config, a.socket, argv, config);
}
