/* SPDX-License-Identifier: MIT
 *
 * A buffer that was opened through a connection keeps it until it is closed, so the connection can
 * be dropped at any time.
 */
#include "client/relay/offer/daemon_link.h"

#include "client/gpushm_private.h"
#include "client/relay/locks.h"
#include "proto/base/own.h"
#include "proto/base/thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct daemon_link {
	const char *socket; /* borrowed */
	struct gpushm *c;   /* the thread's; NULL: not connected */
	pthread_mutex_t lock;
	pthread_cond_t put;
	struct list questions; /* under lock */
};

/* The daemon has gone, or is another one now. */
static bool is_broken(int result)
{
	return result == -ECONNRESET || result == -ECONNREFUSED || result == -EPROTO ||
	       result == -EPIPE || result == -ESTALE;
}

static int ask_once(struct daemon_link *l, struct daemon_question *q)
{
	int r = l->c ? 0 : gpushm_connect(l->socket, &l->c);

	if (r == 0)
		r = q->ask(l->c, q);
	if (is_broken(r)) {
		private_error_guard();
		l->c = gpushm_disconnect(l->c);
	}
	return r;
}

static int ask(struct daemon_link *l, struct daemon_question *q)
{
	bool had = l->c;
	int r = ask_once(l, q);

	return had && is_broken(r) ? ask_once(l, q) : r;
}

static struct daemon_question *take(struct daemon_link *l)
{
	struct daemon_question *q;

	lock_guard(&l->lock, LOCK_LINK);
	while (list_empty(&l->questions))
		pthread_cond_wait(&l->put, &l->lock);
	q = list_first(&l->questions, struct daemon_question, link);
	list_drop(&q->link);
	return q;
}

static void *run(void *arg)
{
	for (;;) {
		struct daemon_question *q = take(arg);

		lock_assert_none_from(LOCKS_RELAY);
		q->done(q, q->ask ? ask(arg, q) : 0);
	}
	return NULL;
}

int daemon_link_start(const char *socket, struct daemon_link **ret)
{
	_cleanup_(free_ptr) struct daemon_link *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->socket = socket;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->put, NULL);
	list_init(&l->questions);
	r = thread_start_detached(run, l);
	if (r < 0)
		return r;
	*ret = take_ptr(l);
	return 0;
}

void daemon_link_put(struct daemon_link *l, struct daemon_question *q)
{
	lock_guard(&l->lock, LOCK_LINK);
	list_insert(&l->questions, &q->link);
	pthread_cond_signal(&l->put);
}
