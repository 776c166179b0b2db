/* SPDX-License-Identifier: MIT
 *
 * gpushm-relay: sealed buffers of this machine as files for others, over HTTP. It reads, and its
 * daemon may come and go.
 */
#include "client/common/clients.h"
#include "client/common/listen.h"
#include "client/common/process.h"
#include "client/gpushm_load_private.h"
#include "client/relay/fleet/fanout.h"
#include "client/relay/fleet/pulls.h"
#include "client/relay/serve/nixl.h"
#include "client/relay/serve/server.h"
#include "client/relay/serve/tls.h"
#include "proto/base/own.h"
#include "proto/systemd/systemd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct options {
	const char *config, *listen;
	bool check;
};

static const struct arg args[] = {
	ARG(options, config, "config", ARG_TEXT, 'c', "FILE",
	    "read this file (" GPUSHM_SYSCONFDIR "/gpushm/gpushm-relay.conf)"),
	FLAG(options, check, "check-config", 0, "say what is wrong with the file, and end"),
	ARG(options, listen, "listen", ARG_TEXT, 'l', "ADDRESS:PORT",
	    "serve this address instead of the file's (" CONFIG_DEFAULT_LISTEN ")"),
	{ .name = NULL },
};

/* What this process has. Lives until its end. */
struct relay {
	struct config *started; /* what it was started with */
	struct config *config;	/* the last one that was good */
	struct offers *offers;
	char base[NI_MAXHOST + NI_MAXSERV + 16]; /* where others reach it; "" */
};

/* An address that means all of this machine's is no name of it for others. */
static bool is_wildcard(const char *address)
{
	return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}

static void set_base(struct relay *relay, const struct listen_place *at)
{
	const struct config *c = relay->config;

	if (c->advertise)
		snprintf(relay->base, sizeof(relay->base), "%s", c->advertise);
	else if (!relay->base[0] && !at->loopback && !is_wildcard(at->text))
		snprintf(relay->base, sizeof(relay->base), "http%s://%s", c->cert ? "s" : "",
			 at->text);
}

static int serve(int fd, const struct listen_place *at, struct relay *relay)
{
	const struct config *c = relay->config;

	if (fd < 0 || server_start(fd, at->loopback, c, relay->offers) < 0)
		return -1;
	set_base(relay, at);
	fprintf(stderr, "gpushm-relay: serves http%s://%s/\n", c->cert ? "s" : "", at->text);
	return 0;
}

static bool describe(int fd, struct listen_place *ret)
{
	if (listen_describe(fd, ret))
		return true;
	fprintf(stderr, "gpushm-relay: systemd has passed a socket that is not a TCP socket\n");
	return false;
}

static int serve_all(struct relay *relay)
{
	const struct config *c = relay->config;
	struct listen_place at;
	_cleanup_(free_ptr) char **names = NULL;
	int n = systemd_receive_fds(&names), r = n < 0 ? n : 0;

	if (n < 0)
		fprintf(stderr, "gpushm-relay: sockets that were passed can't be used: %s\n",
			strerror(-n));
	for (int i = 0; i < n; i++) {
		int fd = SYSTEMD_FIRST_FD + i;

		free(names[i]);
		if (r == 0)
			r = describe(fd, &at) ? serve(fd, &at, relay) : -1;
	}
	for (size_t i = 0; r == 0 && n == 0 && i < c->listen.n; i++) {
		int fd = listen_open("gpushm-relay", c->listen.items[i], &at);

		r = serve(fd, &at, relay);
	}
	return r;
}

static void tell_reload(void)
{
	fprintf(stderr, "gpushm-relay: the configuration was read again\n");
}

/* All of it, or nothing. */
static void reload(struct relay *relay, const struct options *o)
{
	struct config *next = NULL;

	if (config_read(o->config, o->listen, stderr, &next) < 0 ||
	    config_check_reload(relay->started, next, stderr) < 0 || tls_read(next) < 0) {
		fprintf(stderr, "gpushm-relay: the configuration stays as it was\n");
		config_release(next);
		return;
	}
	config_release(relay->config);
	relay->config = next;
	config_use(next);
	server_limit(next);
	if (pulls_use(next) < 0)
		fprintf(stderr, "gpushm-relay: no thread for a [pull] section\n");
	offers_refresh(relay->offers, tell_reload);
}

static int start(struct relay *relay)
{
	int r;

	relay->started = config_ref(relay->config);
	config_use(relay->config);
	gpushm_private_mapping_limit(relay->config->gpu_memory);
	nixl_prepare(relay->config);
	r = fanout_start();
	if (r == 0)
		r = offers_start(relay->config, &relay->offers);
	if (r == 0 && serve_all(relay) < 0)
		return -1;
	if (r == 0)
		r = pulls_start(relay->config, relay->offers, relay->base);
	if (r < 0)
		fprintf(stderr, "gpushm-relay: no thread: %s\n", strerror(-r));
	return r;
}

/* Until a signal ends it. No call of this thread waits for the daemon, nor for a lock that is held
 * by one that does. */
static void run(struct relay *relay, const struct options *o, const sigset_t *signals)
{
	const struct timespec second = { .tv_sec = 1 };
	int signal;

	while ((signal = sigtimedwait(signals, NULL, &second)) < 0 || signal == SIGHUP) {
		if (signal == SIGHUP)
			reload(relay, o);
		clients_end_slow();
		offers_tick(relay->offers);
		tls_refresh(relay->config);
	}
}

/* Where systemd passes sockets at the start, those are served instead. */
static int check_listen(const struct config *c)
{
	bool loopback;

	for (size_t i = 0; i < c->listen.n; i++)
		if (listen_check("gpushm-relay", c->listen.items[i], &loopback) < 0 ||
		    !server_is_safe(c, loopback))
			return -1;
	return 0;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	static struct relay relay;
	sigset_t signals;
	int r;

	process_options(&(struct args_program){ .name = "gpushm-relay",
						.about = "Offer sealed buffers of this machine to "
							 "others, as safetensors files over HTTP.",
						.args = args },
			argv, &o);
	r = config_read(o.config, o.listen, stderr, &relay.config);
	if (r == 0)
		r = tls_read(relay.config);
	/* A certificate that has ended does not keep a reload from what it is for. */
	if (r == 0 && o.check)
		tls_refresh(relay.config);
	if (r == 0 && o.check)
		r = check_listen(relay.config);
	if (r < 0 || o.check)
		return r < 0;
	/* A daemon that restarts is waited for elsewhere. */
	setenv("GPUSHM_RECONNECT_MS", "1000", 0);
	process_prepare(true, &signals);
	if (start(&relay) < 0)
		return 1;
	systemd_notify("READY=1");
	run(&relay, &o, &signals);
	systemd_notify("STOPPING=1");
	/* The process ends with its threads; none of them owns anything outside of it. */
	_exit(0);
}
