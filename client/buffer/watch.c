/* SPDX-License-Identifier: MIT
 *
 * gpushm_watch_*: what a program sees of a watch. The lock is never held while there is something
 * to wait for, so that one thread may wait and another one add names; what has to wake the one that
 * waits makes the timer due.
 */
#include "client/buffer/watch.h"

#include "client/base/error.h"
#include "client/buffer/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/name.h"

#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

static int check(const struct gpushm_watch *w)
{
	return connection_check_fork(w->c->generation);
}

struct gpushm_watch *gpushm_watch_free(struct gpushm_watch *w)
{
	/* In a forked child it is the parent's, and stays as it is. */
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
	return watch_attach(w);
}

int gpushm_watch_new(struct gpushm *c, struct gpushm_watch **ret)
{
	struct gpushm_watch *w;
	int r = connection_check_fork(c->generation);

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
	watch_know_daemon(w);
	w->state = WATCH_IDLE;
	*ret = w;
	return 0;
}

static int add(struct gpushm_watch *w, const struct watch_item *item)
{
	int r;

	pthread_mutex_lock(&w->lock);
	r = watch_add(w, item);
	watch_arm(w);
	pthread_mutex_unlock(&w->lock);
	return r;
}

int gpushm_watch_name(struct gpushm_watch *w, const char *name)
{
	struct watch_item item = { 0 };
	const char *wrong;
	int r = check(w);

	if (r == 0)
		r = connection_check_name(name);
	if (r < 0)
		return r;
	wrong = name_check_buffer(name, strlen(name));
	if (wrong)
		return error_set(EINVAL, "name \"%s\": %s", name, wrong);
	memcpy(item.name, name, strlen(name) + 1);
	return add(w, &item);
}

int gpushm_watch_buffer(struct gpushm_watch *w, const struct gpushm_buffer *b)
{
	struct watch_item item = { .by_id = true, .buffer = b->id, .word = buffer_word(b) };
	int r = check(w);

	if (r < 0)
		return r;
	memcpy(item.name, b->name, sizeof(item.name));
	/* One that has gone is asked for all the same, so that it is told of once. */
	item.word &= ~STATUS_PAGE_GONE;
	return add(w, &item);
}

int gpushm_watch_fd(const struct gpushm_watch *w)
{
	int r = check(w);

	return r < 0 ? r : w->epoll;
}

/* 1: *ret is an event. 0: there is none now. */
static int try_next(struct gpushm_watch *w, struct gpushm_event *ret)
{
	bool found;
	int r = 0;

	pthread_mutex_lock(&w->lock);
	found = watch_pop(w, ret);
	if (!found) {
		r = watch_step(w);
		found = r == 0 && watch_pop(w, ret);
	}
	watch_arm(w);
	pthread_mutex_unlock(&w->lock);
	return found ? 1 : r;
}

int gpushm_watch_next(struct gpushm_watch *w, uint64_t timeout_ms, struct gpushm_event *ret)
{
	uint64_t deadline, now;
	int r = check(w);

	if (r < 0)
		return r;
	if (__builtin_add_overflow(clock_monotonic_ms(), timeout_ms, &deadline))
		deadline = UINT64_MAX;
	while ((r = try_next(w, ret)) == 0) {
		struct pollfd p = { .fd = w->epoll, .events = POLLIN };
		uint64_t left;

		now = clock_monotonic_ms();
		left = now < deadline ? deadline - now : 0;
		if (left == 0)
			return error_set(ETIMEDOUT, "nothing that is watched has changed");
		poll(&p, 1, left > INT_MAX ? INT_MAX : (int)left);
	}
	return r < 0 ? r : 0;
}
