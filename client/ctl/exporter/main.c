/* SPDX-License-Identifier: MIT
 *
 * gpushm-exporter: what gpushmctl metrics prints, over HTTP. It reads, and changes nothing; its
 * daemon may come and go.
 */
#include "client/common/clients.h"
#include "client/common/process.h"
#include "client/ctl/exporter/server.h"
#include "client/ctl/snapshot.h"
#include "client/gpushm.h"
#include "proto/systemd/systemd.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_ADDRESS "127.0.0.1:19400"

struct options {
	const char *listen, *socket;
	unsigned by; /* enum snapshot_by */
};

static const char usage[] =
	"Usage: gpushm-exporter [OPTIONS]\n\n"
	"Serve what gpushmd counts to Prometheus, at http://ADDRESS:PORT/metrics.\n\n"
	"Options:\n"
	"  -l, --listen ADDRESS:PORT  serve this address (" DEFAULT_ADDRESS ")\n"
	"  -s, --socket PATH          connect to this socket ($GPUSHM_SOCKET)\n"
	"      --by-owner             show what each user holds, too\n"
	"      --by-stream            show each stream, too\n"
	"  -h, --help                 print this text\n"
	"  -V, --version              print the version\n\n"
	"gpushm-exporter(8) is the manual.\n";

static void read_options(int argc, char **argv, struct options *ret)
{
	static const struct option known[] = { { "listen", required_argument, NULL, 'l' },
					       { "socket", required_argument, NULL, 's' },
					       { "by-owner", no_argument, NULL, 'o' },
					       { "by-stream", no_argument, NULL, 'S' },
					       { "help", no_argument, NULL, 'h' },
					       { "version", no_argument, NULL, 'V' },
					       { 0 } };
	int c;

	while ((c = getopt_long(argc, argv, "l:s:hV", known, NULL)) != -1) {
		if (c == 'l')
			ret->listen = optarg;
		else if (c == 's')
			ret->socket = optarg;
		else if (c == 'o')
			ret->by |= SNAPSHOT_BY_OWNER;
		else if (c == 'S')
			ret->by |= SNAPSHOT_BY_STREAM;
		else if (c == 'h')
			exit(fputs(usage, stdout) < 0);
		else if (c == 'V')
			exit(printf("gpushm-exporter %s (libgpushm %s, %s)\n", GPUSHM_VERSION,
				    gpushm_version(), systemd_library) < 0);
		else
			exit(2);
	}
	process_refuse_words("gpushm-exporter", argc, argv);
}

int main(int argc, char **argv)
{
	struct options o = { .listen = DEFAULT_ADDRESS };
	const struct timespec second = { .tv_sec = 1 };
	struct collector *collector = NULL;
	sigset_t signals;
	int socket, r;

	read_options(argc, argv, &o);
	/* A daemon that restarts is down for this scrape, and up for the next one. */
	setenv("GPUSHM_RECONNECT_MS", "1000", 0);
	process_prepare(false, &signals);
	socket = server_listen(o.listen);
	if (socket < 0)
		return 1;
	r = collector_start(o.socket, o.by, &collector);
	if (r < 0)
		fprintf(stderr, "gpushm-exporter: no thread: %s\n", strerror(-r));
	if (r < 0 || metrics_server_start(socket, collector) < 0)
		return 1;
	systemd_notify("READY=1");
	while (sigtimedwait(&signals, NULL, &second) < 0)
		clients_end_slow();
	systemd_notify("STOPPING=1");
	/* The process ends with its threads; none of them owns anything outside of it. */
	_exit(0);
}
