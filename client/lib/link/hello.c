/* SPDX-License-Identifier: MIT
 *
 * gpushm_connect and gpushm_disconnect: find the daemon, say HELLO, and keep of its reply what
 * makes sense. Pools of a kind that this library does not know are left out, so that a later daemon
 * can have them: only their buffers can't be opened.
 *
 * A daemon that died, or was replaced by a new program, is connected to again. If its HELLO said
 * that its buffers survive it, the library waits for the successor. If not, it tries once, because
 * the socket stays open across a planned restart and is closed otherwise. The successor must be the
 * same daemon (its id outlives its process and its program). Then the leases of this process are
 * reclaimed. The socket keeps its fd number, because the application may poll it.
 *
 * Where the daemon does not know a lease any more, the buffer stays mapped and usable; its close
 * makes no request.
 */
#include "client/lib/link/hello.h"

#include "client/gpushm_private.h"
#include "client/lib/base/defer.h"
#include "client/lib/base/endpoint.h"
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/base/process.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>

#define WAIT_MS_DEFAULT 10000u
#define REPLY_MS_MIN 1000u
#define PAUSE_MS_MAX 250u
#define HELLOS_MAX 16 /* daemons in a row that may hang up before they reply to HELLO */
#define BATCH 4096u   /* leases in one RECLAIM: 10 bytes each at most */
_Static_assert(BATCH * 10 + 64 < FRAME_MAX, "a batch fits a frame");

uint64_t hello_reconnect_ms(void)
{
	const char *text = getenv("GPUSHM_RECONNECT_MS");
	unsigned long long ms = text ? strtoull(text, NULL, 10) : WAIT_MS_DEFAULT;

	return ms > INT_MAX ? INT_MAX : ms;
}

uint64_t hello_reply_ms(void)
{
	uint64_t ms = hello_reconnect_ms();

	return ms > REPLY_MS_MIN ? ms : REPLY_MS_MIN;
}

bool hello_may_pass(int error)
{
	return error == -ENOENT || error == -ECONNREFUSED;
}

/* ---- HELLO ---- */

static int keep_pool(struct gpushm *c, const Gpushm__Proto__Pool *from)
{
	_cleanup_(free_ptr) struct pool_info *p = NULL;

	if (!decode_kind_known(from) || connection_pool(c, from->id))
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return error_set(ENOMEM, "out of memory for a connection");
	*p = (struct pool_info){ .id = from->id,
				 .next = c->pools,
				 .pool_fd = -1,
				 .is_default = from->is_default,
				 .map = { .id = from->id,
					  .kind = (enum gpushm_kind)from->kind,
					  .has_device = from->has_device_uuid,
					  .numa_node =
						  from->has_numa_node ? from->numa_node : -1 } };
	memcpy(p->map.daemon, c->daemon, sizeof(p->map.daemon));
	if (!from->has_id || !from->has_name || from->name.len == 0 ||
	    decode_text("pool name", true, from->name, p->name, sizeof(p->name)) < 0)
		return error_set(EPROTO, "the daemon's reply makes no sense: pool");
	if (from->has_device_uuid && decode_bytes("device UUID", true, from->device_uuid,
						  p->map.device_uuid, UUID_BYTES) < 0)
		return -EPROTO;
	c->pools = take_ptr(p);
	return 0;
}

enum gpushm_kind gpushm_private_pool_kind(struct gpushm *c, const char *pool)
{
	const struct pool_info *p;
	enum gpushm_kind kind = 0;

	if (connection_check(c) < 0)
		return 0;
	lock_guard(&c->lock, LOCK_CONNECTION);
	for (p = c->pools; p && !kind; p = p->next) /* the newest first */
		if (pool ? strcmp(p->name, pool) == 0 : p->is_default)
			kind = p->map.kind;
	return kind;
}

#define IS_ONE_NUMBER(name, NAME, number, ...)                                                    \
	_Static_assert(GPUSHM_##NAME == (number) && GPUSHM__PROTO__KIND__KIND_##NAME == (number), \
		       "proto/kind.h, gpushm.h and gpushm.proto have the kind's number");
ALL_KINDS(IS_ONE_NUMBER)

static int keep_pools(struct gpushm *c, Gpushm__Proto__Pool *const *pools, size_t n)
{
	if (n > POOLS_MAX)
		return error_set(EPROTO, "the daemon's reply makes no sense: %zu pools", n);
	for (size_t i = 0; i < n; i++) {
		int r = keep_pool(c, pools[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

/* A page of another daemon says nothing about buffers with a cell of an earlier page. */
static int keep_status_page(struct gpushm *c, bool sent)
{
	struct status_map *before = c->pages;
	struct lease *it;
	int r = sent ? status_map_add(c->frame.fds[0], c->server_uid, &c->pages) : 0;

	if (r < 0 || (sent && c->pages == before))
		return r;
	list_foreach (it, &c->leases, link)
		it->cell = NULL;
	return 0;
}

static int keep_hello(struct gpushm *c, const Gpushm__Proto__HelloReply *hello)
{
	int r;

	if (hello->version != PROTOCOL_VERSION)
		return error_set(EPROTONOSUPPORT,
				 "the daemon speaks version %u of the protocol, this library "
				 "version %u: upgrade the older one",
				 hello->version, PROTOCOL_VERSION);
	r = decode_bytes("daemon id", hello->has_daemon, hello->daemon, c->daemon,
			 sizeof(c->daemon));
	if (r < 0)
		return r;
	c->uid = hello->uid;
	c->admin = hello->admin;
	c->wait_for_successor = hello->kept;
	c->suspends = hello->suspend;
	c->parks = hello->park;
	c->session = hello->session;
	c->daemon_pid = hello->pid;
	r = keep_status_page(c, hello->board_fd);
	return r < 0 ? r : keep_pools(c, hello->pools, hello->n_pools);
}

int hello_send(struct gpushm *c)
{
	Gpushm__Proto__Hello hello = GPUSHM__PROTO__HELLO__INIT;

	SET(&hello, version_min, PROTOCOL_VERSION);
	SET(&hello, version_max, PROTOCOL_VERSION);
	SET(&hello, software, connection_bytes("libgpushm " GPUSHM_VERSION));
	SET(&hello, board, true);
	SET(&hello, arrays, ARRAYS_MAX);
	/* A daemon that was restarted knows neither the promise nor what is imported. */
	SET_SOME(&hello, park, process()->park == 1 && process()->imports ? 2 : process()->park);
	return connection_send(c, request_with(HELLO, hello, &hello), 0);
}

int hello_receive(struct gpushm *c, int flags)
{
	Gpushm__Proto__Reply *reply;
	int r = connection_receive(c, flags, &reply);

	if (r == 0)
		r = keep_hello(c, reply->hello);
	frame_close_fds(&c->frame);
	return r;
}

/* A connection succeeds without a daemon: systemd holds the socket of one that is not running, and
 * a stopped one has its own. */
int hello_no_reply(const struct gpushm *c, int number, uint64_t ms)
{
	return error_set(number,
			 "no daemon has answered within %" PRIu64
			 " ms at %s, which can be connected to: is gpushmd stopped, or failing to "
			 "start? See systemctl status gpushmd",
			 ms, c->path ? c->path : "its socket");
}

static int await_reply(struct gpushm *c, uint64_t ms)
{
	uint64_t deadline = clock_deadline(ms);
	struct pollfd p = { .fd = c->socket, .events = POLLIN };
	int r;

	do
		r = poll(&p, 1, (int)clock_left_ms(deadline));
	while (r < 0 && errno == EINTR);
	if (r != 0)
		return 0;
	c->broken = true;
	return hello_no_reply(c, ECONNREFUSED, ms);
}

static int say_hello(struct gpushm *c)
{
	int r = hello_send(c);

	if (r == 0)
		r = await_reply(c, hello_reply_ms());
	return r < 0 ? r : hello_receive(c, 0);
}

int hello_refresh_pools(struct gpushm *c)
{
	Gpushm__Proto__Pools pools = GPUSHM__PROTO__POOLS__INIT;
	Gpushm__Proto__Reply *reply;
	int r = connection_exchange(c, request_with(POOLS, pools, &pools), &reply);

	return r < 0 ? r : keep_pools(c, reply->pools->pools, reply->pools->n_pools);
}

/* ---- connecting ---- */

static int connect_once(const char *socket_path, struct gpushm **ret)
{
	_cleanup_(close_fd) int fd = -1;
	struct gpushm *c = NULL;
	uid_t server;
	int r = endpoint_connect(socket_path, hello_reply_ms(), &fd, &server);

	if (r == 0)
		r = connection_new(&fd, server, socket_path, &c);
	if (r == 0)
		r = say_hello(c);
	if (r < 0) {
		connection_unref(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* A daemon that dies or restarts before it replies to HELLO hangs up: the next try finds its
 * successor, if there is one. */
int gpushm_connect(const char *socket_path, struct gpushm **ret)
{
	int r = connect_once(socket_path, ret);

	for (int tries = 1; r == -ECONNRESET && tries < HELLOS_MAX; tries++)
		r = connect_once(socket_path, ret);
	return r;
}

/* Until then the socket only keeps a place among the descriptors. */
int gpushm_private_connect_later(const char *socket_path, const struct gpushm *like,
				 struct gpushm **ret)
{
	_cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct gpushm *c;
	int r;

	if (fd < 0)
		return error_set(errno, "can't make a socket: %m");
	r = connection_new(&fd, 0, socket_path, &c);
	if (r < 0)
		return r;
	c->broken = c->calls_only = true;
	c->wait_for_successor = like && like->wait_for_successor;
	*ret = c;
	return 0;
}

struct gpushm *gpushm_disconnect(struct gpushm *c)
{
	/* In a forked child the socket is the parent's, and is left alone. */
	if (!c || connection_check_fork(c->generation) < 0)
		return NULL;
	if (!defer_is_empty())
		defer_flush_owner(c);
	return connection_unref(c);
}

/* ---- coming back ---- */

struct patience {
	uint64_t deadline; /* for a daemon to listen */
	bool resumes;	   /* and to reply to HELLO, for which it has hello_reply_ms() otherwise */
	bool may_pass;	   /* what failed last may be over at the next call */
};

static uint64_t reply_ms(const struct patience *p)
{
	uint64_t left = clock_left_ms(p->deadline);

	if (!p->resumes)
		return hello_reply_ms();
	return left > 0 ? left : 1;
}

/* Pauses 1, 2, 4, ... 250 ms between the tries. */
static int connect_again(struct gpushm *c, struct patience *p, int *ret_fd)
{
	unsigned pause = 1;
	int r;

	while (hello_may_pass(r = endpoint_connect(c->path, reply_ms(p), ret_fd, &c->server_uid)) &&
	       clock_left_ms(p->deadline) > 0) {
		poll(NULL, 0, (int)pause);
		pause = pause * 2 > PAUSE_MS_MAX ? PAUSE_MS_MAX : pause * 2;
	}
	p->may_pass = hello_may_pass(r);
	return r;
}

static struct lease *find_lease(const struct gpushm *c, uint64_t lease)
{
	struct lease *it;

	list_foreach (it, &c->leases, link)
		if (it->id == lease)
			return it;
	return NULL;
}

static int reclaim_batch(struct gpushm *c, uint64_t session, uint64_t *leases, size_t n, bool last)
{
	Gpushm__Proto__Reclaim reclaim = GPUSHM__PROTO__RECLAIM__INIT;
	Gpushm__Proto__Reply *reply;
	int r;

	SET(&reclaim, session, session);
	SET(&reclaim, last, last);
	reclaim.leases = leases;
	reclaim.n_leases = n;
	r = connection_exchange(c, request_with(RECLAIM, reclaim, &reclaim), &reply);
	if (r < 0)
		return r;
	for (size_t i = 0; i < reply->reclaimed->n_lost; i++) {
		struct lease *it = find_lease(c, reply->reclaimed->lost[i]);

		if (it)
			it->lost = true;
	}
	return 0;
}

static int reclaim(struct gpushm *c, uint64_t session)
{
	uint64_t leases[BATCH];
	struct lease *it;
	size_t n = 0;

	list_foreach (it, &c->leases, link) {
		if (it->lost)
			continue;
		leases[n++] = it->id;
		if (n == BATCH) {
			int r = reclaim_batch(c, session, leases, n, false);

			if (r < 0)
				return r;
			n = 0;
		}
	}
	return reclaim_batch(c, session, leases, n, true);
}

/* HELLO was sent. The connection keeps its old session until all leases are reclaimed: if the
 * daemon dies in between, its successor is asked with the same one again. */
static int come_back(struct gpushm *c)
{
	unsigned char before[DAEMON_ID_BYTES];
	bool first = connection_is_new(c);
	uint64_t session = c->session, fresh;
	int r;

	memcpy(before, c->daemon, sizeof(before));
	r = hello_receive(c, 0);
	if (r < 0 || first)
		return r;
	fresh = c->session;
	c->session = session;
	if (memcmp(before, c->daemon, sizeof(before)) != 0) {
		c->ended = c->broken = true;
		return error_set(ECONNRESET,
				 "another daemon serves %s now, and it knows nothing of what this "
				 "process has open: connect again",
				 c->path ? c->path : "the socket");
	}
	r = reclaim(c, session);
	if (r == 0)
		c->session = fresh;
	return r;
}

/* r: of connect_again(). */
static int not_back(struct gpushm *c, int r)
{
	c->ended = !c->wait_for_successor;
	if (connection_is_new(c))
		return hello_may_pass(r) ? -ECONNREFUSED : r;
	return error_set(ECONNREFUSED,
			 c->wait_for_successor ? "the daemon has gone and does not come back: %s"
					       : "the daemon has gone (%s): connect again",
			 strerror(-r));
}

static int send_hello(struct gpushm *c, struct patience *p)
{
	_cleanup_(close_fd) int fd = -1;
	int r = connect_again(c, p, &fd);

	if (r < 0)
		return not_back(c, r);
	c->broken = false;
	/* The application may poll the fd: it keeps its number. */
	if (dup3(fd, c->socket, O_CLOEXEC) < 0)
		return error_set(errno, "the new socket can't take the old one's place: %m");
	/* No reply is due here, and RECLAIM does not name what was to be closed. */
	c->late = false;
	c->call = NULL;
	c->n_ended_leases = 0;
	r = hello_send(c);
	c->greeting = r == 0;
	return r;
}

/* A daemon that has not replied in time may do so later: the connection keeps its place in the
 * listener's queue. */
static int try_once(struct gpushm *c, struct patience *p)
{
	int r = c->greeting ? 0 : send_hello(c, p);

	if (r == 0) {
		p->may_pass = true;
		r = await_reply(c, reply_ms(p));
	}
	if (r == 0) {
		c->broken = c->greeting = c->late = false;
		r = come_back(c);
	}
	if (r < 0)
		c->broken = true;
	return r;
}

bool hello_gave_up_lately(const struct gpushm *c)
{
	return c->gave_up_at && clock_monotonic_ms() - c->gave_up_at < hello_reconnect_ms();
}

/* Where a daemon dies or restarts before it replies to HELLO, HELLO is said again. */
static int try_often(struct gpushm *c, struct patience *p)
{
	int r = error_set(ECONNRESET, "the connection to the daemon has ended: connect again");

	for (int hellos = 0; r == -ECONNRESET && !c->ended; hellos++) {
		if (hellos >= HELLOS_MAX && clock_left_ms(p->deadline) == 0)
			break;
		r = try_once(c, p);
	}
	if (r == 0)
		c->back_at = clock_monotonic_ms();
	return r == -ECONNREFUSED ? -ECONNRESET : r;
}

int hello_reconnect(struct gpushm *c)
{
	struct patience p = { .deadline = clock_deadline(
				      c->wait_for_successor ? hello_reconnect_ms() : 0) };
	int r = try_often(c, &p);

	c->gave_up_at = r < 0 ? clock_monotonic_ms() : 0;
	return r;
}

int hello_resume(struct gpushm *c, uint64_t ms)
{
	struct patience p = { .deadline = clock_deadline(ms), .resumes = true };
	int r = try_often(c, &p);

	/* The outage in which it gave up goes on, or is over. */
	if (c->gave_up_at)
		c->gave_up_at = r < 0 ? clock_monotonic_ms() : 0;
	return r == -ECONNRESET && !c->ended && p.may_pass ? -EAGAIN : r;
}

/* ---- outages ---- */

bool outage_has_begun(const struct gpushm *c)
{
	struct pollfd p = { .fd = c->socket, .events = POLLRDHUP };

	return c->broken || poll(&p, 1, 0) > 0;
}

uint64_t outage_left(const struct gpushm *c, uint64_t *since)
{
	uint64_t limit = hello_reply_ms(), now = clock_monotonic_ms();

	/* One that began before the connection was made again is over. */
	*since = *since > c->back_at ? *since : now;
	return now - *since < limit ? limit - (now - *since) : 0;
}

int outage_error(const struct gpushm *c)
{
	return c->greeting ? hello_no_reply(c, ECONNRESET, hello_reply_ms())
			   : error_set(ECONNRESET, "the daemon has gone and does not come back");
}

int outage_report(const struct gpushm *c, int r, uint64_t *since)
{
	if (r == -EAGAIN && clock_monotonic_ms() - *since < hello_reply_ms())
		return r;
	*since = 0;
	return r == -EAGAIN ? outage_error(c) : r;
}
