/* SPDX-License-Identifier: MIT
 *
 * All of a daemon but its sockets: catalog, accounts, reaper, waiters, pools and their worker are
 * the real ones. Sessions get their frames from here, and a pidfd is an eventfd that becomes
 * readable when the process "ends".
 *
 * The world keeps what peer.c guarantees to the code below it: no request while another is under
 * way; a peer that breaks the protocol is closed; the lease of a reply that can't be sent ends.
 * Anything wrong aborts.
 */
#include "tests/fuzz/world.h"

#include "daemon/ipc/request.h"
#include "daemon/ipc/service.h"
#include "daemon/pool/pool.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"
#include "tests/fuzz/replies.h"

#include <dirent.h>
#include <string.h>
#include <sys/eventfd.h>

#define PROCESSES_MAX 32 /* in one input */

/* A process of a client. Its pidfd is an eventfd, which becomes readable when the process "ends".
 */
struct life {
	int fd;
	struct process *suspect; /* the reaper's, while it waits for the process */
};

struct client {
	struct session session;
	bool connected, deaf;
	int request; /* of the request under way */
	struct life *life;
	struct charge charge; /* of the connection */
};

/* Made once. */
static struct {
	uv_loop_t loop;
	struct worker *worker;
	struct arena unpack, build;
} base;

/* Made for each input. */
static struct {
	struct service service;
	struct list pools;
	struct status_page board;
	struct client clients[CLIENTS];
	struct life lives[PROCESSES_MAX];
	size_t n_lives;
	size_t fds; /* open before it; libFuzzer opens some between two inputs */
} world;

static uint32_t first_user[] = { 1000 };
static const struct config config = {
	.admin_gid = (gid_t)-1,
	.default_pool = "host",
	.limits = { .bytes = 3 << 18, .buffers = 6, .leases = 8, .peers = 4, .share = 50 },
};
static const struct pool_config pool_configs[] = {
	{ .name = "host",
	  .kind = POOL_HOST,
	  .numa_node = -1,
	  .share = 100,
	  .size.bytes = 1 << 20,
	  .pending_max_age = 1 },
	{ .name = "small",
	  .kind = POOL_HOST,
	  .numa_node = -1,
	  .share = 100,
	  .size.bytes = 1 << 16,
	  .restricted = true,
	  .allow_users = { first_user, array_size(first_user) },
	  .pending_max_age = 10 },
	{ .name = "gpu0", .kind = POOL_VMM, .numa_node = -1, .share = 100, .size.percent = 100 },
};

/* Checks again: each watch has had its reply, or has nothing to report. */
static void check_watches(struct waiters *ws)
{
	for (uint32_t n = ws->n; n > 0; n--) {
		struct waiter *w = list_first(&ws->all, struct waiter, link);

		list_drop(&w->link);
		list_insert(&ws->all, &w->link);
		if (w->n_watched)
			w->on_wake(w, false);
		require(!list_empty(&w->link));
	}
}

/* Each name means one buffer, and no OPEN waits for a name to become free that is free. */
static void check_names(const struct catalog *c, const struct waiters *ws)
{
	const struct buffer *b;
	const struct waiter *w;

	list_foreach (b, &c->buffers, all_link)
		require(!b->key || catalog_by_key(c, b->key) == b);
	list_foreach (w, &ws->all, link)
		require(!w->key[0] || !w->while_filling || catalog_by_key(c, w->key));
}

/* Each seat has a lease that knows it, and the words say who has one. */
static void check_streams(const struct catalog *c)
{
	const struct stream *s;

	list_foreach (s, &c->streams, link) {
		uint32_t n = 0;

		require(s->buffer->stream == s && !s->producer == (s->state != STREAM_RUNNING));
		require(!s->producer || s->producer->buffer == s->buffer);
		for (uint32_t i = 0; i < s->words.shape.readers; i++) {
			const struct stream_reader *r = &s->readers[i];
			bool active = s->words.head->active & (uint64_t)1 << i;

			n += r->page != NULL;
			require(active == (r->page && !r->dropped));
			require(!r->page ||
				(r->lease->buffer == s->buffer && r->lease->reader == (int)i));
		}
		require(n == s->n_readers);
	}
}

/* The timer of the events would run for 20 ms: its time is over at once. */
static void wake_followers(struct waiters *ws)
{
	struct waiter *w;

	if (!uv_is_active((uv_handle_t *)&ws->events))
		return;
	uv_timer_stop(&ws->events);
	list_foreach (w, &ws->followers, event_link)
		turns_add(ws->turns, w->account, &w->work);
	uv_run(&base.loop, UV_RUN_DEFAULT);
}

/* Runs the loop until the worker has nothing to do; nothing else keeps the loop running. */
void world_settle(void)
{
	struct waiters *ws = &world.service.waiters;

	uv_run(&base.loop, UV_RUN_DEFAULT);
	wake_followers(ws);
	check_watches(ws);
	check_names(&world.service.catalog, ws);
	check_streams(&world.service.catalog);
}

static size_t count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	require(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* ---- clients ---- */

static void disconnect(struct client *c)
{
	struct process *p = c->session.process;
	bool suspect = !list_empty(&p->leases);

	c->connected = c->deaf = false;
	session_done(&c->session);
	discharge(&c->charge);
	if (!suspect)
		return;
	/* A process that still lives does not keep the loop running. */
	require(p->pidfd->watched);
	uv_unref((uv_handle_t *)&p->pidfd->poll);
	c->life->suspect = p;
}

void world_die(unsigned who)
{
	struct client *c = &world.clients[who];
	uint64_t one = 1;

	if (c->connected)
		disconnect(c);
	if (!c->life->suspect)
		return;
	require(write(c->life->fd, &one, sizeof(one)) == sizeof(one));
	uv_ref((uv_handle_t *)&c->life->suspect->pidfd->poll);
	c->life->suspect = NULL;
	world_settle();
}

static void deliver(struct client *c, const struct reply *a)
{
	replies_check(&world.service.catalog, a, c->request);
	c->session.pools_lent |= a->pool_bit;
	if (!c->deaf)
		return;
	if (a->lease)
		catalog_end_lease(&world.service.catalog, a->lease);
	disconnect(c);
}

static void on_reply(struct session *s, struct reply *a)
{
	deliver(container_of(s, struct client, session), a);
}

/* Numbers above PID_MAX_LIMIT (linux/threads.h), which no real process has. */
#define NO_PID (1 << 23)

/* In place of the daemon's: each of our processes has its own number as its start time. */
uint64_t pidfd_start_time(pid_t pid)
{
	return pid >= NO_PID ? (uint64_t)pid : 0;
}

static struct process *new_process(unsigned as, int pidfd)
{
	static const uid_t uids[] = { 1000, 2000, 3000, 0 };
	struct process *p = calloc(1, sizeof(*p));
	int fd;

	require(p);
	list_init(&p->link);
	list_init(&p->pidfd_link);
	list_init(&p->leases);
	list_init(&p->readers);
	p->socket = -1;
	p->pid = NO_PID + (pid_t)world.n_lives;
	p->uid = p->gid = uids[as % array_size(uids)];
	p->admin = p->uid == 0;
	strcpy(p->command, "fuzz");
	fd = dup(pidfd);
	require(fd >= 0);
	p->pidfd = pidfd_share(&world.service.reaper.pidfds, &fd, p->uid, p->pid,
			       pidfd_start_time(p->pid));
	require(p->pidfd);
	return p;
}

static void connect_client(struct client *c, unsigned as)
{
	struct life *life = &world.lives[world.n_lives];
	struct process *p;
	struct fault f;

	if (c->connected || world.n_lives == PROCESSES_MAX)
		return;
	*life = (struct life){ .fd = eventfd(0, EFD_CLOEXEC) };
	require(life->fd >= 0);
	world.n_lives++;
	p = new_process(as, life->fd);
	*c = (struct client){ .connected = true, .life = life };
	c->session.on_reply = on_reply;
	c->session.greeted = as & 4;
	if (charge(&world.service.catalog.accounts, p->uid, ACCOUNT_PEERS, 1, 0, &c->charge, &f) <
	    0) {
		process_free(p);
		c->connected = false;
		return;
	}
	session_init(&c->session, &world.service, p, c->charge.account);
}

void world_request(unsigned who, const uint8_t *frame, size_t len)
{
	struct client *c = &world.clients[who];
	struct reply a = { 0 };
	struct fault f = { 0 };
	int r;

	if (c->connected && session_busy(&c->session))
		world_settle();
	/* A reply that could not be sent may have closed the connection. */
	if (!c->connected || session_busy(&c->session))
		return;
	c->request = replies_request_of(frame, len);
	do
		r = request_handle(&c->session, frame, len, &a, &f);
	while (r == -ERESTART);
	if (r == 0 && !a.silent)
		deliver(c, &a);
	else if (r < 0 && r != -EINPROGRESS)
		disconnect(c);
	require(r == 0 || r == -EINPROGRESS || r == -EPROTO);
}

void world_disconnect(unsigned who)
{
	if (world.clients[who].connected)
		disconnect(&world.clients[who]);
}

void world_connect(unsigned who, unsigned as)
{
	connect_client(&world.clients[who], as);
}

void world_deafen(unsigned who)
{
	world.clients[who].deaf = world.clients[who].connected;
}

/* ---- time ---- */

/* Sets all deadlines to now, and does what the timer does then. */
void world_be_late(void)
{
	struct waiters *ws = &world.service.waiters;
	struct waiter *w;

	uv_update_time(&base.loop);
	list_foreach (w, &ws->all, link) {
		if (w->deadline_ms == UINT64_MAX)
			continue;
		w->deadline_ms = uv_now(&base.loop);
		turns_add(ws->turns, w->account, &w->work);
	}
	catalog_look_at_streams(&world.service.catalog, ws->turns);
	retired_pages_look(&world.service.catalog.retired_pages, UINT32_MAX);
	world_settle();
}

/* ---- a world ---- */

static void on_pool_ready(struct pool *pool, void *arg)
{
}

void world_make(void)
{
	struct service *s = &world.service;
	struct pool *pool;

	memset(&world, 0, sizeof(world));
	world.fds = count_fds();
	list_init(&world.pools);
	require(catalog_init(&s->catalog, &config, &world.pools) == 0);
	/* In a real daemon they start at the clock; here an input must be able to name them. */
	s->catalog.next_buffer = s->catalog.next_lease = 1;
	s->catalog.events.first = s->catalog.events.next = 1;
	require(status_page_new(&world.board) == 0);
	s->catalog.page = &world.board;
	s->config = &config;
	s->unpack = base.unpack;
	s->build = base.build;
	s->unpack.allocator.allocator_data = &s->unpack;
	s->build.allocator.allocator_data = &s->build;
	turns_init(&s->turns, &base.loop);
	require(waiters_init(&s->waiters, &base.loop, &s->catalog, &s->turns) == 0);
	uv_unref((uv_handle_t *)&s->waiters.timer);
	uv_unref((uv_handle_t *)&s->waiters.events);
	require(reaper_init(&s->reaper, &base.loop, &s->catalog, &s->turns) == 0);
	for (size_t i = 0; i < array_size(pool_configs); i++) {
		require(pool_new(&pool_configs[i], NULL, base.worker, "no GPU here", on_pool_ready,
				 NULL, &pool) == 0);
		pool->id = (uint32_t)i + 1;
		list_insert(&world.pools, &pool->link);
	}
	world_settle();
	for (unsigned i = 0; i < CLIENTS; i++)
		connect_client(&world.clients[i], i);
}

void world_flush(void)
{
	struct pool *pool;

	list_foreach (pool, &world.pools, link)
		pool_flush(pool);
	world_settle();
}

/* Ends the daemon in the order in which the server does it. */
void world_end(void)
{
	struct service *s = &world.service;
	struct pool *pool;

	for (unsigned i = 0; i < CLIENTS; i++)
		if (world.clients[i].connected)
			disconnect(&world.clients[i]);
	reaper_done(&s->reaper);
	catalog_unlink_all(&s->catalog);
	list_foreach (pool, &world.pools, link)
		pool_close(pool, NULL, NULL);
	turns_done(&s->turns);
	waiters_done(&s->waiters);
	world_settle();
	require(s->peers == 0 && s->waiters.n == 0 && s->reaper.n == 0);
	require(s->catalog.n_buffers == 0 && s->catalog.n_leases == 0);
	require(list_empty(&s->catalog.accounts.all));
	catalog_done(&s->catalog);
	require(world.board.n_free == status_page_used(&world.board));
	status_page_done(&world.board);
	for (size_t i = 0; i < world.n_lives; i++)
		close(world.lives[i].fd);
	require(count_fds() == world.fds);
}

void world_init(void)
{
	log_open(LOG_EMERG);
	require(uv_loop_init(&base.loop) == 0);
	require(worker_new(&base.loop, "fuzz", &base.worker) == 0);
	require(arena_init(&base.unpack, UNPACK_MAX) == 0);
	require(arena_init(&base.build, 2 * UNPACK_MAX) == 0);
	replies_init();
	if (getenv("FUZZ_REQUEST_COUNTS"))
		atexit(replies_print);
}
