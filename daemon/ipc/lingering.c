/* SPDX-License-Identifier: MIT
 *
 * No event of the socket tells that a client has read its replies or has closed its end: after a
 * shutdown() of both ends the socket is ready for ever. So lingering peers are looked at, a few at
 * a time.
 *
 * To close a socket takes as long as ten requests if it holds some 280 datagrams that were not
 * read: the kernel frees one after the other. So that is a piece of work of the peer's user, like a
 * request.
 */
#include "daemon/ipc/lingering.h"

#define LOOK_MS 50u    /* between two looks */
#define LOOKS_MAX 128u /* at once; each takes 0.3 to 1 us */

static void free_peer(struct lingering *l, struct peer *p)
{
	peer_free(p);
	l->on_freed(l->arg);
}

static bool free_in_turn(struct work *w)
{
	struct peer *p = container_of(w, struct peer, work);

	free_peer(p->arg, p);
	return false;
}

static void settle(struct lingering *l, struct peer *p)
{
	list_drop(&p->link);
	list_insert(&l->settled, &p->link);
	p->arg = l;
	work_init(&p->work, free_in_turn);
	turns_add(l->turns, p->session.account, &p->work);
}

static void on_look(uv_timer_t *timer)
{
	struct lingering *l = timer->data;
	struct list seen;

	list_init(&seen);
	for (unsigned i = 0; i < LOOKS_MAX && !list_empty(&l->unread); i++) {
		struct peer *p = list_first(&l->unread, struct peer, link);

		list_drop(&p->link);
		if (unread_settle(&p->unread))
			settle(l, p);
		else
			list_insert(&seen, &p->link);
	}
	list_move(&seen, &l->unread);
	if (list_empty(&l->unread))
		uv_timer_stop(timer);
}

void lingering_add(struct lingering *l, struct peer *p)
{
	if (uv_is_closing((uv_handle_t *)&l->look)) {
		peer_free(p);
	} else if (unread_settle(&p->unread)) {
		settle(l, p);
	} else {
		list_insert(&l->unread, &p->link);
		uv_timer_start(&l->look, on_look, LOOK_MS, LOOK_MS);
	}
}

bool lingering_free_one(struct lingering *l, uid_t uid)
{
	struct peer *p;

	on_look(&l->look);
	list_foreach (p, &l->settled, link) {
		if (p->session.account->uid != uid)
			continue;
		free_peer(l, p);
		return true;
	}
	return false;
}

void lingering_init(struct lingering *l, uv_loop_t *loop, struct turns *turns,
		    void (*on_freed)(void *arg), void *arg)
{
	*l = (struct lingering){ .turns = turns, .on_freed = on_freed, .arg = arg };
	list_init(&l->unread);
	list_init(&l->settled);
	uv_timer_init(loop, &l->look);
	l->look.data = l;
}

void lingering_done(struct lingering *l)
{
	struct peer *p;

	list_foreach (p, &l->unread, link)
		peer_free(p);
	list_foreach (p, &l->settled, link)
		peer_free(p);
	uv_close((uv_handle_t *)&l->look, NULL);
}
