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
#include "proto/base/own.h"
#include "proto/systemd/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { EXIT_USAGE = 2 };

static const char usage[] =
	"Usage: gpushmd [--config FILE] [--socket PATH] [--no-keeper] [--debug]\n"
	"       gpushmd --check-config | --dump-config [--config FILE]\n"
	"       gpushmd --check-restart N [--config FILE]\n"
	"\n"
	"Own pools of GPU and host memory, and lend named buffers of them to processes.\n"
	"\n"
	"  -c, --config FILE    read FILE and FILE.d/*.conf instead of\n"
	"                       " GPUSHM_SYSCONFDIR "/gpushm/gpushmd.conf\n"
	"  -s, --socket PATH    listen at PATH instead of the configured path\n"
	"      --no-keeper      run without a second process that keeps all buffers if this\n"
	"                       one dies, and starts it again; systemd does both\n"
	"      --check-config   print every error of the configuration, and exit\n"
	"      --check-restart N\n"
	"                       check that this program can take over from a daemon\n"
	"                       whose journal has version N, and exit\n"
	"      --dump-config    print each value with its file and line, and exit\n"
	"      --debug          also log each connection, request and freed buffer\n"
	"  -h, --help           print this text, and exit\n"
	"  -V, --version        print the version, and exit\n"
	"\n"
	"See gpushmd(8), gpushmd.conf(5) and gpushm(7).\n";

struct arguments {
	const char *config, *socket;
	unsigned long journal; /* --check-restart; 0: not asked */
	bool check, dump, debug, no_keeper;
};

static void parse(int argc, char **argv, struct arguments *ret)
{
	enum { CHECK = 256, RESTART, DUMP, DEBUG, NO_KEEPER };
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "socket", required_argument, NULL, 's' },
		{ "check-config", no_argument, NULL, CHECK },
		{ "check-restart", required_argument, NULL, RESTART },
		{ "dump-config", no_argument, NULL, DUMP },
		{ "debug", no_argument, NULL, DEBUG },
		{ "no-keeper", no_argument, NULL, NO_KEEPER },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 },
	};

	for (int c; (c = getopt_long(argc, argv, "c:s:hV", options, NULL)) != -1;) {
		switch (c) {
		case 'c':
			ret->config = optarg;
			break;
		case 's':
			ret->socket = optarg;
			break;
		case CHECK:
			ret->check = true;
			break;
		case RESTART:
			ret->check = true;
			ret->journal = strtoul(optarg, NULL, 10);
			break;
		case DUMP:
			ret->dump = true;
			break;
		case DEBUG:
			ret->debug = true;
			break;
		case NO_KEEPER:
			ret->no_keeper = true;
			break;
		case 'h':
			fputs(usage, stdout);
			exit(EXIT_SUCCESS);
		case 'V':
			printf("gpushmd %s (%s)\n", GPUSHM_VERSION, systemd_library);
			exit(EXIT_SUCCESS);
		default:
			fputs("gpushmd --help says what is allowed\n", stderr);
			exit(EXIT_USAGE);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "gpushmd: \"%s\": no such argument; gpushmd --help\n",
			argv[optind]);
		exit(EXIT_USAGE);
	}
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
static int check_journal(unsigned long version)
{
	if (version == 0 || (version >= JOURNAL_VERSION_OLDEST && version <= JOURNAL_VERSION))
		return EXIT_SUCCESS;
	fprintf(stderr,
		"gpushmd: the journal to take over has version %lu, and gpushmd " GPUSHM_VERSION
		" reads versions %u to %u: it can't follow the one that runs\n",
		version, JOURNAL_VERSION_OLDEST, JOURNAL_VERSION);
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
	parse(argc, argv, &a);
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
