/* SPDX-License-Identifier: MIT
 *
 * One list and one timer: each publication and each deadline checks every waiter once. A waiter
 * leaves the list before its on_wake() is called, so that it may wait again, close its peer or
 * publish something itself. A hash table finds the watchers of what has changed, so a change costs
 * the other watchers next to nothing.
 */
#include "daemon/ipc/waiter.h"

#include <string.h>

static void on_deadline(uv_timer_t *timer);

static void arm(struct waiters *ws)
{
	uint64_t now = uv_now(ws->timer.loop), earliest = UINT64_MAX;
	struct waiter *w;

	list_foreach (w, &ws->all, link)
		if (w->deadline_ms < earliest)
			earliest = w->deadline_ms;
	if (ws->changed)
		earliest = now;
	if (earliest == UINT64_MAX)
		uv_timer_stop(&ws->timer);
	else
		uv_timer_start(&ws->timer, on_deadline, earliest > now ? earliest - now : 0, 0);
}

/* First moves the matching waiters to a list of their own: a callback may insert and drop others.
 */
static void wake(struct waiters *ws, bool (*match)(const struct waiter *, const void *),
		 const void *arg, bool timed_out)
{
	struct list woken;
	struct waiter *w;

	list_init(&woken);
	list_foreach (w, &ws->all, link) {
		if (!match(w, arg))
			continue;
		list_drop(&w->link);
		list_insert(&woken, &w->link);
	}
	while (!list_empty(&woken)) {
		w = list_first(&woken, struct waiter, link);
		waiters_drop(ws, w);
		w->on_wake(w, timed_out);
	}
	arm(ws);
}

static bool is_late(const struct waiter *w, const void *now)
{
	return w->deadline_ms <= *(const uint64_t *)now;
}

static bool has_change(const struct waiter *w, const void *arg)
{
	return w->changed;
}

static void on_deadline(uv_timer_t *timer)
{
	struct waiters *ws = timer->data;
	uint64_t now = uv_now(timer->loop);

	if (ws->changed) {
		ws->changed = false;
		wake(ws, has_change, NULL, false);
	}
	wake(ws, is_late, &now, true);
}

static bool wants_key(const struct waiter *w, const void *key)
{
	return strcmp(w->key, key) == 0;
}

/* ---- watching ---- */

static uint64_t hash_of(const char *key, uint64_t id)
{
	return key ? hashtable_hash(key, strlen(key)) : hashtable_hash_u64(id);
}

static void mark_changed(struct waiters *ws, const char *key, uint64_t id)
{
	struct watched *it;

	hashtable_foreach (it, &ws->watched, hash_of(key, id), link) {
		if (key ? !it->key || strcmp(it->key, key) != 0 : it->key || it->id != id)
			continue;
		it->waiter->changed = ws->changed = true;
	}
}

static void notice_change(struct waiters *ws, const char *key, uint64_t id)
{
	if (ws->watched.n == 0)
		return;
	mark_changed(ws, NULL, id);
	if (key)
		mark_changed(ws, key, id);
	if (ws->changed)
		uv_timer_start(&ws->timer, on_deadline, 0, 0);
}

static void on_buffer(struct catalog_observer *o, const struct buffer *b, const char *key,
		      enum buffer_event event)
{
	struct waiters *ws = container_of(o, struct waiters, observer);

	notice_change(ws, key, b->id);
	if (key && (event == BUFFER_PUBLISHED || event == BUFFER_CLEANED))
		wake(ws, wants_key, key, false);
}

/* wake() starts the timer after all callbacks. */
void waiters_resume(struct waiters *ws, struct waiter *w)
{
	list_insert(&ws->all, &w->link);
	ws->n++;
	w->changed = false;
	for (size_t i = 0; i < w->n_watched; i++) {
		struct watched *it = &w->watched[i];

		it->waiter = w;
		hashtable_insert(&ws->watched, &it->link, hash_of(it->key, it->id));
	}
}

void waiters_insert(struct waiters *ws, struct waiter *w, uint64_t wait_ms)
{
	uint64_t now;

	uv_update_time(ws->timer.loop);
	now = uv_now(ws->timer.loop);
	w->deadline_ms = wait_ms > UINT64_MAX - now ? UINT64_MAX : now + wait_ms;
	waiters_resume(ws, w);
	arm(ws);
}

void waiters_drop(struct waiters *ws, struct waiter *w)
{
	if (list_empty(&w->link))
		return;
	list_drop(&w->link);
	ws->n--;
	for (size_t i = 0; i < w->n_watched; i++)
		hashtable_drop(&ws->watched, &w->watched[i].link);
}

/* ---- the beginning and the end ---- */

int waiters_init(struct waiters *ws, uv_loop_t *loop, struct catalog *catalog)
{
	*ws = (struct waiters){ .observer.on_buffer = on_buffer };
	list_insert(&catalog->observers, &ws->observer.link);
	list_init(&ws->all);
	uv_timer_init(loop, &ws->timer);
	ws->timer.data = ws;
	return hashtable_init(&ws->watched);
}

void waiters_done(struct waiters *ws)
{
	list_drop(&ws->observer.link);
	hashtable_done(&ws->watched);
	ws->changed = false;
	uv_close((uv_handle_t *)&ws->timer, NULL);
}
