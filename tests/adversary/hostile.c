/* SPDX-License-Identifier: MIT
 *
 * The attacks. A connection has one request in flight: when the reply is there, the attack makes
 * the next request. An attack that breaks the protocol or hangs up connects again at once.
 */
#include "tests/adversary/hostile.h"

#include "proto/base/own.h"
#include "proto/limits.h"
#include "tests/lib/raw_stream.h"
#include "tests/lib/user.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_FOREVER UINT64_MAX
#define ARRAYS_REFUSED 2001u
#define TABLE_ARRAYS 2000u /* in a DESCRIBE */
#define TABLE_BATCHES 131u /* of ARRAYS_MAX arrays */
#define TABLES 4u	   /* at once: a user's limit is 256 MiB */
#define BUFFERS_LISTED 2500u
#define IDS_RECLAIMED 6000u
#define DYING_LEASES 20000u
#define DYING_BUFFERS 2000u

struct conn {
	int fd;
	unsigned index, step; /* step: requests since HELLO */
	bool greeted;
	uint64_t lease; /* of the last reply that had one */
};

struct attack {
	const char *name, *text;
	/* Makes the connection's next request; 0: hang up instead. NULL: burst() is called instead,
	 * again and again. */
	size_t (*next)(struct conn *c, unsigned char *frame);
	void (*burst)(struct conn *all, unsigned n);
	void (*prepare)(void);
	bool reads;	/* next() needs the leases of the replies */
	bool ungreeted; /* sends no HELLO */
};

static const char *path;
static struct raw base; /* one more connection, which prepares things */
static unsigned pid;
static int poller;

/* ---- requests ---- */

static size_t close_lease(const struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(CLOSE, Close, close, SET(lease, c->lease)), frame);
}

static size_t next_hello(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(HELLO, Hello, hello, SET(version_min, 1), SET(version_max, 1)),
			frame);
}

static size_t create(const struct conn *c, const char *kind, uint64_t bytes, unsigned char *frame)
{
	char name[64];

	snprintf(name, sizeof(name), "%s/%u/%u", kind, pid, c->index);
	return raw_pack(REQUEST(CREATE, Create, create, BYTES(name, name), SET(size_bytes, bytes)),
			frame);
}

static size_t next_create(struct conn *c, unsigned char *frame)
{
	return c->step % 2 ? close_lease(c, frame) : create(c, "c", 4096, frame);
}

static size_t next_create_refused(struct conn *c, unsigned char *frame)
{
	return create(c, "c", UINT64_MAX, frame);
}

/* n arrays, named by their number from `first` on; the last one has no dtype if it is `wrong`. */
static size_t describe(const struct conn *c, unsigned first, unsigned n, bool wrong,
		       unsigned char *frame)
{
	static Gpushm__Proto__Array arrays[ARRAYS_REFUSED], *list[ARRAYS_REFUSED];
	static char names[ARRAYS_REFUSED][8];
	static Gpushm__Proto__Dtype dtype;
	static uint64_t shape[1] = { 1 };

	gpushm__proto__dtype__init(&dtype);
	dtype = (Gpushm__Proto__Dtype){ .base = dtype.base, SET(code, 2), SET(bits, 32) };
	for (unsigned i = 0; i < n; i++) {
		snprintf(names[i], sizeof(names[i]), "a%u", first + i);
		gpushm__proto__array__init(&arrays[i]);
		arrays[i].has_name = 1;
		arrays[i].name = (ProtobufCBinaryData){ strlen(names[i]), (uint8_t *)names[i] };
		arrays[i].n_shape = 1;
		arrays[i].shape = shape;
		arrays[i].dtype = wrong && i + 1 == n ? NULL : &dtype;
		list[i] = &arrays[i];
	}
	return raw_pack(REQUEST(DESCRIBE, Describe, describe, SET(lease, c->lease), .n_arrays = n,
				.arrays = list),
			frame);
}

/* Packing takes longer than sending, so a DESCRIBE is packed once. Leases have nine bytes as
 * varints: they start at the clock in ns. */
struct packed {
	unsigned char data[FRAME_MAX];
	size_t len;
};

static size_t for_lease(const struct packed *p, uint64_t lease, unsigned char *frame)
{
	enum { LEASE_AT = 5, LEASE_BYTES = 9 };

	memcpy(frame, p->data, p->len);
	for (int i = 0; i < LEASE_BYTES; i++)
		frame[LEASE_AT + i] =
			(unsigned char)((lease >> 7 * i & 0x7f) | (i + 1 < LEASE_BYTES ? 0x80 : 0));
	return p->len;
}

/* All arrays are checked and kept before the last one is refused. */
static size_t next_describe(struct conn *c, unsigned char *frame)
{
	static struct packed kept;

	if (c->step == 0)
		return create(c, "d", 4096, frame);
	if (!kept.len)
		kept.len = describe(c, 0, ARRAYS_REFUSED, true, kept.data);
	return for_lease(&kept, c->lease, frame);
}

static size_t next_publish(struct conn *c, unsigned char *frame)
{
	char name[64];

	snprintf(name, sizeof(name), "p/%u/%u", pid, c->index);
	switch (c->step % 4) {
	case 0:
		return create(c, "p", 4096, frame);
	case 1:
		return raw_pack(REQUEST(PUBLISH, Publish, publish, SET(lease, c->lease),
					SET(state, GPUSHM__PROTO__STATE__STATE_SEALED)),
				frame);
	case 2:
		return raw_pack(REQUEST(UNLINK, Unlink, unlink, BYTES(name, name)), frame);
	default:
		return close_lease(c, frame);
	}
}

/* Some connections make the largest tables, publish them and let them go; the others wait. */
static size_t next_tables(struct conn *c, unsigned char *frame)
{
	static struct packed kept[TABLE_BATCHES];
	unsigned step = c->step % (TABLE_BATCHES + 4), batch = step - 1;
	char name[64];

	if (c->index >= TABLES)
		return raw_pack(REQUEST(OPEN, Open, open, BYTES(name, "nobody's"),
					SET(wait_ms, WAIT_FOREVER)),
				frame);
	snprintf(name, sizeof(name), "p/%u/%u", pid, c->index);
	if (step == 0)
		return create(c, "p", 4096, frame);
	if (step == TABLE_BATCHES + 1)
		return raw_pack(REQUEST(PUBLISH, Publish, publish, SET(lease, c->lease),
					SET(state, GPUSHM__PROTO__STATE__STATE_SEALED)),
				frame);
	if (step == TABLE_BATCHES + 2)
		return raw_pack(REQUEST(UNLINK, Unlink, unlink, BYTES(name, name)), frame);
	if (step == TABLE_BATCHES + 3)
		return close_lease(c, frame);
	if (!kept[batch].len)
		kept[batch].len =
			describe(c, batch * TABLE_ARRAYS, TABLE_ARRAYS, false, kept[batch].data);
	return for_lease(&kept[batch], c->lease, frame);
}

static size_t next_publish_refused(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(PUBLISH, Publish, publish, SET(lease, 1),
				SET(state, GPUSHM__PROTO__STATE__STATE_SEALED)),
			frame);
}

static size_t next_open(struct conn *c, unsigned char *frame)
{
	const Gpushm__Proto__Request *q = REQUEST(OPEN, Open, open, BYTES(name, "hostile"));

	return c->step % 2 ? close_lease(c, frame) : raw_pack(q, frame);
}

static size_t next_open_refused(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(OPEN, Open, open, BYTES(name, "nobody's")), frame);
}

static size_t next_close(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(CLOSE, Close, close, SET(lease, 1)), frame);
}

static size_t next_unlink(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(UNLINK, Unlink, unlink, BYTES(name, "honest")), frame);
}

static size_t next_clean(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(CLEAN, Clean, clean, BYTES(name, "honest")), frame);
}

static size_t next_stat(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(STAT, Stat, stat, BYTES(name, "hostile"), SET(holders, true)),
			frame);
}

static size_t next_list(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(LIST, List, list, BYTES(prefix, "zzz")), frame);
}

static size_t next_list_all(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(LIST, List, list, SET(holders, true)), frame);
}

static size_t next_pools(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(POOLS, Pools, pools), frame);
}

static size_t next_status(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(STATUS, Status, status), frame);
}

static size_t next_flush(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(FLUSH, Flush, flush), frame);
}

static size_t next_restart(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(RESTART, Restart, restart), frame);
}

static size_t next_reclaim(struct conn *c, unsigned char *frame)
{
	static uint64_t ids[IDS_RECLAIMED];

	for (unsigned i = 0; i < IDS_RECLAIMED; i++)
		ids[i] = c->step + i + (UINT64_C(1) << 60);
	return raw_pack(REQUEST(RECLAIM, Reclaim, reclaim, SET(session, 1), SET(last, true),
				.n_leases = IDS_RECLAIMED, .leases = ids),
			frame);
}

/* Watches WATCHED_MAX names; only the first of them if `same`. */
static size_t watch(bool same, uint64_t wait_ms, unsigned char *frame)
{
	static Gpushm__Proto__Watched items[WATCHED_MAX], *list[WATCHED_MAX];
	static char names[WATCHED_MAX][16];

	for (unsigned i = 0; i < WATCHED_MAX; i++) {
		snprintf(names[i], sizeof(names[i]), "watched/%u", same ? 0 : i);
		gpushm__proto__watched__init(&items[i]);
		items[i].has_name = 1;
		items[i].name = (ProtobufCBinaryData){ strlen(names[i]), (uint8_t *)names[i] };
		list[i] = &items[i];
	}
	return raw_pack(REQUEST(WATCH, Watch, watch, .n_watched = WATCHED_MAX, .watched = list,
				SET(wait_ms, wait_ms)),
			frame);
}

/* The first connection makes and ends the buffer that all others watch. */
static size_t change_or_watch(struct conn *c, bool same, unsigned char *frame)
{
	if (c->index != 0)
		return watch(same, WAIT_FOREVER, frame);
	if (c->step % 2)
		return close_lease(c, frame);
	return raw_pack(REQUEST(CREATE, Create, create, BYTES(name, "watched/0"),
				SET(size_bytes, 4096)),
			frame);
}

static size_t next_watch_same(struct conn *c, unsigned char *frame)
{
	return change_or_watch(c, true, frame);
}

static size_t next_watch_many(struct conn *c, unsigned char *frame)
{
	return change_or_watch(c, false, frame);
}

static size_t next_watch_poll(struct conn *c, unsigned char *frame)
{
	return watch(false, 0, frame);
}

static size_t next_watch_timeout(struct conn *c, unsigned char *frame)
{
	return watch(false, 1, frame);
}

/* The first connection makes and ends the buffer whose events all others follow. */
static size_t next_events_follow(struct conn *c, unsigned char *frame)
{
	if (c->index == 0)
		return change_or_watch(c, true, frame);
	return raw_pack(REQUEST(EVENTS, Events, events, SET(after, UINT64_MAX),
				SET(wait_ms, WAIT_FOREVER)),
			frame);
}

static size_t next_events_poll(struct conn *c, unsigned char *frame)
{
	if (c->index == 0)
		return change_or_watch(c, true, frame);
	return raw_pack(REQUEST(EVENTS, Events, events), frame);
}

/* The first connection publishes and unlinks the name that all others wait for. */
static size_t next_wait(struct conn *c, unsigned char *frame)
{
	if (c->index != 0 && c->step % 2)
		return close_lease(c, frame);
	if (c->index != 0)
		return raw_pack(REQUEST(OPEN, Open, open, BYTES(name, "awaited"),
					SET(wait_ms, WAIT_FOREVER)),
				frame);
	switch (c->step % 4) {
	case 0:
		return raw_pack(REQUEST(CREATE, Create, create, BYTES(name, "awaited"),
					SET(size_bytes, 4096)),
				frame);
	case 1:
		return raw_pack(REQUEST(PUBLISH, Publish, publish, SET(lease, c->lease),
					SET(state, GPUSHM__PROTO__STATE__STATE_SHARED)),
				frame);
	case 2:
		return raw_pack(REQUEST(UNLINK, Unlink, unlink, BYTES(name, "awaited")), frame);
	default:
		return close_lease(c, frame);
	}
}

static size_t next_wait_timeout(struct conn *c, unsigned char *frame)
{
	return raw_pack(REQUEST(OPEN, Open, open, BYTES(name, "nobody's"), SET(wait_ms, 1)), frame);
}

/* The pool is full: all but the first connection wait for space that is never enough. */
static size_t next_full(struct conn *c, unsigned char *frame)
{
	char name[32];

	if (c->index == 0)
		return next_create(c, frame);
	snprintf(name, sizeof(name), "f/%u", c->index);
	return raw_pack(REQUEST(CREATE, Create, create, BYTES(name, name),
				SET(size_bytes, UINT64_C(500) << 20), SET(wait_ms, WAIT_FOREVER)),
			frame);
}

static size_t next_unpack(struct conn *c, unsigned char *frame)
{
	/* Request.watch (14), then as many empty Watch.watched (1) as fit: each is a message. */
	size_t n = 30000;

	frame[0] = 14 << 3 | 2;
	frame[1] = (unsigned char)(0x80 | (2 * n & 0x7f));
	frame[2] = (unsigned char)(0x80 | (2 * n >> 7 & 0x7f));
	frame[3] = (unsigned char)(2 * n >> 14);
	for (size_t i = 0; i < n; i++) {
		frame[4 + 2 * i] = 1 << 3 | 2;
		frame[5 + 2 * i] = 0;
	}
	return 4 + 2 * n;
}

static size_t next_large(struct conn *c, unsigned char *frame)
{
	/* OPEN with a name of 65,000 bytes. */
	size_t n = 65000;

	memset(frame, 'x', FRAME_MAX);
	frame[0] = 5 << 3 | 2;
	frame[1] = (unsigned char)(0x80 | ((n + 4) & 0x7f));
	frame[2] = (unsigned char)(0x80 | ((n + 4) >> 7 & 0x7f));
	frame[3] = (unsigned char)((n + 4) >> 14);
	frame[4] = 1 << 3 | 2;
	frame[5] = (unsigned char)(0x80 | (n & 0x7f));
	frame[6] = (unsigned char)(0x80 | (n >> 7 & 0x7f));
	frame[7] = (unsigned char)(n >> 14);
	return 8 + n;
}

static size_t next_malformed(struct conn *c, unsigned char *frame)
{
	memset(frame, 0xff, FRAME_MAX);
	return FRAME_MAX;
}

static size_t next_connect(struct conn *c, unsigned char *frame)
{
	return 0;
}

/* ---- what is done without replies ---- */

static void reconnect(struct conn *c);

static void burst_hangup(struct conn *all, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		reconnect(&all[i]);
}

static void burst_quiet(struct conn *all, unsigned n)
{
	unsigned char frame[FRAME_MAX];
	size_t len = raw_pack(REQUEST(CLOSE, Close, close, SET(lease, 1), SET(quiet, true)), frame);

	for (unsigned i = 0; i < n; i++)
		while (send(all[i].fd, frame, len, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
			continue;
}

/* Two requests at once: the second one comes before the first reply was read. */
static void burst_eager(struct conn *all, unsigned n)
{
	unsigned char frame[FRAME_MAX];
	size_t len = raw_pack(REQUEST(POOLS, Pools, pools), frame);

	for (unsigned i = 0; i < n; i++) {
		while (send(all[i].fd, frame, len, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
			continue;
		if (errno == EPIPE || errno == ECONNRESET)
			reconnect(&all[i]);
	}
}

static void die(unsigned round)
{
	unsigned char frame[FRAME_MAX];
	char name[64];
	struct raw r;

	raw_greet(&r, path);
	for (unsigned i = 0; i < DYING_BUFFERS; i++) {
		snprintf(name, sizeof(name), "dying/%u/%u", round, i);
		if (raw_call(&r, REQUEST(CREATE, Create, create, BYTES(name, name),
					 SET(size_bytes, 4096))) != 0)
			break;
	}
	for (unsigned i = 0; i < DYING_LEASES; i++) {
		size_t len = raw_pack(REQUEST(OPEN, Open, open, BYTES(name, "hostile"),
					      SET(access, GPUSHM__PROTO__ACCESS__ACCESS_WRITE)),
				      frame);

		if (raw_send(&r, frame, len) < 0 || raw_receive(&r) != 0)
			break;
	}
	_exit(0);
}

static void burst_deaths(struct conn *all, unsigned n)
{
	static unsigned round;
	pid_t child = fork();

	round++;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		die(round);
	}
	waitpid(child, NULL, 0);
}

/* ---- what is there before ---- */

static void prepare_shared(void)
{
	raw_publish(&base, raw_create(&base, "hostile", 4096), GPUSHM__PROTO__STATE__STATE_SHARED);
}

static void prepare_stat(void)
{
	Gpushm__Proto__Attr attrs[ATTRS_MAX], *list[ATTRS_MAX];
	char keys[ATTRS_MAX][8];
	uint64_t lease;

	for (unsigned i = 0; i < ATTRS_MAX; i++) {
		snprintf(keys[i], sizeof(keys[i]), "k%u", i);
		gpushm__proto__attr__init(&attrs[i]);
		attrs[i].has_key = attrs[i].has_value = 1;
		attrs[i].key = (ProtobufCBinaryData){ strlen(keys[i]), (uint8_t *)keys[i] };
		attrs[i].value = attrs[i].key;
		list[i] = &attrs[i];
	}
	raw_call(&base, REQUEST(CREATE, Create, create, BYTES(name, "hostile"),
				SET(size_bytes, 4096), .n_attrs = ATTRS_MAX, .attrs = list));
	lease = base.reply->attach->lease;
	raw_publish(&base, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
	for (unsigned i = 0; i < 60000; i++)
		raw_open(&base, "hostile");
}

static void prepare_list(void)
{
	char name[64];

	/* As many as the user's share allows. */
	for (unsigned i = 0; i < BUFFERS_LISTED; i++) {
		snprintf(name, sizeof(name), "listed/%u", i);
		if (raw_call(&base, REQUEST(CREATE, Create, create, BYTES(name, name),
					    SET(size_bytes, 4096))) != 0)
			break;
		raw_publish(&base, base.reply->attach->lease, GPUSHM__PROTO__STATE__STATE_SHARED);
	}
}

/* A connection that has gone leaves its leases with a suspect. */
static void prepare_suspect(void)
{
	struct raw gone;

	prepare_list();
	raw_greet(&gone, path);
	raw_open(&gone, "listed/0");
	raw_close(&gone);
}

static void prepare_full(void)
{
	raw_create(&base, "full", UINT64_C(500) << 20);
}

/* ---- the table ---- */

static size_t next_stream(struct conn *c, unsigned char *frame)
{
	if (c->step % 3 != 1)
		return c->step % 3 ? close_lease(c, frame) : create(c, "s", 4096, frame);
	return raw_pack(REQUEST(STREAM, Stream, stream, SET(lease, c->lease), SET(slots, 4096),
				SET(slot_bytes, 1)),
			frame);
}

static size_t next_join(struct conn *c, unsigned char *frame)
{
	const Gpushm__Proto__Request *q[] = {
		REQUEST(OPEN, Open, open, BYTES(name, "s")),
		REQUEST(JOIN, Join, join, SET(lease, c->lease)),
	};

	return c->step % 3 == 2 ? close_lease(c, frame) : raw_pack(q[c->step % 3], frame);
}

static void prepare_stream(void)
{
	uint64_t lease = raw_create(&base, "s", 4096);

	raw_make_stream(&base, lease, 4096, 1, 64);
	raw_publish(&base, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
}

static const struct attack attacks[] = {
	{ "hello", "HELLO again, refused", .next = next_hello },
	{ "hello-suspect", "HELLO beside 2,500 buffers, one of a suspect", .next = next_connect,
	  .prepare = prepare_suspect },
	{ "create", "CREATE and CLOSE of 4 KiB", .next = next_create, .reads = true },
	{ "create-refused", "CREATE of 2^64-1 bytes", .next = next_create_refused },
	{ "create-full", "CREATEs wait for space in a full pool", .next = next_full,
	  .prepare = prepare_full, .reads = true },
	{ "describe", "DESCRIBE of 2,001 arrays, the last one wrong", .next = next_describe,
	  .reads = true },
	{ "publish", "CREATE, PUBLISH, UNLINK, CLOSE", .next = next_publish, .reads = true },
	{ "tables", "four connections publish 262,000 arrays each, in a loop", .next = next_tables,
	  .reads = true },
	{ "stream", "CREATE, STREAM of 4,096 slots, CLOSE", .next = next_stream, .reads = true },
	{ "join", "OPEN, JOIN, CLOSE of one", .next = next_join, .prepare = prepare_stream,
	  .reads = true },
	{ "publish-refused", "PUBLISH of no lease", .next = next_publish_refused },
	{ "open", "OPEN and CLOSE of one buffer", .next = next_open, .prepare = prepare_shared,
	  .reads = true },
	{ "open-refused", "OPEN of a name that does not exist", .next = next_open_refused },
	{ "open-wait", "all wait for one name, which is published in a loop", .next = next_wait,
	  .reads = true },
	{ "open-timeout", "OPEN that waits for 1 ms", .next = next_wait_timeout },
	{ "close", "CLOSE of no lease", .next = next_close },
	{ "close-quiet", "a flood of quiet CLOSEs", .burst = burst_quiet },
	{ "unlink", "UNLINK of another user's buffer", .next = next_unlink },
	{ "stat", "STAT of a buffer with 64 attributes and 60,000 leases", .next = next_stat,
	  .prepare = prepare_stat },
	{ "list", "LIST of 2,500 buffers, no name fits", .next = next_list,
	  .prepare = prepare_list },
	{ "list-holders", "LIST of 2,500 buffers with holders", .next = next_list_all,
	  .prepare = prepare_list },
	{ "pools", "POOLS", .next = next_pools },
	{ "pools-suspect", "POOLS beside 2,500 buffers, one of a suspect", .next = next_pools,
	  .prepare = prepare_suspect },
	{ "status", "STATUS", .next = next_status },
	{ "clean", "CLEAN of another user's buffer", .next = next_clean },
	{ "flush", "FLUSH of all pools", .next = next_flush },
	{ "watch-same", "WATCH of 256 times one name, which changes in a loop",
	  .next = next_watch_same, .reads = true },
	{ "watch-many", "WATCH of 256 names, one of which changes in a loop",
	  .next = next_watch_many, .reads = true },
	{ "watch-poll", "WATCH of 256 names that does not wait", .next = next_watch_poll },
	{ "watch-timeout", "WATCH of 256 names for 1 ms", .next = next_watch_timeout },
	{ "events-follow", "EVENTS of a buffer that comes and goes in a loop",
	  .next = next_events_follow, .reads = true },
	{ "events-poll", "all EVENTS that the daemon keeps, without waiting",
	  .next = next_events_poll, .reads = true },
	{ "restart", "RESTART, refused", .next = next_restart },
	{ "reclaim", "RECLAIM of 6,000 leases that do not exist", .next = next_reclaim },
	{ "unpack", "30,000 messages in one frame", .next = next_unpack },
	{ "large", "OPEN of a name of 65,000 bytes", .next = next_large },
	{ "malformed", "64 KiB of no request, then connects again", .next = next_malformed,
	  .ungreeted = true },
	{ "eager", "a second request before the reply is read, then connects again",
	  .burst = burst_eager },
	{ "connect", "connect, HELLO, hang up", .next = next_connect },
	{ "hangup", "connect, hang up", .burst = burst_hangup, .ungreeted = true },
	{ "deaths", "processes with 2,000 buffers and 20,000 leases die", .burst = burst_deaths,
	  .prepare = prepare_shared },
};

size_t hostile_attacks(void)
{
	return array_size(attacks);
}

const char *hostile_name(size_t i)
{
	return attacks[i].name;
}

const char *hostile_text(size_t i)
{
	return attacks[i].text;
}

/* ---- connections ---- */

static const struct attack *attack;
static unsigned greeted;

static void send_frame(struct conn *c, const unsigned char *frame, size_t len)
{
	if (send(c->fd, frame, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
		shutdown(c->fd, SHUT_RDWR); /* an event follows */
}

static void send_next(struct conn *c)
{
	unsigned char frame[FRAME_MAX];
	size_t len = attack->next(c, frame);

	if (len)
		send_frame(c, frame, len);
	else
		reconnect(c);
}

static bool open_socket(struct conn *c)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	c->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return c->fd >= 0 && connect(c->fd, (struct sockaddr *)&a, sizeof(a)) == 0;
}

static void reconnect(struct conn *c)
{
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
	unsigned char frame[FRAME_MAX];

	close_fd(&c->fd);
	c->greeted = attack->ungreeted;
	c->step = 0;
	if (!open_socket(c) || epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &e) < 0)
		return;
	if (!attack->ungreeted)
		send_frame(c, frame, next_hello(c, frame));
	else if (attack->next)
		send_next(c);
}

static void read_lease(struct conn *c, const unsigned char *data, size_t len)
{
	Gpushm__Proto__Reply *reply = gpushm__proto__reply__unpack(NULL, len, data);

	if (reply && reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ATTACH)
		c->lease = reply->attach->lease;
	if (reply)
		gpushm__proto__reply__free_unpacked(reply, NULL);
}

static void advance(struct conn *c)
{
	static unsigned char data[FRAME_MAX];
	ssize_t n = recv(c->fd, data, sizeof(data), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		reconnect(c);
		return;
	}
	if (!c->greeted) {
		c->greeted = true;
		greeted++;
	} else {
		c->step++;
	}
	if (attack->reads && c->greeted)
		read_lease(c, data, (size_t)n);
	if (attack->next)
		send_next(c);
}

static void serve_events(int timeout_ms)
{
	struct epoll_event events[64];
	int n = epoll_wait(poller, events, array_size(events), timeout_ms);

	for (int i = 0; i < n; i++)
		advance(events[i].data.ptr);
}

static void become(uid_t uid, int processor)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	if (processor >= 0) {
		CPU_SET(processor, &set);
		sched_setaffinity(0, sizeof(set), &set);
	}
	if (uid != getuid() && !user_become(uid, uid))
		exit(1);
	/* A process that changes its user loses this (prctl(2)). */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

int hostile_role(char **args)
{
	unsigned n = (unsigned)atoi(args[3]);
	struct conn *all = calloc(n, sizeof(*all));

	setpgid(0, 0);
	path = args[0];
	pid = (unsigned)getpid();
	poller = epoll_create1(EPOLL_CLOEXEC);
	for (size_t i = 0; i < array_size(attacks); i++)
		if (strcmp(attacks[i].name, args[2]) == 0)
			attack = &attacks[i];
	if (!all || !attack)
		return 2;
	become((uid_t)atoi(args[1]), atoi(args[4]));
	raw_greet(&base, path);
	if (attack->prepare)
		attack->prepare();
	for (unsigned i = 0; i < n; i++) {
		all[i] = (struct conn){ .fd = -1, .index = i };
		reconnect(&all[i]);
		serve_events(0);
	}
	while (!attack->ungreeted && greeted < n)
		serve_events(100);
	puts("attacks");
	for (;;) {
		if (attack->burst)
			attack->burst(all, n);
		serve_events(attack->burst ? 0 : 1000);
	}
}
