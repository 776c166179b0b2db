/* SPDX-License-Identifier: MIT
 *
 * The broker puts the rooms together, in this order: the socket, so that clients can queue; the
 * pools, which may take the driver a while; then the listener, and READY=1. It takes them apart in
 * reverse when a signal says so. It owns the loop, the configuration and the signals, and decides
 * nothing about buffers.
 */
#include "daemon/broker.h"

#include "daemon/clock.h"
#include "daemon/endpoint.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/pools.h"
#include "daemon/restore.h"
#include "proto/own.h"

#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <systemd/sd-daemon.h>

static const int signals[] = { SIGTERM, SIGINT, SIGHUP };

#define HOUSEKEEPING_MS 1000u

struct broker {
	uv_loop_t loop;
	const char *config_path, *socket_path; /* of the command line */
	struct config *config;		       /* owned */
	struct store store;
	struct slots slots;
	struct archive archive;
	struct endpoint endpoint;
	struct service service;
	struct pools pools;
	struct listener listener;
	bool listening, stopping, failed;
	uv_signal_t signals[array_size(signals)];
	uv_timer_t watchdog, housekeeping;
};

int broker_load_config(const char *config_path, const char *socket_path, FILE *errors,
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

static void on_pools_closed(void *arg)
{
	struct broker *b = arg;

	for (size_t i = 0; i < array_size(signals); i++)
		uv_close((uv_handle_t *)&b->signals[i], NULL);
	uv_close((uv_handle_t *)&b->watchdog, NULL);
	uv_close((uv_handle_t *)&b->housekeeping, NULL);
	waiters_done(&b->service.waiters);
	pools_done(&b->pools);
}

static void stop(struct broker *b)
{
	if (b->stopping)
		return;
	b->stopping = true;
	sd_notify(0, "STOPPING=1");
	log_notice("stopping");
	b->service.reaper.ending = true;
	/* What is kept stays as it is: for the next daemon this end is like any other. */
	b->service.catalog.archive = NULL;
	if (b->store.systemd)
		catalog_let_go(&b->service.catalog);
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
	if (!b->listening)
		return;
	errors = open_memstream(&text, &len);
	if (!errors)
		return;
	r = broker_load_config(b->config_path, b->socket_path, errors, &fresh);
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

static void on_signal(uv_signal_t *handle, int number)
{
	if (number == SIGHUP)
		reload(handle->data);
	else
		stop(handle->data);
}

/* ---- the beginning ---- */

static void on_watchdog(uv_timer_t *timer)
{
	sd_notify(0, "WATCHDOG=1");
}

static void on_published(const struct buffer *buffer, void *arg)
{
	struct broker *b = arg;

	if (buffer->key)
		waiters_wake(&b->service.waiters, buffer->key);
}

/* What systemctl status shows. */
static void tell_status(struct broker *b, const char *before)
{
	const struct pool *pool, *failed = NULL;
	unsigned n = 0;

	list_foreach (pool, &b->pools.all, link) {
		if (pool->state != POOL_POOL_FAILED)
			continue;
		n++;
		if (!failed)
			failed = pool;
	}
	if (failed)
		sd_notifyf(0, "%sSTATUS=%u pools, %u of them failed: %s: %s", before, b->pools.open,
			   n, failed->config.name, failed->why);
	else
		sd_notifyf(0, "%sSTATUS=%u pools", before, b->pools.open);
}

static void on_pools_failed(void *arg)
{
	struct broker *b = arg;

	if (b->listening)
		tell_status(b, "");
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

/* ---- what outlives us ---- */

static struct archive_head head_of(const struct broker *b)
{
	struct archive_head head = { .next_buffer = b->service.catalog.next_buffer,
				     .next_lease = b->service.catalog.next_lease,
				     .next_pool = b->pools.last_id + 1 };

	memcpy(head.daemon, b->service.id, sizeof(head.daemon));
	return head;
}

/* Writes a new journal in place of the one in use; on a failure that one goes on. */
static int renew_archive(struct broker *b, uint64_t generation)
{
	struct archive_head head = head_of(b);
	struct archive fresh;
	int r = archive_init(&fresh, &b->store, &b->slots, generation, &head);

	if (r == 0)
		r = catalog_archive(&b->service.catalog, &fresh);
	if (r == 0)
		r = archive_complete(&fresh);
	if (r < 0) {
		log_error("no new journal can be written: %s", strerror(-r));
		archive_done(&fresh);
		return r;
	}
	archive_done(&b->archive);
	b->archive = fresh;
	b->service.catalog.archive = &b->archive;
	return 0;
}

static void on_housekeeping(uv_timer_t *timer)
{
	struct broker *b = timer->data;

	if (b->service.catalog.archive && archive_is_stale(&b->archive))
		renew_archive(b, b->archive.journal.generation + 1);
	pools_sweep(&b->pools);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* What an earlier daemon left. 0 or -errno. */
static int go_on(struct broker *b)
{
	struct catalog *c = &b->service.catalog;
	struct restored was = { 0 };
	int r = restore(&b->store, &b->service, &b->pools, &was);

	if (r < 0)
		return r;
	if (was.any) {
		memcpy(b->service.id, was.head.daemon, sizeof(b->service.id));
		/* Both start at the clock, so they are later unless the clock was set back. */
		c->next_buffer = later(c->next_buffer, was.head.next_buffer);
		c->next_lease = later(c->next_lease, was.head.next_lease);
		b->pools.last_id = (uint32_t)later(b->pools.last_id + 1, was.head.next_pool) - 1;
	}
	catalog_take_slots(c, &b->slots);
	store_drop_rest(&b->store);
	pools_sweep(&b->pools);
	/* Where nobody keeps fds a journal would be written for nobody. */
	r = b->store.systemd ? renew_archive(b, was.any ? was.generation + 1 : 1) : 0;
	/* Not before: what goes now is to be forgotten by who keeps its fds. */
	if (r == 0)
		catalog_sweep(c);
	return r;
}

static void on_pools_ready(void *arg)
{
	struct broker *b = arg;
	struct pool *pool;

	list_foreach (pool, &b->pools.all, link)
		if (b->service.catalog.archive && archive_pool(&b->archive, pool) < 0)
			log_error("pool \"%s\" would not survive a restart", pool->config.name);
	if (listen_now(b) < 0) {
		b->failed = true;
		stop(b);
		return;
	}
	log_write(LOG_NOTICE, &(struct log_about){ .message_id = LOG_ID_STARTED },
		  "gpushmd " GPUSHM_VERSION " serves %u pools at %s", b->pools.open,
		  b->endpoint.path ? b->endpoint.path : "systemd's socket");
	tell_status(b, "READY=1\n");
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
	s->kept = b->store.systemd;
	s->catalog.on_published = on_published;
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
	uv_timer_init(&b->loop, &b->housekeeping);
	b->housekeeping.data = b;
	uv_timer_start(&b->housekeeping, on_housekeeping, HOUSEKEEPING_MS, HOUSEKEEPING_MS);
	uv_timer_init(&b->loop, &b->watchdog);
	if (sd_watchdog_enabled(0, &usec) > 0)
		uv_timer_start(&b->watchdog, on_watchdog, usec / 2000, usec / 2000);
}

static int start(struct broker *b)
{
	int r = store_open(&b->store);

	if (r == 0)
		r = endpoint_open(b->config, &b->store, &b->endpoint);
	if (r == 0)
		r = uv_loop_init(&b->loop);
	if (r == 0)
		r = slots_init(&b->slots);
	if (r == 0)
		r = service_init(b);
	if (r < 0)
		return r;
	b->archive.journal = JOURNAL_NONE;
	waiters_init(&b->service.waiters, &b->loop);
	reaper_init(&b->service.reaper, &b->loop, &b->service.catalog);
	start_signals(b);
	r = pools_init(&b->pools, &b->loop, b->config, on_pools_ready, b);
	b->pools.on_failed = on_pools_failed;
	if (r == 0)
		r = go_on(b);
	/* What was kept can be handed on at once; the driver takes its time. */
	if (r == 0 && b->service.catalog.n_buffers > 0)
		r = listen_now(b);
	if (r == 0)
		pools_open(&b->pools);
	return r;
}

int broker_run(const char *config_path, const char *socket_path, struct config *config)
{
	static struct broker broker;
	struct broker *b = &broker;
	int r;

	b->config_path = config_path;
	b->socket_path = socket_path;
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
	archive_done(&b->archive);
	slots_done(&b->slots);
	store_close(&b->store);
	arena_done(&b->service.unpack);
	arena_done(&b->service.build);
	endpoint_close(&b->endpoint);
	config_free(b->config);
	return b->failed;
}
