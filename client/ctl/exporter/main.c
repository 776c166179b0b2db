/* SPDX-License-Identifier: MIT
 *
 * gpushm-exporter: what gpushmctl metrics prints, over HTTP. It reads, and changes nothing; its
 * daemon may come and go.
 */
#include "client/common/clients.h"
#include "client/common/process.h"
#include "client/ctl/exporter/exporter.h"
#include "client/ctl/snapshot.h"
#include "client/gpushm.h"
#include "proto/systemd/systemd.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_ADDRESS "127.0.0.1:19400"

struct options {
	const char *listen, *socket;
	bool by_owner, by_stream;
};

static const struct arg args[] = {
	ARG(options, listen, "listen", ARG_TEXT, 'l', "ADDRESS:PORT",
	    "serve this address (" DEFAULT_ADDRESS ")"),
	ARG(options, socket, "socket", ARG_TEXT, 's', "PATH",
	    "connect to this socket ($GPUSHM_SOCKET)"),
	FLAG(options, by_owner, "by-owner", 0, "show what each user holds, too"),
	FLAG(options, by_stream, "by-stream", 0, "show each stream, too"),
	{ .name = NULL },
};

int main(int argc, char **argv)
{
	struct options o = { .listen = DEFAULT_ADDRESS };
	const struct timespec second = { .tv_sec = 1 };
	struct collector *collector = NULL;
	sigset_t signals;
	int r;

	process_options(&(struct args_program){ .name = "gpushm-exporter",
						.about = "Serve what gpushmd counts to Prometheus, "
							 "at http://ADDRESS:PORT/metrics.",
						.args = args },
			argv, &o);
	/* A daemon that restarts is down for this scrape, and up for the next one. */
	setenv("GPUSHM_RECONNECT_MS", "1000", 0);
	process_prepare(false, &signals);
	r = collector_start(o.socket,
			    (o.by_owner ? SNAPSHOT_BY_OWNER : 0) |
				    (o.by_stream ? SNAPSHOT_BY_STREAM : 0),
			    &collector);
	if (r < 0)
		fprintf(stderr, "gpushm-exporter: no thread: %s\n", strerror(-r));
	if (r < 0 || metrics_server_start(o.listen, collector) < 0)
		return 1;
	systemd_notify("READY=1");
	while (sigtimedwait(&signals, NULL, &second) < 0)
		clients_end_slow();
	systemd_notify("STOPPING=1");
	/* The process ends with its threads; none of them owns anything outside of it. */
	_exit(0);
}
