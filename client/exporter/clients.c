/* SPDX-License-Identifier: MIT
 *
 * libmicrohttpd can't be told to end a connection; but one whose socket was shut down ends like one
 * that its client closed. The notification of the end comes before the descriptor is closed, and
 * the lock is held for both, so a descriptor that is shut down here is still this connection's.
 */
#include "client/exporter/clients.h"

#include "proto/base/clock.h"
#include "proto/base/list.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

struct client {
	struct list link;  /* clients */
	int socket;	   /* libmicrohttpd's */
	uint64_t since_ns; /* CLOCK_MONOTONIC */
};

static struct list clients = { &clients, &clients };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */

static void add(struct MHD_Connection *connection, void **context)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct client *c = info ? calloc(1, sizeof(*c)) : NULL;

	*context = c;
	/* Without memory it has no limit of ours, and libmicrohttpd's timeout alone. */
	if (!c)
		return;
	c->socket = info->connect_fd;
	c->since_ns = clock_monotonic_ns();
	list_insert(&clients, &c->link);
}

void clients_on_connection(void *arg, struct MHD_Connection *connection, void **context,
			   enum MHD_ConnectionNotificationCode code)
{
	struct client *c = *context;

	pthread_mutex_lock(&lock);
	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		add(connection, context);
	} else if (c) {
		list_drop(&c->link);
		free(c);
		*context = NULL;
	}
	pthread_mutex_unlock(&lock);
}

void clients_on_completed(void *arg, struct MHD_Connection *connection, void **request,
			  enum MHD_RequestTerminationCode code)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct client *c = info ? info->socket_context : NULL;

	pthread_mutex_lock(&lock);
	if (c)
		c->since_ns = clock_monotonic_ns();
	pthread_mutex_unlock(&lock);
}

void clients_end_slow(void)
{
	uint64_t now = clock_monotonic_ns();
	struct client *c;

	pthread_mutex_lock(&lock);
	list_foreach (c, &clients, link)
		if (now - c->since_ns > CLIENTS_S * 1000000000ull)
			shutdown(c->socket, SHUT_RDWR);
	pthread_mutex_unlock(&lock);
}
