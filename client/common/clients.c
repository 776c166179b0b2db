/* SPDX-License-Identifier: MIT
 *
 * libmicrohttpd can't be told to end a connection; but one whose socket was shut down ends like one
 * that its client closed. The notification of the end comes before the descriptor is closed, and
 * the lock is held for both, so a descriptor that is shut down here is still this connection's.
 *
 * What a client has read is known from the kernel alone (TCP_INFO, tcp(7)), so replies are sent
 * without a thought of limits; and the kernel paces them, too (SO_MAX_PACING_RATE, socket(7)). It
 * still sends what it holds of a reply when libmicrohttpd has forgotten it, and goes on when the
 * socket is closed, so it holds little (TCP_NOTSENT_LOWAT, tcp(7)).
 */
#include "client/common/clients.h"

#include "proto/base/clock.h"
#include "proto/base/list.h"
#include "proto/base/lock.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SECOND 1000000000ull
#define ESTABLISHED 1 /* TCP_ESTABLISHED of netinet/tcp.h, which excludes linux/tcp.h */
#define SLOW_S 10u    /* a client that reads less than min_rate for so long is too slow */

enum state { IDLE, REQUEST, REPLY };

struct client {
	struct list link; /* clients */
	int socket;	  /* libmicrohttpd's */
	enum state state;
	uint64_t since_ns; /* CLOCK_MONOTONIC: when the state began */
	uint64_t received; /* bytes that had come when the last reply had ended */
	uint64_t counted;  /* bytes that it has read, as they are in `counts` */
	uint64_t slow_ns,
		slow_at; /* sends: since when it is looked at, and what it had read then */
	uint64_t pace;	 /* as the kernel knows it */
	bool sends;	 /* REPLY, or the kernel has unsent bytes of the last one */
	void *kept;	 /* owned, by */
	void (*release)(void *);
};

static struct list clients = { &clients, &clients };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below, and of the list */
static struct clients_limits limits;
static struct clients_counts counts;

void clients_limit(const struct clients_limits *new_limits)
{
	lock_guard(&lock, LOCKS_COMMON);
	limits = *new_limits;
}

void clients_count(struct clients_counts *ret)
{
	lock_guard(&lock, LOCKS_COMMON);
	*ret = counts;
}

/* The kernel's struct has grown: an old kernel writes less of it, and the rest stays 0. */
static struct tcp_info ask_kernel(const struct client *c)
{
	struct tcp_info info;
	socklen_t n = sizeof(info);

	memset(&info, 0, sizeof(info));
	getsockopt(c->socket, IPPROTO_TCP, TCP_INFO, &info, &n);
	return info;
}

static void count_bytes(struct client *c, const struct tcp_info *info)
{
	counts.bytes += info->tcpi_bytes_acked - c->counted;
	c->counted = info->tcpi_bytes_acked;
}

/* Bytes of a reply that the kernel may hold: what it sends in 1/64 s, or two of its packets. 0:
 * the system's limit. */
static uint32_t unsent_limit(uint64_t rate)
{
	uint64_t n = rate / 64;

	return rate == 0	? 0
	       : n < 128u << 10 ? 128u << 10
	       : n < UINT32_MAX ? (uint32_t)n
				: UINT32_MAX;
}

static void pace(struct client *c, uint64_t rate)
{
	uint64_t value = rate ? rate : UINT64_MAX;
	uint32_t unsent = unsent_limit(rate);

	if (c->pace == rate)
		return;
	setsockopt(c->socket, SOL_SOCKET, SO_MAX_PACING_RATE, &value, sizeof(value));
	if (unsent != unsent_limit(c->pace))
		setsockopt(c->socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
	c->pace = rate;
}

static void begin(struct client *c, enum state state, uint64_t now)
{
	c->state = state;
	c->since_ns = c->slow_ns = now;
}

static bool is_sending(struct client *c)
{
	if (c->state == REPLY)
		c->sends = true;
	else if (c->sends)
		c->sends = ask_kernel(c).tcpi_notsent_bytes > 0;
	return c->sends;
}

/* Each reply gets the same share of max_rate. */
static void share_out(void)
{
	size_t replies = 0;
	struct client *c;
	uint64_t share;

	list_foreach (c, &clients, link)
		replies += is_sending(c);
	share = limits.max_rate ? limits.max_rate / (replies ? replies : 1) : 0;
	list_foreach (c, &clients, link)
		if (c->sends)
			pace(c, share);
}

/* ---- notifications ---- */

static void add(struct MHD_Connection *connection, void **context)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct client *c = info ? calloc(1, sizeof(*c)) : NULL;

	*context = c;
	/* Without memory it has no limit of ours, and libmicrohttpd's timeout alone. */
	if (!c)
		return;
	c->socket = info->connect_fd;
	begin(c, IDLE, clock_monotonic_ns());
	list_insert(&clients, &c->link);
	counts.connections++;
	counts.accepted++;
}

static void drop(struct client *c)
{
	struct tcp_info info = ask_kernel(c);

	count_bytes(c, &info);
	counts.connections--;
	list_drop(&c->link);
	if (c->release)
		c->release(c->kept);
	free(c);
}

void clients_on_connection(void *arg, struct MHD_Connection *connection, void **context,
			   enum MHD_ConnectionNotificationCode code)
{
	lock_guard(&lock, LOCKS_COMMON);
	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		add(connection, context);
	} else if (*context) {
		drop(*context);
		*context = NULL;
	}
}

static struct client *client_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

void clients_on_completed(void *arg, struct MHD_Connection *connection, void **request,
			  enum MHD_RequestTerminationCode code)
{
	struct client *c = client_of(connection);

	struct tcp_info info;

	lock_guard(&lock, LOCKS_COMMON);
	if (c) {
		info = ask_kernel(c);
		c->received = info.tcpi_bytes_received;
		c->slow_at = info.tcpi_bytes_acked;
		begin(c, IDLE, clock_monotonic_ns());
	}
}

void clients_drop_line(void *arg, const char *format, va_list ap)
{
}

void clients_reply(struct MHD_Connection *connection)
{
	struct client *c = client_of(connection);

	lock_guard(&lock, LOCKS_COMMON);
	if (c && c->state != REPLY) {
		begin(c, REPLY, clock_monotonic_ns());
		c->slow_at = ask_kernel(c).tcpi_bytes_acked;
		/* A second of several connections with the share of one would be too much. */
		if (limits.max_rate)
			share_out();
	}
}

bool clients_has_gone(struct MHD_Connection *connection)
{
	const struct client *c = client_of(connection);

	/* libmicrohttpd's thread asks, whose descriptor it is: no other one closes it. */
	return c && ask_kernel(c).tcpi_state != ESTABLISHED;
}

void *clients_kept(struct MHD_Connection *connection)
{
	struct client *c = client_of(connection);

	return c ? c->kept : NULL;
}

bool clients_keep(struct MHD_Connection *connection, void *memory, void (*release)(void *))
{
	struct client *c = client_of(connection);

	if (!c) {
		release(memory);
		return false;
	}
	if (c->release)
		c->release(c->kept);
	c->kept = memory;
	c->release = release;
	return true;
}

/* ---- limits ---- */

/* A client whose bytes all have arrived is not slow: it waits for us. */
static bool is_slow(struct client *c, const struct tcp_info *info, uint64_t now)
{
	uint64_t least = limits.min_rate, seconds = (now - c->slow_ns) / SECOND;

	/* What we hold back is not the client's fault. */
	if (c->pace && c->pace / 2 < least)
		least = c->pace / 2;
	if (info->tcpi_notsent_bytes == 0 && info->tcpi_unacked == 0) {
		c->slow_ns = now;
		c->slow_at = info->tcpi_bytes_acked;
		return false;
	}
	if (seconds < SLOW_S)
		return false;
	if (info->tcpi_bytes_acked - c->slow_at < least * seconds)
		return true;
	c->slow_ns = now;
	c->slow_at = info->tcpi_bytes_acked;
	return false;
}

static bool is_late(const struct client *c, uint64_t now)
{
	unsigned limit = c->state == IDLE      ? limits.idle_s
			 : c->state == REQUEST ? limits.request_s
					       : limits.reply_s;

	return limit > 0 && now - c->since_ns > limit * SECOND;
}

static void look_at(struct client *c, uint64_t now)
{
	struct tcp_info info = ask_kernel(c);
	bool late, slow;

	count_bytes(c, &info);
	if (c->state == IDLE && info.tcpi_bytes_received > c->received)
		begin(c, REQUEST, now); /* no later than now: is_late() subtracts */
	late = is_late(c, now);
	slow = is_sending(c) && limits.min_rate && is_slow(c, &info, now);
	if (late || slow)
		shutdown(c->socket, SHUT_RDWR);
	counts.ended_late += late;
	counts.ended_slow += slow && !late;
}

void clients_end_slow(void)
{
	struct client *c;
	uint64_t now;

	lock_guard(&lock, LOCKS_COMMON);
	/* Not before: no client's time may be later. */
	now = clock_monotonic_ns();
	list_foreach (c, &clients, link)
		look_at(c, now);
	share_out();
}
