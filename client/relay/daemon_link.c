/* SPDX-License-Identifier: MIT
 *
 * A buffer that was opened through a connection keeps it until it is closed, so the connection can
 * be dropped at any time.
 */
#include "client/relay/daemon_link.h"

#include "client/gpushm_private.h"

void daemon_link_init(struct daemon_link *l, const char *socket)
{
	*l = (struct daemon_link){ .socket = socket };
	pthread_mutex_init(&l->lock, NULL);
}

int daemon_link_take(struct daemon_link *l, struct gpushm **ret)
{
	int r = 0;

	pthread_mutex_lock(&l->lock);
	if (!l->c)
		r = gpushm_connect(l->socket, &l->c);
	if (r == 0)
		*ret = l->c;
	else
		pthread_mutex_unlock(&l->lock);
	return r;
}

void daemon_link_give(struct daemon_link *l, int result)
{
	struct gpushm_private_error e;

	gpushm_private_keep(&e);
	if (result == -ECONNRESET || result == -EPROTO || result == -EPIPE ||
	    result == -ECONNREFUSED)
		l->c = gpushm_disconnect(l->c);
	pthread_mutex_unlock(&l->lock);
	gpushm_private_put_back(&e);
}
