/* SPDX-License-Identifier: MIT
 *
 * gpushm_connect and gpushm_disconnect: find the daemon, say HELLO, and believe of its answer what
 * makes sense. The pools that it tells are kept with the connection; one of a kind that this
 * library does not know is left out, so that a later daemon can have others: only a buffer in such
 * a pool is out of reach.
 */
#include "client/link/hello.h"
#include "client/base/decode.h"
#include "client/base/defer.h"
#include "client/base/endpoint.h"
#include "client/base/error.h"
#include "client/link/reconnect.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <poll.h>

static int keep_pool(struct gpushm *c, const Gpushm__Proto__Pool *from)
{
	struct pool_info *p;
	struct gpushm_pool told;
	int r;

	if (!decode_kind_known(from))
		return 0;
	r = decode_pool(from, &told);
	if (r < 0)
		return r;
	if (connection_pool(c, from->id))
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return error_set(ENOMEM, "out of memory for a connection");
	*p = (struct pool_info){ .id = from->id,
				 .next = c->pools,
				 .pool_fd = -1,
				 .map = { .id = from->id,
					  .kind = told.kind,
					  .has_device = from->has_device_uuid,
					  .numa_node = told.numa_node } };
	memcpy(p->map.daemon, c->daemon, sizeof(p->map.daemon));
	memcpy(p->map.device_uuid, told.device_uuid, sizeof(p->map.device_uuid));
	memcpy(p->name, told.name, sizeof(p->name));
	c->pools = p;
	return 0;
}
_Static_assert(sizeof(((struct gpushm_pool *)0)->name) == POOL_NAME_MAX + 1, "names fit");

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

/* Another board than before says nothing of the buffers that had a place on that one. */
static int keep_board(struct gpushm *c, bool told)
{
	struct notice_board *before = c->boards;
	struct held *it;
	int r = told ? notice_map(c->frame.fds[0], c->server_uid, &c->boards) : 0;

	if (r < 0 || (told && c->boards == before))
		return r;
	list_foreach (it, &c->held, link)
		it->slot = NULL;
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
	c->kept = hello->kept;
	c->quiet_close = hello->quiet_close;
	c->session = hello->session;
	r = keep_board(c, hello->board_fd);
	if (r < 0)
		return r;
	return keep_pools(c, hello->pools, hello->n_pools);
}

int connect_send_hello(struct gpushm *c)
{
	Gpushm__Proto__Hello hello = GPUSHM__PROTO__HELLO__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;

	hello.has_version_min = hello.has_version_max = hello.has_software = true;
	hello.has_board = hello.board = true;
	hello.version_min = hello.version_max = PROTOCOL_VERSION;
	hello.software = connection_bytes("libgpushm " GPUSHM_VERSION);
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_HELLO;
	request.hello = &hello;
	return connection_send(c, &request);
}

int connect_receive_hello(struct gpushm *c, int flags)
{
	Gpushm__Proto__Reply *reply;
	int r = connection_receive(c, GPUSHM__PROTO__REPLY__RESULT_HELLO, flags, &reply);

	if (r == 0)
		r = keep_hello(c, reply->hello);
	frame_close_fds(&c->frame);
	return r;
}

/* systemd holds the socket of a daemon that is not there, and a stopped one has its own: both can
 * be connected to. */
int connect_no_answer(const struct gpushm *c, int number, uint64_t ms)
{
	return error_set(number,
			 "no daemon has answered within %" PRIu64
			 " ms at %s, which can be connected to: is gpushmd stopped, or failing to "
			 "start? See systemctl status gpushmd",
			 ms, c->path ? c->path : "its socket");
}

static int await_answer(struct gpushm *c)
{
	uint64_t ms = reconnect_answer_ms(), now = clock_monotonic_ms(), deadline = now + ms;
	struct pollfd p = { .fd = c->socket, .events = POLLIN };
	int r;

	do {
		r = poll(&p, 1, now < deadline ? (int)(deadline - now) : 0);
		now = clock_monotonic_ms();
	} while (r < 0 && errno == EINTR);
	if (r != 0)
		return 0;
	c->broken = true;
	return connect_no_answer(c, ECONNREFUSED, ms);
}

int connect_hello(struct gpushm *c)
{
	int r = connect_send_hello(c);

	if (r == 0)
		r = await_answer(c);
	return r < 0 ? r : connect_receive_hello(c, 0);
}

/* call: connection_call(), or connection_exchange() for who has the lock. */
static int ask_pools(struct gpushm *c, __typeof__(connection_call) *call,
		     Gpushm__Proto__Reply **ret)
{
	Gpushm__Proto__Pools pools = GPUSHM__PROTO__POOLS__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;

	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_POOLS;
	request.pools = &pools;
	return call(c, &request, GPUSHM__PROTO__REPLY__RESULT_POOLS, ret);
}

int connect_ask_pools(struct gpushm *c, Gpushm__Proto__Reply **ret)
{
	return ask_pools(c, connection_call, ret);
}

int connect_refresh_pools(struct gpushm *c)
{
	Gpushm__Proto__Reply *reply;
	int r = ask_pools(c, connection_exchange, &reply);

	return r < 0 ? r : keep_pools(c, reply->pools->pools, reply->pools->n_pools);
}

static int say_hello(struct gpushm *c)
{
	int r;

	pthread_mutex_lock(&c->lock);
	r = connect_hello(c);
	connection_done(c);
	return r;
}

static int connect_once(const char *socket_path, struct gpushm **ret)
{
	_cleanup_(close_fd) int fd = -1;
	struct gpushm *c = NULL;
	uid_t server;
	int r = endpoint_connect(socket_path, reconnect_answer_ms(), &fd, &server);

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

/* A daemon that dies or restarts at this moment hangs up on who greets it; whether there is another
 * one the next try shows. */
int gpushm_connect(const char *socket_path, struct gpushm **ret)
{
	int r = connect_once(socket_path, ret);

	for (int tries = 1; r == -ECONNRESET && tries < GREETED_MAX; tries++)
		r = connect_once(socket_path, ret);
	return r;
}

struct gpushm *gpushm_disconnect(struct gpushm *c)
{
	/* In a forked child the socket is the parent's, and stays as it is. */
	if (!c || connection_check_fork(c->generation) < 0)
		return NULL;
	defer_flush_owner(c);
	return connection_unref(c);
}
