/* SPDX-License-Identifier: MIT
 *
 * A buffer that was opened through a connection keeps it until it is closed, so the connection can
 * be dropped at any time.
 */
#include "client/relay/offer/daemon_link.h"

#include "client/gpushm_private.h"

#include <stdbool.h>

void daemon_link_init(struct daemon_link *l, const char *socket)
{
	*l = (struct daemon_link){ .socket = socket };
	pthread_mutex_init(&l->lock, NULL);
}

/* The daemon has gone, or is another one now. */
static bool is_broken(int result)
{
	return result == -ECONNRESET || result == -ECONNREFUSED || result == -EPROTO ||
	       result == -EPIPE || result == -ESTALE;
}

static int ask_once(struct daemon_link *l, int (*ask)(struct gpushm *c, void *user), void *user)
{
	struct gpushm_private_error e;
	int r = l->c ? 0 : gpushm_connect(l->socket, &l->c);

	if (r == 0)
		r = ask(l->c, user);
	if (is_broken(r)) {
		gpushm_private_keep(&e);
		l->c = gpushm_disconnect(l->c);
		gpushm_private_put_back(&e);
	}
	return r;
}

int daemon_link_ask(struct daemon_link *l, int (*ask)(struct gpushm *c, void *user), void *user)
{
	bool had;
	int r;

	pthread_mutex_lock(&l->lock);
	had = l->c;
	r = ask_once(l, ask, user);
	if (had && is_broken(r))
		r = ask_once(l, ask, user);
	pthread_mutex_unlock(&l->lock);
	return r;
}
