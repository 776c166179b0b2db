/* SPDX-License-Identifier: MIT
 *
 * The broker puts the rooms together, in this order: the socket, so that clients can queue; the
 * pools, which may take the driver a while; then the listener, and READY=1. It takes them apart in
 * reverse when a signal says so, and leaves them as they are for a program that takes over. It owns
 * the loop, the configuration and the signals, and decides nothing about buffers.
 */
#include "daemon/server.h"

#include "daemon/ipc/endpoint.h"
#include "daemon/ipc/listener.h"
#include "daemon/ipc/service.h"
#include "daemon/pool/pools.h"
#include "daemon/sd_notify.h"
#include "daemon/state/handover.h"
#include "daemon/util/log.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <systemd/sd-daemon.h>

static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR2 };

#define HOUSEKEEPING_MS 1000u

struct broker {
	uv_loop_t loop;
	const char *config_path, *socket_path; /* of the command line */
	char *const *argv;
	struct config *config; /* owned */
	struct handover estate;
	struct endpoint endpoint;
	struct service service;
	struct pools pools;
	struct listener listener;
	bool listening, ready, stopping, failed;
	uv_signal_t signals[array_size(signals)];
	uv_timer_t watchdog, housekeeping;
	uv_timer_t patience; /* with a driver, at the end */
};

int server_load_config(const char *config_path, const char *socket_path, FILE *errors,
		       struct config **ret)
{
	struct config *config = NULL;
	char *copy = NULL;
	int r = config_load(config_path, errors, &config);

	if (r < 0)
		return r;
	if (socket_path) {
		copy = strdup(socket_path);
		if (!copy) {
			config_free(config);
			return -ENOMEM;
		}
		free(config->socket_path);
		config->socket_path = copy;
	}
	*ret = config;
	return 0;
}

/* ---- the end ---- */

/* What is left to do needs the driver, which has it all back with the process. */
static void on_impatient(uv_timer_t *timer)
{
	struct broker *b = timer->data;

	log_warning("a driver call has not returned for %u s: gpushmd ends without it",
		    b->config->driver_timeout);
	endpoint_close(&b->endpoint);
	_exit(b->failed);
}

static void on_pools_closed(void *arg)
{
	struct broker *b = arg;

	/* Its thread can't be waited for. */
	if (!b->pools.probed)
		on_impatient(&b->patience);
	for (size_t i = 0; i < array_size(signals); i++)
		uv_close((uv_handle_t *)&b->signals[i], NULL);
	uv_close((uv_handle_t *)&b->watchdog, NULL);
	uv_close((uv_handle_t *)&b->patience, NULL);
	uv_close((uv_handle_t *)&b->housekeeping, NULL);
	uv_close((uv_handle_t *)&b->service.busy_poll.idle, NULL);
	waiters_done(&b->service.waiters);
	pools_done(&b->pools);
}

static void stop(struct broker *b)
{
	if (b->stopping)
		return;
	b->stopping = true;
	notify_stopping();
	log_notice("stopping");
	uv_timer_start(&b->patience, on_impatient, b->config->driver_timeout * 1000ull, 0);
	if (b->listening)
		listener_drain(&b->listener);
	b->service.reaper.ending = true;
	/* What is kept stays as it is: for the next daemon this end is like any other. */
	b->service.catalog.archive = NULL;
	if (b->estate.store.systemd) {
		b->service.catalog.board = NULL;
		catalog_let_go(&b->service.catalog);
	}
	reexec_done(&b->service.reexec);
	if (b->listening)
		listener_done(&b->listener);
	reaper_done(&b->service.reaper);
	catalog_clear(&b->service.catalog);
	pools_close(&b->pools, on_pools_closed);
}

/* ---- the configuration again ---- */

static void log_lines(char *text)
{
	for (char *at = text, *line; (line = strsep(&at, "\n"));)
		if (*line)
			log_write(LOG_ERR, &(struct log_about){ .message_id = LOG_ID_CONFIG }, "%s",
				  line);
}

static void take_config(struct broker *b, struct config *fresh)
{
	char names[256];
	size_t n = config_needs_restart(b->config, fresh, names, sizeof(names));

	if (n)
		log_warning("reloaded, but these need a restart: %s", names);
	b->service.config = fresh;
	b->service.catalog.accounts.config = fresh;
	b->service.catalog.default_pool = fresh->default_pool;
	pools_reload(&b->pools, fresh);
	config_free(b->config);
	b->config = fresh;
}

/* The old configuration stays in force where the new one has a fault. */
static void reload(struct broker *b)
{
	struct config *fresh = NULL;
	char *text = NULL;
	size_t len = 0;
	FILE *errors;
	int r;

	/* Pools are still being made from the old one. */
	if (!b->ready)
		return;
	errors = open_memstream(&text, &len);
	if (!errors)
		return;
	r = server_load_config(b->config_path, b->socket_path, errors, &fresh);
	fclose(errors);
	log_lines(text);
	free(text);
	if (r < 0) {
		log_error("not reloaded: %s; the old configuration stays in force", strerror(-r));
		return;
	}
	take_config(b, fresh);
	log_notice("configuration reloaded");
}

/* ---- another program ---- */

static int list_all(struct broker *b, struct fd_list *m)
{
	int r = endpoint_list(&b->endpoint, b->listening ? b->listener.socket : b->endpoint.socket,
			      m);

	return r < 0 ? r : handover_list(&b->estate, m);
}

/* Nothing is taken apart: to who comes next this is a death, but that it has the fds. */
static int go(struct fault *f, void *arg)
{
	_cleanup_(fd_list_done) struct fd_list m = { 0 };
	struct broker *b = arg;
	const char *program = b->service.reexec.program;
	int r;

	/* Linux ends the other threads first, and waits for those that are in the kernel. */
	if (pools_stuck(&b->pools, b->config->driver_timeout))
		return fault(
			f, CODE_RESTART,
			"a driver call has not returned for %u s, and a restart would wait for "
			"it; gpushmd goes on as it is",
			b->config->driver_timeout);
	if (b->listening)
		listener_drain(&b->listener);
	r = list_all(b, &m);
	if (r == 0) {
		log_notice("restarting as %s, with %zu file descriptors", program, m.n);
		notify_restarting();
		r = fd_list_exec(&m, program, b->argv);
	}
	handover_go_on(&b->estate);
	notify_ready(&b->pools);
	return fault(f, CODE_RESTART, "%s can't be run: %s; gpushmd goes on, and is connected anew",
		     program, strerror(-r));
}

static void restart(struct broker *b)
{
	struct fault f;

	log_notice("a signal asks for a restart");
	if (!b->stopping && reexec_ask(&b->service.reexec, NULL, &f) != -EINPROGRESS)
		log_error("no restart: %s", f.text);
}

static void on_signal(uv_signal_t *handle, int number)
{
	if (number == SIGHUP)
		reload(handle->data);
	else if (number == SIGUSR2)
		restart(handle->data);
	else
		stop(handle->data);
}

/* ---- the beginning ---- */

static void on_watchdog(uv_timer_t *timer)
{
	notify_alive();
}

static void on_published(const struct buffer *buffer, void *arg)
{
	struct broker *b = arg;

	if (buffer->key)
		waiters_wake(&b->service.waiters, buffer->key);
}

static void on_changed(const struct buffer *buffer, const char *key, void *arg)
{
	struct broker *b = arg;

	waiters_notice_change(&b->service.waiters, key, buffer->id);
}

static void on_pools_failed(void *arg)
{
	struct broker *b = arg;

	if (b->listening)
		notify_pools(&b->pools);
}

static int listen_now(struct broker *b)
{
	int r = b->listening
			? 0
			: listener_init(&b->listener, &b->service, take_fd(&b->endpoint.socket));

	if (r < 0)
		log_error("the socket can't be served: %s", strerror(-r));
	else
		b->listening = true;
	return r;
}

static void on_housekeeping(uv_timer_t *timer)
{
	struct broker *b = timer->data;

	handover_tidy(&b->estate);
	pools_look(&b->pools, b->config->driver_timeout);
	ratelimit_settle(&b->service.violation_lines, clock_monotonic_ns());
}

static void on_pools_ready(void *arg)
{
	struct broker *b = arg;
	struct pool *pool;

	b->ready = true;
	list_foreach (pool, &b->pools.all, link)
		handover_add_pool(&b->estate, pool);
	if (listen_now(b) < 0) {
		b->failed = true;
		stop(b);
		return;
	}
	log_write(LOG_NOTICE, &(struct log_about){ .message_id = LOG_ID_STARTED },
		  "gpushmd " GPUSHM_VERSION " serves %u pools at %s", b->pools.open,
		  b->endpoint.path ? b->endpoint.path : "systemd's socket");
	notify_ready(&b->pools);
	handover_audit(&b->estate);
}

static int service_init(struct broker *b)
{
	struct service *s = &b->service;
	int r = catalog_init(&s->catalog, b->config, &b->pools.all);

	if (r == 0)
		r = arena_init(&s->unpack, UNPACK_MAX);
	if (r == 0)
		r = arena_init(&s->build, 2 * UNPACK_MAX);
	if (r == 0 && getrandom(s->id, sizeof(s->id), 0) != sizeof(s->id))
		r = -EIO;
	s->config = b->config;
	s->started_ns = clock_monotonic_ns();
	s->kept = b->estate.store.systemd;
	s->catalog.on_published = on_published;
	s->catalog.on_changed = on_changed;
	s->catalog.arg = b;
	return r;
}

static void start_signals(struct broker *b)
{
	uint64_t usec = 0;

	for (size_t i = 0; i < array_size(signals); i++) {
		uv_signal_init(&b->loop, &b->signals[i]);
		b->signals[i].data = b;
		uv_signal_start(&b->signals[i], on_signal, signals[i]);
	}
	reexec_hold_signals(false);
	uv_timer_init(&b->loop, &b->housekeeping);
	b->housekeeping.data = b;
	uv_timer_start(&b->housekeeping, on_housekeeping, HOUSEKEEPING_MS, HOUSEKEEPING_MS);
	uv_timer_init(&b->loop, &b->watchdog);
	uv_timer_init(&b->loop, &b->patience);
	b->patience.data = b;
	if (sd_watchdog_enabled(0, &usec) > 0)
		uv_timer_start(&b->watchdog, on_watchdog, usec / 2000, usec / 2000);
}

static int start(struct broker *b)
{
	int r = handover_open(&b->estate, &b->service.catalog, &b->service.reaper, &b->pools,
			      b->service.id);

	if (r == 0)
		r = endpoint_open(b->config, &b->estate.store, &b->endpoint);
	if (r == 0)
		r = uv_loop_init(&b->loop);
	if (r == 0)
		r = service_init(b);
	if (r == 0)
		r = waiters_init(&b->service.waiters, &b->loop);
	if (r < 0)
		return r;
	busy_poll_init(&b->service.busy_poll, &b->loop);
	reexec_init(&b->service.reexec, &b->loop, b->argv, go, b);
	reaper_init(&b->service.reaper, &b->loop, &b->service.catalog);
	start_signals(b);
	r = pools_init(&b->pools, &b->loop, b->config, on_pools_ready, b);
	b->pools.on_failed = on_pools_failed;
	if (r == 0)
		r = handover_inherit(&b->estate);
	/* What was kept can be handed on at once; the driver takes its time. */
	if (r == 0 && b->service.catalog.n_buffers > 0)
		r = listen_now(b);
	if (r == 0)
		pools_open(&b->pools);
	return r;
}

int server_run(const char *config_path, const char *socket_path, char *const *argv,
	       struct config *config)
{
	static struct broker broker;
	struct broker *b = &broker;
	int r;

	b->config_path = config_path;
	b->socket_path = socket_path;
	b->argv = argv;
	b->config = config;
	r = start(b);
	if (r < 0) {
		log_error("gpushmd can't start: %s", strerror(-r));
		endpoint_close(&b->endpoint);
		config_free(b->config);
		return 1;
	}
	uv_run(&b->loop, UV_RUN_DEFAULT);
	uv_loop_close(&b->loop);
	catalog_done(&b->service.catalog);
	handover_close(&b->estate);
	arena_done(&b->service.unpack);
	arena_done(&b->service.build);
	endpoint_close(&b->endpoint);
	config_free(b->config);
	return b->failed;
}
