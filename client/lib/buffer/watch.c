/* SPDX-License-Identifier: MIT
 *
 * WATCH: gpushm_watch_*. A watch has names and buffers, a queue of events, and a connection of its
 * own, which goes through the states below and never waits in one: a reply that has not come is an
 * fd that will be readable, and a daemon that is absent is a timer that will expire. So an event
 * loop is never blocked.
 *
 * An event is a difference between the daemon's words and what was reported last. So nothing is
 * reported twice, and nothing that lasts is missed, whatever happened to the connection in between.
 *
 * The lock is not held while a thread waits, so that one may wait while another adds names. Adding
 * makes the timer expire, which wakes the waiting thread.
 */
#include "client/gpushm_memory.h"
#include "client/gpushm_query.h"
#include "client/lib/base/endpoint.h"
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/base/process.h"
#include "client/lib/buffer/buffer.h"
#include "client/lib/link/hello.h"
#include "client/lib/link/request.h"
#include "proto/base/clock.h"
#include "proto/base/grow.h"
#include "proto/base/own.h"
#include "proto/base/sized.h"
#include "proto/name.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#define PAUSE_MS_MAX 250u
#define EVENTS_PER_ITEM 6u /* at most, of one change */
#define PUBLISHED (STATUS_PAGE_SEALED | STATUS_PAGE_SHARED)

/* Bytes of a request: its own fields, and an item's without its name, if all numbers are large. */
#define REQUEST_BYTES 64u
#define ITEM_BYTES 24u

enum watch_state {
	WATCH_DOWN,    /* no connection; the next try is at retry_at */
	WATCH_HELLO,   /* HELLO is sent */
	WATCH_IDLE,    /* connected; no request is sent */
	WATCH_WAITING, /* WATCH is sent, and has no reply yet */
};

/* A name or a buffer, and what the daemon said about it last. */
struct watch_item {
	char name[BUFFER_NAME_MAX + 1];
	bool by_id;
	bool gone;	 /* a buffer that has gone: not in a request again */
	uint64_t buffer; /* by name: the buffer of that name; 0: none */
	uint32_t word;
};

struct gpushm_watch {
	pthread_mutex_t lock; /* everything below but the fds */
	int epoll, timer;     /* owned. epoll has the connection's socket and the timer, which
				 expires when there is something to do without the socket */
	struct gpushm *c;     /* owned; of this watch alone */
	enum watch_state state;
	bool added; /* items that the request in flight does not have */

	struct watch_item *items; /* owned */
	size_t n_items;
	size_t asked[WATCHED_MAX]; /* the index in items of the request's i-th one */
	size_t n_asked;

	struct gpushm_event *events; /* owned; a queue */
	size_t n_events, first_event;

	/* The last daemon, and since when it has gone. */
	unsigned char daemon[DAEMON_ID_BYTES];
	const struct status_map *page;
	uint32_t generation;
	uint64_t lost_at, retry_at; /* ms, CLOCK_MONOTONIC */
	unsigned pause;		    /* ms between two tries */
};

/* ---- items ---- */

static size_t item_bytes(const struct watch_item *item)
{
	return ITEM_BYTES + (item->by_id ? 0 : strlen(item->name));
}

/* All items must fit one request. */
static bool fits(const struct gpushm_watch *w, const struct watch_item *item)
{
	size_t bytes = REQUEST_BYTES + item_bytes(item);

	for (size_t i = 0; i < w->n_items; i++)
		bytes += w->items[i].gone ? 0 : item_bytes(&w->items[i]);
	return bytes <= FRAME_MAX;
}

static int add_item(struct gpushm_watch *w, const struct watch_item *item)
{
	struct watch_item *at = w->items, *end = w->items + w->n_items;

	if (!fits(w, item))
		return error_set(
			ENOSPC,
			"the names of a watch fit one request, of %u bytes: make another watch",
			FRAME_MAX);
	/* An item that has gone is replaced: no request in flight has it. */
	while (at < end && !at->gone)
		at++;
	if (at == end && w->n_items == WATCHED_MAX)
		return error_set(ENOSPC,
				 "a watch is of %u names and buffers at most: make another one",
				 WATCHED_MAX);
	if (at == end) {
		at = grow(w->items, w->n_items, sizeof(*at));
		if (!at)
			return error_set(ENOMEM, "out of memory for a watch");
		w->items = at;
		at += w->n_items++;
	}
	*at = *item;
	w->added = true;
	return 0;
}

/* ---- events ---- */

/* Makes space for n more, so that all events of a change are queued, or none. */
static int reserve_events(struct gpushm_watch *w, size_t n)
{
	size_t left = w->n_events - w->first_event;
	struct gpushm_event *wider;

	if (w->first_event > 0)
		memmove(w->events, w->events + w->first_event, left * sizeof(*w->events));
	w->n_events = left;
	w->first_event = 0;
	wider = reallocarray(w->events, left + n, sizeof(*wider));
	if (!wider)
		return error_set(ENOMEM, "out of memory for a watch's events");
	w->events = wider;
	return 0;
}

static void push(struct gpushm_watch *w, enum gpushm_event_kind what, uint64_t buffer,
		 const char *name)
{
	struct gpushm_event *e = &w->events[w->n_events++];

	*e = (struct gpushm_event){ .what = what, .buffer = buffer };
	memcpy(e->name, name, strlen(name) + 1);
}

static bool pop(struct gpushm_watch *w, struct gpushm_event *ret)
{
	if (w->first_event == w->n_events)
		return false;
	*ret = w->events[w->first_event++];
	return true;
}

static int report_restart(struct gpushm_watch *w)
{
	int r = reserve_events(w, 1);

	if (r == 0)
		push(w, GPUSHM_EVENT_RESTARTED, 0, "");
	return r;
}

static void report_flags(struct gpushm_watch *w, const struct watch_item *item, uint64_t previous,
			 uint32_t before, uint32_t now)
{
	if (!(before & PUBLISHED) && (now & PUBLISHED)) {
		push(w, GPUSHM_EVENT_PUBLISHED, item->buffer, item->name);
		w->events[w->n_events - 1].previous = previous;
	}
	if (!(before & STATUS_PAGE_DIRTY) && (now & STATUS_PAGE_DIRTY))
		push(w, GPUSHM_EVENT_DIRTY, item->buffer, item->name);
	if ((before & STATUS_PAGE_DIRTY) && !(now & (STATUS_PAGE_DIRTY | STATUS_PAGE_GONE)))
		push(w, GPUSHM_EVENT_CLEAN, item->buffer, item->name);
	if (!(before & STATUS_PAGE_UNLINKED) && (now & STATUS_PAGE_UNLINKED))
		push(w, GPUSHM_EVENT_UNLINKED, item->buffer, item->name);
	if (now & STATUS_PAGE_GONE)
		push(w, GPUSHM_EVENT_GONE, item->buffer, item->name);
}

/* The item's word is now this: queues an event for each difference. 0 or -ENOMEM, and then the item
 * is as it was. */
static int report(struct gpushm_watch *w, struct watch_item *item, uint64_t buffer, uint32_t word)
{
	uint32_t before = item->word;
	uint64_t previous = 0;
	int r = reserve_events(w, EVENTS_PER_ITEM);

	if (r < 0)
		return r;
	if (!item->by_id && buffer != item->buffer) {
		if (item->buffer)
			push(w, GPUSHM_EVENT_UNLINKED, item->buffer, item->name);
		previous = item->buffer;
		item->buffer = buffer;
		before = 0;
	}
	report_flags(w, item, previous, before, word);
	if (item->by_id && item->buffer == 0)
		process()->park_asked = !!(word & STATUS_PAGE_PARK);
	item->gone = item->by_id && word & STATUS_PAGE_GONE;
	item->word = word;
	return 0;
}

/* ---- the connection ---- */

enum { STAY = 0, GO_ON = 1 }; /* what a step returns */

static int watch_socket(struct gpushm_watch *w)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLRDHUP };

	if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->c->socket, &e) < 0)
		return error_set(errno, "can't watch the daemon's socket: %m");
	return 0;
}

/* Sets when epoll becomes readable without the socket. */
static void set_timer(struct gpushm_watch *w)
{
	struct itimerspec t = { 0 };
	bool now_due = w->first_event < w->n_events || w->added || w->state == WATCH_IDLE;
	bool hello = w->state == WATCH_HELLO;
	uint64_t at = hello ? w->lost_at + hello_reply_ms() : w->retry_at;
	uint64_t now = clock_monotonic_ms(), in = at > now ? at - now : 0;

	if (now_due || hello || w->state == WATCH_DOWN) {
		t.it_value.tv_sec = (time_t)(now_due ? 0 : in / 1000u);
		t.it_value.tv_nsec = now_due ? 1 : (long)(in % 1000u) * 1000000 + 1;
	}
	timerfd_settime(w->timer, 0, &t, NULL);
}

/* ---- going down, and coming back ---- */

/* Closing alone would leave the socket in epoll, if a forked child still has it (epoll(7)). */
static void hang_up(struct gpushm_watch *w)
{
	if (w->c->socket >= 0)
		epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->c->socket, NULL);
	close_fd(&w->c->socket);
	w->state = WATCH_DOWN;
}

static void lose(struct gpushm_watch *w)
{
	hang_up(w);
	if (w->lost_at == 0)
		w->lost_at = clock_monotonic_ms();
	w->retry_at = clock_monotonic_ms() + w->pause;
	w->pause = w->pause * 2 > PAUSE_MS_MAX ? PAUSE_MS_MAX : w->pause * 2 + !w->pause;
}

/* A repeated request would be refused again at once: the timer keeps a poll() loop from spinning.
 */
static int pause_on_error(struct gpushm_watch *w, int r)
{
	hang_up(w);
	w->retry_at = clock_monotonic_ms() + PAUSE_MS_MAX;
	return r;
}

/* True once each time the daemon has been absent that long. */
static bool time_is_up(struct gpushm_watch *w, uint64_t ms)
{
	uint64_t now = clock_monotonic_ms();

	if (now - w->lost_at < ms)
		return false;
	w->lost_at = now;
	return true;
}

static int give_up(struct gpushm_watch *w)
{
	if (!time_is_up(w, hello_reconnect_ms()))
		return STAY;
	return error_set(ECONNRESET, "the daemon has gone, and does not come back");
}

/* There is no reply yet: the connection keeps its place in the listener's queue. */
static int wait_for_hello(struct gpushm_watch *w)
{
	uint64_t ms = hello_reply_ms();

	return time_is_up(w, ms) ? hello_no_reply(w->c, ECONNRESET, ms) : STAY;
}

static int connect_again(struct gpushm_watch *w)
{
	_cleanup_(close_fd) int fd = -1;
	int r;

	if (clock_monotonic_ms() < w->retry_at)
		return STAY;
	r = endpoint_connect(w->c->path, 0, &fd, &w->c->server_uid);
	if (hello_may_pass(r)) {
		lose(w);
		return give_up(w);
	}
	if (r < 0)
		return pause_on_error(w, r);
	w->c->socket = take_fd(&fd);
	w->c->broken = false;
	r = watch_socket(w);
	if (r == 0)
		r = hello_send(w->c);
	if (r < 0)
		return pause_on_error(w, r);
	if (w->lost_at == 0)
		w->lost_at = clock_monotonic_ms();
	w->state = WATCH_HELLO;
	return GO_ON;
}

static bool is_same_daemon(const struct gpushm_watch *w)
{
	const struct status_map *page = w->c->pages;

	return memcmp(w->daemon, w->c->daemon, sizeof(w->daemon)) == 0 && page == w->page &&
	       (!page || page->page->generation == w->generation);
}

/* The daemon at the other end of the connection is now the last one. */
static void keep_daemon(struct gpushm_watch *w)
{
	memcpy(w->daemon, w->c->daemon, sizeof(w->daemon));
	w->page = w->c->pages;
	w->generation = w->page ? w->page->page->generation : 0;
	w->lost_at = w->retry_at = 0;
	w->pause = 0;
}

static int receive_hello(struct gpushm_watch *w)
{
	int r = hello_receive(w->c, MSG_DONTWAIT);

	if (r == -EAGAIN)
		return wait_for_hello(w);
	if (r == 0 && !is_same_daemon(w))
		r = report_restart(w);
	if (r == -ECONNRESET) {
		lose(w);
		return give_up(w);
	}
	if (r < 0)
		return pause_on_error(w, r);
	keep_daemon(w);
	w->state = WATCH_IDLE;
	return GO_ON;
}

/* ---- the request ---- */

static void fill(const struct watch_item *item, Gpushm__Proto__Watched *m)
{
	gpushm__proto__watched__init(m);
	SET(m, seen_word, item->word);
	if (item->by_id) {
		SET(m, buffer, item->buffer);
	} else {
		SET(m, name, connection_bytes(item->name));
		SET(m, seen_buffer, item->buffer);
	}
}

static int send_watch(struct gpushm_watch *w)
{
	Gpushm__Proto__Watched list[WATCHED_MAX], *pointers[WATCHED_MAX];
	Gpushm__Proto__Watch watch = GPUSHM__PROTO__WATCH__INIT;
	int r;

	w->added = false;
	w->n_asked = 0;
	for (size_t i = 0; i < w->n_items; i++) {
		if (w->items[i].gone)
			continue;
		fill(&w->items[i], &list[w->n_asked]);
		pointers[w->n_asked] = &list[w->n_asked];
		w->asked[w->n_asked++] = i;
	}
	w->state = WATCH_WAITING;
	/* Without items, all there is to report is a restart. */
	if (w->n_asked == 0)
		return STAY;
	watch.watched = pointers;
	watch.n_watched = w->n_asked;
	SET(&watch, wait_ms, UINT64_MAX);
	r = connection_send(w->c, request_with(WATCH, watch, &watch), 0);
	return r < 0 ? pause_on_error(w, r) : GO_ON;
}

static int read_changes(struct gpushm_watch *w, const Gpushm__Proto__WatchReply *m)
{
	for (size_t i = 0; i < m->n_changed; i++) {
		const Gpushm__Proto__Changed *it = m->changed[i];
		int r;

		if (it->index >= w->n_asked)
			return error_set(EPROTO,
					 "the daemon tells of something that is not watched");
		r = report(w, &w->items[w->asked[it->index]], it->buffer, it->word);
		if (r < 0)
			return r;
	}
	return 0;
}

static int receive_reply(struct gpushm_watch *w)
{
	Gpushm__Proto__Reply *reply;
	int r;

	/* A request can't be cancelled: for one with all items the watch connects again. */
	if (w->added) {
		w->state = WATCH_IDLE;
		if (w->n_asked > 0)
			hang_up(w);
		return GO_ON;
	}
	r = connection_receive(w->c, MSG_DONTWAIT, &reply);
	if (r == -EAGAIN)
		return STAY;
	if (r == 0)
		r = read_changes(w, reply->watched);
	frame_close_fds(&w->c->frame);
	if (r == -ECONNRESET)
		lose(w);
	else if (r < 0)
		return pause_on_error(w, r);
	else
		w->state = WATCH_IDLE;
	return GO_ON;
}

/* Goes on as far as it can without waiting. 0, or -errno with gpushm_error() set. */
static int step(struct gpushm_watch *w)
{
	static int (*const steps[])(struct gpushm_watch *) = {
		[WATCH_DOWN] = connect_again,
		[WATCH_HELLO] = receive_hello,
		[WATCH_IDLE] = send_watch,
		[WATCH_WAITING] = receive_reply,
	};
	int r;

	while ((r = steps[w->state](w)) == GO_ON)
		;
	return r;
}

/* ---- for the application ---- */

static int check(const struct gpushm_watch *w)
{
	int r = error_null(w, "watch");

	return r < 0 ? r : connection_check_fork(w->c->generation);
}

struct gpushm_watch *gpushm_watch_free(struct gpushm_watch *w)
{
	/* In a forked child the watch is the parent's, and is left alone. */
	if (!w || (w->c && check(w) < 0))
		return NULL;
	connection_unref(w->c);
	close_fd(&w->timer);
	close_fd(&w->epoll);
	pthread_mutex_destroy(&w->lock);
	free(w->items);
	free(w->events);
	free(w);
	return NULL;
}

static int open_fds(struct gpushm_watch *w)
{
	struct epoll_event e = { .events = EPOLLIN };

	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll < 0)
		return error_set(errno, "can't make a watch: %m");
	w->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (w->timer < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->timer, &e) < 0)
		return error_set(errno, "can't make a watch: %m");
	return watch_socket(w);
}

int gpushm_watch_new(struct gpushm *c, struct gpushm_watch **ret)
{
	struct gpushm_watch *w;
	int r = connection_check(c);

	if (r < 0)
		return r;
	w = calloc(1, sizeof(*w));
	if (!w)
		return error_set(ENOMEM, "out of memory for a watch");
	w->epoll = w->timer = -1;
	pthread_mutex_init(&w->lock, NULL);
	r = gpushm_connect(c->path, &w->c);
	if (r == 0)
		r = open_fds(w);
	if (r < 0) {
		gpushm_watch_free(w);
		return r;
	}
	keep_daemon(w);
	w->state = WATCH_IDLE;
	*ret = w;
	return 0;
}

static int add(struct gpushm_watch *w, const struct watch_item *item)
{
	int r;

	lock_guard(&w->lock, LOCK_WATCH);
	r = add_item(w, item);
	set_timer(w);
	return r;
}

int gpushm_watch_name(struct gpushm_watch *w, const char *name)
{
	struct watch_item item = { 0 };
	ProtobufCBinaryData text;
	protobuf_c_boolean has;
	const char *wrong;
	int r = check(w);

	if (r == 0)
		r = request_set_name(name, &has, &text);
	if (r < 0)
		return r;
	wrong = name_check_buffer(name, text.len);
	if (wrong)
		return error_set(EINVAL, "name \"%s\": %s", name, wrong);
	memcpy(item.name, name, text.len + 1);
	return add(w, &item);
}

int gpushm_watch_buffer(struct gpushm_watch *w, const struct gpushm_buffer *b)
{
	struct watch_item item = { .by_id = true };
	int r = check(w);

	if (r == 0)
		r = error_null(b, "buffer");
	if (r < 0)
		return r;
	item.buffer = b->id;
	item.word = buffer_word(b);
	memcpy(item.name, b->name, strlen(b->name) + 1);
	/* A buffer that has gone is requested all the same, so that it is reported once. */
	item.word &= ~STATUS_PAGE_GONE;
	return add(w, &item);
}

int gpushm_watch_fd(const struct gpushm_watch *w)
{
	int r = check(w);

	return r < 0 ? r : w->epoll;
}

/* Returns 1 with an event in *ret, or 0 if no event is there now. */
static int try_next(struct gpushm_watch *w, struct gpushm_event *ret)
{
	bool found;
	int r = 0;

	lock_take(&w->lock, LOCK_WATCH);
	found = pop(w, ret);
	if (!found) {
		r = step(w);
		found = r == 0 && pop(w, ret);
	}
	set_timer(w);
	lock_drop(&w->lock);
	return found ? 1 : r;
}

int gpushm_watch_next(struct gpushm_watch *w, uint64_t timeout_ms, struct gpushm_event *ret)
{
	uint64_t deadline = clock_deadline(timeout_ms);
	struct gpushm_event event;
	int r = check(w);

	if (r < 0)
		return r;
	/* Before an event is taken out of the queue. */
	if (ret->struct_size < SIZED_MIN || ret->struct_size > SIZED_MAX)
		return error_set(EINVAL, "the event: struct_size is not set");
	while ((r = try_next(w, &event)) == 0) {
		struct pollfd p = { .fd = w->epoll, .events = POLLIN };
		uint64_t left = clock_left_ms(deadline);

		if (left == 0)
			return error_set(ETIMEDOUT, "nothing that is watched has changed");
		poll(&p, 1, left > INT_MAX ? INT_MAX : (int)left);
	}
	if (r > 0)
		sized_write(ret, &event, sizeof(event));
	return r < 0 ? r : 0;
}

/* ---- what is wanted of this process ---- */

static int watch_wanted(struct gpushm *c)
{
	const struct watch_item all_mapped = { .by_id = true };
	struct gpushm_watch *w = NULL, *others = NULL;
	int r = c->suspends ? gpushm_watch_new(c, &w)
			    : error_set(ENOSYS, "gpushmd is older than this library: upgrade it");

	if (r == 0)
		r = add(w, &all_mapped);
	if (r < 0 || !atomic_compare_exchange_strong(&c->wanted, &others, w))
		gpushm_watch_free(w);
	return r;
}

int gpushm_wanted_fd(struct gpushm *c)
{
	struct gpushm_event restart = { .struct_size = sizeof(restart) };
	int r = connection_check(c);

	if (r == 0 && !c->wanted)
		r = watch_wanted(c);
	while (r == 0)
		r = gpushm_watch_next(c->wanted, 0, &restart);
	return r == -ETIMEDOUT ? gpushm_watch_fd(c->wanted) : r;
}
