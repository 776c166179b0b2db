/* SPDX-License-Identifier: MIT
 *
 * One list and one timer for all deadlines, and two hash tables, which find those that wait for a
 * name and those that watch what has changed. So a change costs the other waiters nothing. What a
 * change costs for those whom it concerns is a queue operation each; what they do then is done in
 * their users' turns.
 *
 * A publication holds the buffer for those who wait for its name until their turn has come: its
 * creator may unlink the name, or close a transient buffer, right after it.
 */
#include "daemon/ipc/waiter.h"

#include "proto/base/clock.h"
#include "proto/limits.h"

#include <string.h>

/* ---- being woken ---- */

static void let_go(struct waiters *ws, struct waiter *w)
{
	if (w->published)
		catalog_release(ws->catalog, take_ptr(w->published));
}

static bool take_turn(struct work *work)
{
	struct waiter *w = container_of(work, struct waiter, work);
	struct waiters *ws = w->waiters;

	w->on_wake(w, w->deadline_ms <= uv_now(ws->timer.loop));
	let_go(ws, w);
	return false;
}

static void wake(struct waiters *ws, struct waiter *w)
{
	turns_add(ws->turns, w->account, &w->work);
}

/* ---- deadlines ---- */

static void on_deadline(uv_timer_t *timer);

static void arm(struct waiters *ws, uint64_t earliest_ms)
{
	uint64_t now = uv_now(ws->timer.loop);

	ws->earliest_ms = earliest_ms;
	if (earliest_ms == UINT64_MAX)
		uv_timer_stop(&ws->timer);
	else
		uv_timer_start(&ws->timer, on_deadline, earliest_ms > now ? earliest_ms - now : 0,
			       0);
}

static void on_deadline(uv_timer_t *timer)
{
	struct waiters *ws = timer->data;
	uint64_t now = uv_now(timer->loop), earliest = UINT64_MAX;
	struct waiter *w;

	list_foreach (w, &ws->all, link) {
		if (w->deadline_ms <= now)
			wake(ws, w);
		else if (w->deadline_ms < earliest)
			earliest = w->deadline_ms;
	}
	arm(ws, earliest);
}

/* ---- changes ---- */

static uint64_t hash_of(const char *key, uint64_t id)
{
	return key ? hashtable_hash(key, strlen(key)) : hashtable_hash_u64(id);
}

static bool is_same(const struct watched *w, const char *key, uint64_t id)
{
	return key ? w->key && strcmp(w->key, key) == 0 : !w->key && w->id == id;
}

static void wake_watchers(struct waiters *ws, const char *key, uint64_t id)
{
	struct watched *it;

	hashtable_foreach (it, &ws->watched, hash_of(key, id), link)
		if (is_same(it, key, id))
			wake(ws, it->waiter);
}

static void wake_for_name(struct waiters *ws, struct buffer *b, const char *key)
{
	struct waiter *w;

	hashtable_foreach (w, &ws->names, hash_of(key, 0), by_key) {
		if (strcmp(w->key, key) != 0)
			continue;
		let_go(ws, w);
		w->published = catalog_hold(b);
		wake(ws, w);
	}
}

/* A publication that has woken it before counts. */
static void wake_for_free_name(struct waiters *ws, const char *key)
{
	struct waiter *w;

	hashtable_foreach (w, &ws->names, hash_of(key, 0), by_key)
		if (w->while_filling && strcmp(w->key, key) == 0)
			wake(ws, w);
}

static void on_buffer(struct catalog_observer *o, struct buffer *b, const char *key,
		      enum buffer_event event)
{
	struct waiters *ws = container_of(o, struct waiters, observer);

	wake_watchers(ws, NULL, b->id);
	if (event == BUFFER_WANTED)
		wake_watchers(ws, NULL, 0);
	if (!key)
		return;
	wake_watchers(ws, key, 0);
	if (event == BUFFER_PUBLISHED || event == BUFFER_RENAMED || event == BUFFER_CLEANED ||
	    event == BUFFER_PRODUCER_LEFT || event == BUFFER_RESTORED)
		wake_for_name(ws, b, key);
	else if (event == BUFFER_UNLINKED)
		wake_for_free_name(ws, key);
}

void waiters_tell_wanted(struct waiters *ws)
{
	wake_watchers(ws, NULL, 0);
}

/* ---- events ---- */

static void on_events(uv_timer_t *timer)
{
	struct waiters *ws = timer->data;
	struct waiter *w;

	list_foreach (w, &ws->followers, event_link)
		wake(ws, w);
}

void waiters_tell_event(struct waiters *ws)
{
	if (!list_empty(&ws->followers) && !uv_is_active((uv_handle_t *)&ws->events))
		uv_timer_start(&ws->events, on_events, WAITER_EVENTS_MS, 0);
}

void waiters_follow_events(struct waiters *ws, struct waiter *w)
{
	list_insert(&ws->followers, &w->event_link);
}

static void on_event(void *arg)
{
	waiters_tell_event(arg);
}

/* ---- waiting ---- */

size_t waiters_join_same(struct watched *all, size_t n)
{
	size_t slots[2 * WATCHED_MAX] = { 0 }, different = 0; /* indices into all, plus 1 */

	for (size_t i = 0; i < n; i++) {
		size_t at = hash_of(all[i].key, all[i].id) % array_size(slots);

		while (slots[at] && !is_same(&all[slots[at] - 1], all[i].key, all[i].id))
			at = (at + 1) % array_size(slots);
		if (!slots[at]) {
			slots[at] = i + 1;
			different++;
		}
		all[i].first = slots[at] - 1;
	}
	return different;
}

static void link_watched(struct waiters *ws, struct waiter *w)
{
	for (size_t i = 0; i < w->n_watched; i++) {
		struct watched *it = &w->watched[i];

		it->waiter = w;
		if (it->first == i)
			hashtable_insert(&ws->watched, &it->link, hash_of(it->key, it->id));
	}
}

void waiters_insert(struct waiters *ws, struct waiter *w, struct account *account, uint64_t wait_ms)
{
	uv_update_time(ws->timer.loop);
	w->waiters = ws;
	w->account = account;
	work_init(&w->work, take_turn);
	w->deadline_ms = clock_deadline_ms(wait_ms);
	list_insert(&ws->all, &w->link);
	ws->n++;
	if (w->key[0])
		hashtable_insert(&ws->names, &w->by_key, hash_of(w->key, 0));
	link_watched(ws, w);
	if (w->deadline_ms < ws->earliest_ms)
		arm(ws, w->deadline_ms);
}

void waiters_drop(struct waiters *ws, struct waiter *w)
{
	if (list_empty(&w->link))
		return;
	list_drop(&w->link);
	list_drop(&w->event_link);
	work_drop(&w->work);
	ws->n--;
	hashtable_drop(&ws->names, &w->by_key);
	for (size_t i = 0; i < w->n_watched; i++)
		hashtable_drop(&ws->watched, &w->watched[i].link);
	let_go(ws, w);
}

/* ---- the beginning and the end ---- */

int waiters_init(struct waiters *ws, uv_loop_t *loop, struct catalog *catalog, struct turns *turns)
{
	int r;

	*ws = (struct waiters){ .observer.on_buffer = on_buffer,
				.earliest_ms = UINT64_MAX,
				.catalog = catalog,
				.turns = turns };
	list_insert(&catalog->observers, &ws->observer.link);
	catalog->events.on_event = on_event;
	catalog->events.arg = ws;
	list_init(&ws->all);
	list_init(&ws->followers);
	uv_timer_init(loop, &ws->timer);
	uv_timer_init(loop, &ws->events);
	ws->timer.data = ws->events.data = ws;
	r = hashtable_init(&ws->names);
	return r < 0 ? r : hashtable_init(&ws->watched);
}

void waiters_done(struct waiters *ws)
{
	list_drop(&ws->observer.link);
	ws->catalog->events.on_event = NULL;
	hashtable_done(&ws->names);
	hashtable_done(&ws->watched);
	uv_close((uv_handle_t *)&ws->timer, NULL);
	uv_close((uv_handle_t *)&ws->events, NULL);
}
