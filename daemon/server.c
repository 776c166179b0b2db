/* SPDX-License-Identifier: MIT
 *
 * The server starts the daemon's parts in this order: the socket, so that clients can queue; the
 * state of an earlier daemon; the pools, for which the driver may need a while; then the listener,
 * and READY=1. On a signal it ends them in reverse order, or leaves all as it is for a program that
 * takes over. It owns the loop, the configuration and the signals, and decides nothing about
 * buffers.
 */
#include "daemon/server.h"

#include "daemon/ipc/endpoint.h"
#include "daemon/ipc/listener.h"
#include "daemon/ipc/service.h"
#include "daemon/pool/pools.h"
#include "daemon/state/deserialize.h"
#include "daemon/state/handover.h"
#include "daemon/util/log.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/userns.h"
#include "proto/systemd/systemd.h"

#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>

static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR2 };

#define HOUSEKEEPING_MS 1000u
#define RETAINED_LOOKS 256u /* in each of these turns */
#define TRIM_OBJECTS 256u
/* Larger blocks are mappings of their own: they grow without being copied, and free() unmaps them.
 * malloc would raise this limit by itself to the largest block that was freed, up to 32 MiB. Then
 * the next large table took twice its memory while it was described. */
#define MMAP_BYTES (128 << 10)
#define TRIM_PAD (128u << 10) /* bytes that stay free; what malloc keeps of itself */

struct server {
	uv_loop_t loop;
	const char *config_path, *socket_path; /* from the command line; or NULL */
	char *const *argv;
	struct config *config; /* owned */
	struct config *first;  /* owned; of which the pools and the socket were made */
	struct handover handover;
	struct endpoint endpoint;
	struct service service;
	struct pools pools;
	struct listener listener;
	bool listening, ready, stopping, failed;
	bool reload_due;   /* SIGHUP came while the pools were being made */
	bool ready_is_due; /* systemd did not read READY=1: send it again */
	uv_signal_t signals[array_size(signals)];
	uv_timer_t watchdog, housekeeping;
	uv_timer_t end_timeout; /* for a driver call that is under way when the daemon stops */
	struct {
		uint64_t requests, objects; /* when memory was last given back; or more objects */
	} trimmed;
};

/* ---- what systemd is told ---- */

/* Sends `before`, and the line that systemctl status shows. 0 or -errno. */
static int notify_pools(const struct server *s, const char *before)
{
	const struct pool *pool, *failed = NULL;
	const char *noun = s->pools.open == 1 ? "pool" : "pools";
	unsigned n = 0;

	list_foreach (pool, &s->pools.all, link) {
		if (!pool_trouble(pool))
			continue;
		n++;
		if (!failed)
			failed = pool;
	}
	if (failed)
		return systemd_notify("%sSTATUS=%u %s, %u of them failed: %s: %s", before,
				      s->pools.open, noun, n, failed->config.name,
				      pool_trouble(failed));
	return systemd_notify("%sSTATUS=%u %s", before, s->pools.open, noun);
}

/* Also after a restart that failed. */
static void notify_ready(struct server *s)
{
	s->ready_is_due = notify_pools(s, "READY=1\n") == -ETIMEDOUT;
}

/* For systemd a restart is a reload: the process stays, and says when it is ready again. systemd
 * 253 and later use the time to know which reload READY=1 belongs to. */
static int notify_restarting(void)
{
	return systemd_notify("RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=restarting",
			      clock_monotonic_ns() / 1000);
}

/* ---- the configuration ---- */

int server_load_config(const char *config_path, const char *socket_path, FILE *errors,
		       struct config **ret)
{
	_cleanup_(free_ptr) char *path = socket_path ? strdup(socket_path) : NULL;
	int r = socket_path && !path ? -ENOMEM : config_load(config_path, errors, ret);

	if (r < 0 || !path)
		return r;
	free((*ret)->socket_path);
	(*ret)->socket_path = take_ptr(path);
	return 0;
}

static void log_lines(int level, char *text)
{
	for (char *at = text, *line; (line = strsep(&at, "\n"));)
		if (*line)
			log_write(level, &(struct log_about){ .message_id = LOG_ID_CONFIG }, "%s",
				  line);
}

static void take_config(struct server *s, struct config *fresh)
{
	char *names = s->service.needs_restart;

	config_needs_restart(s->first, fresh, names, sizeof(s->service.needs_restart));
	if (*names)
		log_warning_id(LOG_ID_CONFIG, "reloaded, but these need a restart: %s", names);
	s->service.config = fresh;
	s->service.catalog.accounts.config = fresh;
	s->service.catalog.default_pool = fresh->default_pool;
	pools_reload(&s->pools, fresh);
	if (s->config != s->first)
		config_free(s->config);
	s->config = fresh;
}

/* If the new configuration has an error, the old one stays in force. */
static void reload(struct server *s)
{
	struct config *fresh = NULL;
	char *text = NULL;
	size_t len = 0;
	FILE *errors;
	int r;

	/* The pools are still being made from the old configuration. */
	s->reload_due = !s->ready;
	if (!s->ready)
		return;
	errors = open_memstream(&text, &len);
	if (!errors)
		return;
	r = server_load_config(s->config_path, s->socket_path, errors, &fresh);
	fclose(errors);
	log_lines(r < 0 ? LOG_ERR : LOG_WARNING, text);
	free(text);
	if (r < 0) {
		log_error_id(LOG_ID_CONFIG,
			     "not reloaded: %s; the old configuration stays in force",
			     strerror(-r));
		return;
	}
	take_config(s, fresh);
	log_notice("configuration reloaded");
}

/* ---- the end ---- */

/* The driver takes all memory back with the process, so nothing is lost without the last calls. */
static void on_end_timeout(uv_timer_t *timer)
{
	struct server *s = timer->data;

	log_warning_id(LOG_ID_DRIVER_STUCK,
		       "a driver call has not returned for %u s: gpushmd ends without it",
		       s->config->driver_timeout);
	endpoint_close(&s->endpoint);
	_exit(s->failed);
}

static void on_pools_closed(void *arg)
{
	struct server *s = arg;

	/* The thread that looks for GPUs can't be waited for. */
	if (!s->pools.probed)
		on_end_timeout(&s->end_timeout);
	/* Without its handler a second Ctrl-C would kill the process at its very end. */
	reexec_hold_signals(true);
	for (size_t i = 0; i < array_size(signals); i++)
		uv_close((uv_handle_t *)&s->signals[i], NULL);
	uv_close((uv_handle_t *)&s->watchdog, NULL);
	uv_close((uv_handle_t *)&s->end_timeout, NULL);
	uv_close((uv_handle_t *)&s->housekeeping, NULL);
	uv_close((uv_handle_t *)&s->service.busy_poll.idle, NULL);
	turns_done(&s->service.turns);
	waiters_done(&s->service.waiters);
	pools_done(&s->pools);
}

static void stop(struct server *s)
{
	if (s->stopping)
		return;
	s->stopping = true;
	systemd_notify("STOPPING=1");
	log_notice("stopping");
	uv_timer_start(&s->end_timeout, on_end_timeout, s->config->driver_timeout * 1000ull, 0);
	if (s->listening)
		listener_drain(&s->listener);
	s->service.reaper.ending = true;
	s->service.catalog.events.closed = true;
	handover_stop(&s->handover);
	reexec_done(&s->service.reexec);
	if (s->listening)
		listener_done(&s->listener);
	reaper_done(&s->service.reaper);
	catalog_unlink_all(&s->service.catalog);
	pools_close(&s->pools, on_pools_closed);
}

/* ---- the planned restart ---- */

static int collect_fds(struct server *s, struct fd_list *fds)
{
	int r = endpoint_list(&s->endpoint, s->listening ? s->listener.socket : s->endpoint.socket,
			      fds);

	return r < 0 ? r : handover_list(&s->handover, fds);
}

/* Execs the program without ending anything: for the new program it is as if this one had died, but
 * it gets the fds. Returns only if that fails. */
static int exec_program(struct fault *f, void *arg)
{
	_cleanup_(fd_list_done) struct fd_list fds = { 0 };
	struct server *s = arg;
	const char *program = s->service.reexec.program;
	int r;

	/* Before an exec Linux ends the other threads, and waits for those that are in the kernel.
	 */
	if (pools_stuck(&s->pools, s->config->driver_timeout))
		return fault(
			f, CODE_RESTART,
			"a driver call has not returned for %u s, and a restart would wait for "
			"it; gpushmd goes on as it is",
			s->config->driver_timeout);
	if (s->listening)
		listener_drain(&s->listener);
	r = collect_fds(s, &fds);
	if (r == 0) {
		log_notice("restarting as %s, with %zu file descriptors", program, fds.n);
		/* The new program could not start without a systemd that reads. */
		if (notify_restarting() == -ETIMEDOUT)
			r = -ETIMEDOUT;
		else
			r = fd_list_exec(&fds, program, s->argv);
	}
	handover_cancel(&s->handover);
	notify_ready(s);
	return fault(f, CODE_RESTART, "%s can't be run: %s; gpushmd continues; clients reconnect",
		     program, r == -ETIMEDOUT ? "systemd does not read" : strerror(-r));
}

static uint32_t version_of_journal(void *arg, char *ret_why, size_t size)
{
	const struct server *s = arg;

	return handover_version(&s->handover, ret_why, size);
}

static const struct reexec_calls reexec_calls = { exec_program, version_of_journal };

static void restart(struct server *s)
{
	struct fault f;

	log_notice("a signal asks for a restart");
	if (!s->stopping && reexec_ask(&s->service.reexec, NULL, &f) != -EINPROGRESS)
		log_error_id(LOG_ID_NO_RESTART, "no restart: %s", f.text);
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
	systemd_notify("WATCHDOG=1");
}

/* Each change is an event; the log has a line of its own for what the pools share. */
static void tell_pools(struct server *s)
{
	struct pool *pool;

	list_foreach (pool, &s->pools.all, link) {
		const char *trouble = pool_trouble(pool);

		if (pool->in_trouble == !!trouble)
			continue;
		pool->in_trouble = trouble;
		event_log_add(&s->service.catalog.events,
			      .type = trouble ? EVENT_POOL_FAILED : EVENT_POOL_RECOVERED,
			      .pool = pool->config.name, .text = trouble);
	}
}

static void on_pools_failed(void *arg)
{
	struct server *s = arg;

	tell_pools(s);
	if (s->listening)
		notify_pools(s, "");
}

static int listen_now(struct server *s)
{
	int r = s->listening
			? 0
			: listener_init(&s->listener, &s->service, take_fd(&s->endpoint.socket));

	if (r < 0)
		log_error_id(LOG_ID_CANT_START, "the socket can't be served: %s", strerror(-r));
	else
		s->listening = true;
	return r;
}

/* Of what is freed, malloc gives only the upper end of the heap back to the kernel, and there
 * always is a long-lived object near that end: after 6,000 buffers 3.8 of 4.4 MiB stayed.
 * malloc_trim() gives every free page back. It takes 20 to 300 us in a heap of 5 MiB, and 10 ms in
 * one with 200,000 chunks; so it runs once as many objects have been freed as still exist. Each
 * request counts as one. */
static void trim(struct server *s)
{
	struct catalog *c = &s->service.catalog;
	uint64_t requests = s->service.requests - s->trimmed.requests;
	uint64_t objects = (uint64_t)c->n_buffers + c->n_leases + s->service.peers;
	uint64_t gone = s->trimmed.objects > objects ? s->trimmed.objects - objects : 0;

	if (s->trimmed.objects < objects)
		s->trimmed.objects = objects;
	if (requests + gone < objects + TRIM_OBJECTS)
		return;
	s->trimmed.requests = s->service.requests;
	s->trimmed.objects = objects;
	malloc_trim(TRIM_PAD);
}

/* Before a buffer in it can be published: without the record of its mempool it would be lost. */
static void on_pool_opened(const struct pool *pool, void *arg)
{
	struct server *s = arg;

	handover_add_pool(&s->handover, pool);
}

static void on_pool_renewed(const struct pool *pool, void *arg)
{
	struct server *s = arg;

	handover_add_pool(&s->handover, pool);
	handover_tidy(&s->handover); /* sweeps the former one */
}

static void on_housekeeping(uv_timer_t *timer)
{
	struct server *s = timer->data;

	if (s->ready_is_due && !s->stopping)
		notify_ready(s);
	if (s->listening)
		pools_renew(&s->pools, listener_pools_lent(&s->listener));
	handover_tidy(&s->handover);
	accounts_count_fds(&s->service.catalog.accounts);
	catalog_look_at_retained(&s->service.catalog, RETAINED_LOOKS);
	retired_pages_look(&s->service.catalog.retired_pages, RETAINED_LOOKS);
	catalog_look_at_streams(&s->service.catalog, &s->service.turns);
	pools_look(&s->pools, s->config->driver_timeout);
	reaper_tell_suspects(&s->service.reaper);
	ratelimit_settle(&s->service.violation_lines, clock_monotonic_ns());
	ratelimit_settle(&s->service.refusal_lines, clock_monotonic_ns());
	ratelimit_settle(&s->service.catalog.death_lines, clock_monotonic_ns());
	ratelimit_settle(&s->service.catalog.events.refusals, clock_monotonic_ns());
	trim(s);
}

static void on_pools_ready(void *arg)
{
	struct server *s = arg;

	s->ready = true;
	accounts_count_fds(&s->service.catalog.accounts);
	if (listen_now(s) < 0) {
		s->failed = true;
		stop(s);
		return;
	}
	log_write(LOG_NOTICE, &(struct log_about){ .message_id = LOG_ID_STARTED },
		  "gpushmd " GPUSHM_VERSION " serves %u %s at %s", s->pools.open,
		  s->pools.open == 1 ? "pool" : "pools",
		  s->endpoint.path ? s->endpoint.path : "systemd's socket");
	endpoint_tell_clients(&s->endpoint);
	tell_pools(s);
	notify_ready(s);
	verify_start(&s->pools, &s->service.catalog);
	if (s->reload_due)
		reload(s);
}

/* A map is written once, so that what it says now holds as long as the daemon runs. */
static void find_unmapped(struct service *service)
{
	service->unmapped_uid = userns_unmapped_uid();
	service->unmapped_gid = userns_unmapped_gid();
	if (geteuid() == service->unmapped_uid)
		log_warning_id(
			LOG_ID_USER_NAMESPACE,
			"gpushmd's user namespace does not map the user that runs it, and shows "
			"it as %u: this user is refused like all others of that kind; map it "
			"(unshare --map-root-user), or see unmapped-users in gpushmd.conf(5)",
			geteuid());
}

static int service_init(struct server *s)
{
	struct service *service = &s->service;
	int r = catalog_init(&service->catalog, s->config, &s->pools.all);

	if (r == 0)
		r = arena_init(&service->unpack, UNPACK_MAX);
	if (r == 0)
		r = arena_init(&service->build, 2 * UNPACK_MAX);
	if (r == 0)
		r = hashtable_init(&service->groups.by_uid);
	if (r == 0 && getrandom(service->id, sizeof(service->id), 0) != sizeof(service->id))
		r = -EIO;
	find_unmapped(service);
	service->config = s->config;
	service->started_ns = clock_monotonic_ns();
	service->kept = s->handover.store.systemd;
	service->refusal_lines.hourly = true;
	return r;
}

static void start_signals(struct server *s)
{
	uint64_t usec = 0;

	for (size_t i = 0; i < array_size(signals); i++) {
		uv_signal_init(&s->loop, &s->signals[i]);
		s->signals[i].data = s;
		uv_signal_start(&s->signals[i], on_signal, signals[i]);
	}
	reexec_hold_signals(false);
	uv_timer_init(&s->loop, &s->housekeeping);
	s->housekeeping.data = s;
	uv_timer_start(&s->housekeeping, on_housekeeping, HOUSEKEEPING_MS, HOUSEKEEPING_MS);
	uv_timer_init(&s->loop, &s->watchdog);
	uv_timer_init(&s->loop, &s->end_timeout);
	s->end_timeout.data = s;
	/* At once: restarts may follow each other faster than the timer. */
	if (systemd_has_watchdog(&usec))
		uv_timer_start(&s->watchdog, on_watchdog, 0, usec / 2000);
}

static int start(struct server *s)
{
	int r = handover_open(&s->handover, &s->service.catalog, &s->service.reaper, &s->pools,
			      &s->service.refusals, s->service.id);

	if (r == 0)
		r = endpoint_open(s->config, &s->handover.store, &s->endpoint);
	if (r == 0)
		r = uv_loop_init(&s->loop);
	if (r == 0)
		r = service_init(s);
	if (r == 0)
		r = waiters_init(&s->service.waiters, &s->loop, &s->service.catalog,
				 &s->service.turns);
	if (r < 0)
		return r;
	busy_poll_init(&s->service.busy_poll, &s->loop);
	turns_init(&s->service.turns, &s->loop);
	reexec_init(&s->service.reexec, &s->loop, s->argv, &reexec_calls, s);
	r = reaper_init(&s->service.reaper, &s->loop, &s->service.catalog, &s->service.turns);
	start_signals(s);
	if (r == 0)
		r = pools_init(&s->pools, &s->loop, s->config, on_pools_ready, s);
	s->pools.on_failed = on_pools_failed;
	s->pools.on_opened = on_pool_opened;
	s->pools.on_renewed = on_pool_renewed;
	event_log_add(&s->service.catalog.events, .type = EVENT_STARTED,
		      .text = "gpushmd " GPUSHM_VERSION);
	if (r == 0)
		r = handover_adopt(&s->handover);
	accounts_count_fds(&s->service.catalog.accounts);
	/* Buffers of an earlier daemon can be opened at once, before the driver has started. */
	if (r == 0 && s->service.catalog.n_buffers > 0)
		r = listen_now(s);
	if (r == 0)
		pools_open(&s->pools);
	return r;
}

int server_run(const char *config_path, const char *socket_path, char *const *argv,
	       struct config *config)
{
	static struct server server;
	struct server *s = &server;
	int r;

	s->config_path = config_path;
	s->socket_path = socket_path;
	s->argv = argv;
	s->config = s->first = config;
	mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
	r = start(s);
	if (r < 0) {
		log_error_id(LOG_ID_CANT_START, "gpushmd can't start: %s%s", strerror(-r),
			     r == -EMFILE  ? ": raise the hard limit (ulimit -Hn)"
			     : r == -EFBIG ? ": raise the limit of file sizes (ulimit -f), which "
					     "counts for memory that is shared, too"
					   : "");
		endpoint_close(&s->endpoint);
		config_free(s->config);
		return 1;
	}
	uv_run(&s->loop, UV_RUN_DEFAULT);
	uv_loop_close(&s->loop);
	catalog_done(&s->service.catalog);
	hashtable_done(&s->service.groups.by_uid);
	handover_close(&s->handover);
	arena_done(&s->service.unpack);
	arena_done(&s->service.build);
	endpoint_close(&s->endpoint);
	if (s->config != s->first)
		config_free(s->config);
	config_free(s->first);
	return s->failed;
}
