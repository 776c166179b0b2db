/* SPDX-License-Identifier: MIT
 *
 * The connection of a watch. It goes through the states of watch.h and never waits in one: a reply
 * that is not there yet is an fd that will be readable, and a daemon that is not there is a timer
 * that will be due. So an event loop is held up by nothing.
 */
#include "client/base/endpoint.h"
#include "client/base/error.h"
#include "client/buffer/watch.h"
#include "client/link/hello.h"
#include "client/link/reconnect.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#define PAUSE_MS_MAX 250u

enum { STAY = 0, GO_ON = 1 }; /* what a step returns */

int watch_attach(struct gpushm_watch *w)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLRDHUP };

	if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->c->socket, &e) < 0)
		return error_set(errno, "can't watch the daemon's socket: %m");
	return 0;
}

void watch_arm(struct gpushm_watch *w)
{
	struct itimerspec t = { 0 };
	bool now_due = w->first_event < w->n_events || w->changed || w->state == WATCH_IDLE;
	bool greeting = w->state == WATCH_GREETING;
	uint64_t at = greeting ? w->lost_at + reconnect_answer_ms() : w->retry_at;
	uint64_t now = clock_monotonic_ms(), in = at > now ? at - now : 0;

	if (now_due || greeting || w->state == WATCH_DOWN) {
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

/* What is refused now will be refused at once if it is asked again: who polls gets a rest. */
static int be_refused(struct gpushm_watch *w, int r)
{
	hang_up(w);
	w->retry_at = clock_monotonic_ms() + PAUSE_MS_MAX;
	return r;
}

/* Gone for too long: said once, and then from the beginning. */
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
	if (!time_is_up(w, reconnect_ms()))
		return STAY;
	return error_set(ECONNRESET, "the daemon has gone, and does not come back");
}

/* Nobody has answered yet: who asked keeps its place in the queue. */
static int stay_greeting(struct gpushm_watch *w)
{
	uint64_t ms = reconnect_answer_ms();

	return time_is_up(w, ms) ? connect_no_answer(w->c, ECONNRESET, ms) : STAY;
}

static int connect_again(struct gpushm_watch *w)
{
	_cleanup_(close_fd) int fd = -1;
	int r;

	if (clock_monotonic_ms() < w->retry_at)
		return STAY;
	r = endpoint_connect(w->c->path, 0, &fd, &w->c->server_uid);
	if (reconnect_may_help(r)) {
		lose(w);
		return give_up(w);
	}
	if (r < 0)
		return be_refused(w, r);
	w->c->socket = take_fd(&fd);
	w->c->broken = false;
	r = watch_attach(w);
	if (r == 0)
		r = connect_send_hello(w->c);
	if (r < 0)
		return be_refused(w, r);
	if (w->lost_at == 0)
		w->lost_at = clock_monotonic_ms();
	w->state = WATCH_GREETING;
	return GO_ON;
}

static bool is_same_daemon(const struct gpushm_watch *w)
{
	const struct notice_board *board = w->c->boards;

	return memcmp(w->daemon, w->c->daemon, sizeof(w->daemon)) == 0 && board == w->board &&
	       (!board || board->map->generation == w->generation);
}

void watch_know_daemon(struct gpushm_watch *w)
{
	memcpy(w->daemon, w->c->daemon, sizeof(w->daemon));
	w->board = w->c->boards;
	w->generation = w->board ? w->board->map->generation : 0;
	w->lost_at = w->retry_at = 0;
	w->pause = 0;
}

static int be_greeted(struct gpushm_watch *w)
{
	int r = connect_receive_hello(w->c, MSG_DONTWAIT);

	if (r == -EAGAIN)
		return stay_greeting(w);
	if (r == 0 && !is_same_daemon(w))
		r = watch_tell_restart(w);
	if (r == -ECONNRESET) {
		lose(w);
		return give_up(w);
	}
	if (r < 0)
		return be_refused(w, r);
	watch_know_daemon(w);
	w->state = WATCH_IDLE;
	return GO_ON;
}

/* ---- asking, and being answered ---- */

static void fill(const struct watch_item *item, Gpushm__Proto__Watched *m)
{
	gpushm__proto__watched__init(m);
	m->has_seen_word = true;
	m->seen_word = item->word;
	m->has_name = !item->by_id;
	m->has_buffer = item->by_id;
	m->has_seen_buffer = !item->by_id;
	if (item->by_id)
		m->buffer = item->buffer;
	else
		m->name = connection_bytes(item->name);
	m->seen_buffer = m->has_seen_buffer ? item->buffer : 0;
}

static int ask(struct gpushm_watch *w)
{
	Gpushm__Proto__Watched list[WATCHED_MAX], *pointers[WATCHED_MAX];
	Gpushm__Proto__Watch watch = GPUSHM__PROTO__WATCH__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	int r;

	w->changed = false;
	w->n_asked = 0;
	for (size_t i = 0; i < w->n_items; i++) {
		if (w->items[i].gone)
			continue;
		fill(&w->items[i], &list[w->n_asked]);
		pointers[w->n_asked] = &list[w->n_asked];
		w->asked[w->n_asked++] = i;
	}
	w->state = WATCH_WAITING;
	/* Nothing to ask for: what remains to be told is a restart. */
	if (w->n_asked == 0)
		return STAY;
	watch.watched = pointers;
	watch.n_watched = w->n_asked;
	watch.has_wait_ms = true;
	watch.wait_ms = UINT64_MAX;
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_WATCH;
	request.watch = &watch;
	r = connection_send(w->c, &request);
	return r < 0 ? be_refused(w, r) : GO_ON;
}

static int take_reply(struct gpushm_watch *w, const Gpushm__Proto__WatchReply *m)
{
	for (size_t i = 0; i < m->n_changed; i++) {
		const Gpushm__Proto__Changed *it = m->changed[i];
		int r;

		if (it->index >= w->n_asked)
			return error_set(EPROTO,
					 "the daemon tells of something that is not watched");
		r = watch_take(w, &w->items[w->asked[it->index]], it->buffer, it->word);
		if (r < 0)
			return r;
	}
	return 0;
}

static int be_answered(struct gpushm_watch *w)
{
	Gpushm__Proto__Reply *reply;
	int r;

	/* More is watched than was asked for, and a request can't be taken back. */
	if (w->changed && w->n_asked > 0) {
		hang_up(w);
		return GO_ON;
	}
	if (w->changed)
		w->state = WATCH_IDLE;
	if (w->changed)
		return GO_ON;
	r = connection_receive(w->c, GPUSHM__PROTO__REPLY__RESULT_WATCHED, MSG_DONTWAIT, &reply);
	if (r == -EAGAIN)
		return STAY;
	if (r == 0)
		r = take_reply(w, reply->watched);
	frame_close_fds(&w->c->frame);
	if (r == -ECONNRESET)
		lose(w);
	else if (r < 0)
		return be_refused(w, r);
	else
		w->state = WATCH_IDLE;
	return GO_ON;
}

int watch_step(struct gpushm_watch *w)
{
	static int (*const steps[])(struct gpushm_watch *) = {
		[WATCH_DOWN] = connect_again,
		[WATCH_GREETING] = be_greeted,
		[WATCH_IDLE] = ask,
		[WATCH_WAITING] = be_answered,
	};
	int r;

	while ((r = steps[w->state](w)) == GO_ON)
		;
	return r;
}
