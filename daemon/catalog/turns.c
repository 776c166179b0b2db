/* SPDX-License-Identifier: MIT
 *
 * Start-time fair queueing (Goyal, Vin, Cheng, 1996), with time as the cost: each account counts
 * the time that was spent for it, and the account with the smallest count is served next. A user
 * who comes back begins at the count of the one who is being served: it is next, but has not saved
 * up the time in which it asked for nothing. Counts begin at 0 and are compared with each other
 * only.
 *
 * The loop looks for new events after at most ROUND_NS, so that a user's first request does not
 * wait for all work that other users have queued.
 */
#include "daemon/catalog/turns.h"

#include "proto/base/clock.h"

#define ROUND_NS 200000u

/* While this handle is active, the loop polls with a timeout of 0. */
static void on_more(uv_idle_t *idle)
{
}

/* Behind all users that have been served as little. */
static void place(struct turns *t, struct account *a)
{
	struct list *before;

	list_drop(&a->turn_link);
	before = t->users.prev;
	while (before != &t->users &&
	       container_of(before, struct account, turn_link)->served_ns > a->served_ns)
		before = before->prev;
	list_insert(before->next, &a->turn_link);
}

/* Does one piece of work of the user who is next. The end of its last charge does not free the
 * account while it is its turn. */
static void serve_next(struct turns *t, uint64_t *now)
{
	struct account *a = list_first(&t->users, struct account, turn_link);
	uint64_t start = *now;

	t->now = start;
	t->floor = a->served_ns;
	if (!list_empty(&a->work)) {
		struct work *w = list_first(&a->work, struct work, link);

		list_drop(&w->link);
		a->in_turn = true;
		if (w->run(w))
			list_insert(a->work.next, &w->link);
		a->in_turn = false;
		*now = clock_monotonic_ns();
		a->served_ns += *now - start;
	}
	if (!list_empty(&a->work)) {
		place(t, a);
		return;
	}
	list_drop(&a->turn_link);
	account_free_if_unused(a);
}

static void on_check(uv_check_t *check)
{
	struct turns *t = check->data;
	uint64_t start, now;

	start = now = clock_monotonic_ns();
	while (!list_empty(&t->users) && now - start < ROUND_NS)
		serve_next(t, &now);
	/* Also if the last user left before its turn. */
	t->behind = !list_empty(&t->users);
	if (!t->behind)
		uv_idle_stop(&t->more);
}

void turns_init(struct turns *t, uv_loop_t *loop)
{
	*t = (struct turns){ 0 };
	list_init(&t->users);
	uv_check_init(loop, &t->check);
	uv_idle_init(loop, &t->more);
	t->check.data = t;
	uv_check_start(&t->check, on_check);
	uv_unref((uv_handle_t *)&t->check);
}

void turns_done(struct turns *t)
{
	struct account *a;
	struct work *w;

	list_drain (a, &t->users, turn_link) {
		list_drain (w, &a->work, link)
			continue;
		account_free_if_unused(a);
	}
	uv_close((uv_handle_t *)&t->check, NULL);
	uv_close((uv_handle_t *)&t->more, NULL);
}

void turns_add(struct turns *t, struct account *a, struct work *w)
{
	if (work_is_queued(w))
		return;
	list_insert(&a->work, &w->link);
	if (!list_empty(&a->turn_link))
		return;
	/* Work may come at a time when the loop would wait before the next check. */
	if (list_empty(&t->users))
		uv_idle_start(&t->more, on_more);
	if (a->served_ns < t->floor)
		a->served_ns = t->floor;
	/* As long as the loop keeps up, users are served in the order of their events: the end of
	 * one's connection before the request that another one sent after it. */
	if (t->behind)
		place(t, a);
	else
		list_insert(&t->users, &a->turn_link);
}
