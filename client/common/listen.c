/* SPDX-License-Identifier: MIT
 *
 * Addresses, and sockets that listen at them.
 */
#include "client/common/listen.h"

#include "proto/base/own.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int complain(const char *program, const char *address, const char *why)
{
	fprintf(stderr, "%s: %s: %s\n", program, address, why);
	return -1;
}

/* Splits ADDRESS:PORT in place; the address is "" for all. */
static int split(char *text, char **ret_host, char **ret_port)
{
	char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;

	/* getaddrinfo() would take 70000 for 4464. */
	if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    strlen(colon + 1) > 5 || atoi(colon + 1) > UINT16_MAX)
		return -EINVAL;
	*colon = '\0';
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		text[n - 1] = '\0';
		text++;
	} else if (strchr(text, ':')) {
		return -EINVAL;
	}
	*ret_host = text;
	*ret_port = colon + 1;
	return 0;
}

static int listen_at(const struct addrinfo *at)
{
	_cleanup_(close_fd) int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0);
	const int on = 1;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, at->ai_addr, at->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0)
		return -errno;
	return take_fd(&fd);
}

static bool describe(const struct sockaddr *at, socklen_t len, struct listen_place *ret)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];
	bool colon;

	if ((at->sa_family != AF_INET && at->sa_family != AF_INET6) ||
	    getnameinfo(at, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return false;
	colon = strchr(host, ':');
	snprintf(ret->text, sizeof(ret->text), "%s%s%s:%s", colon ? "[" : "", host,
		 colon ? "]" : "", port);
	ret->loopback = strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
	return true;
}

bool listen_describe(int fd, struct listen_place *ret)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);

	return getsockname(fd, (struct sockaddr *)&at, &len) == 0 &&
	       describe((struct sockaddr *)&at, len, ret);
}

static int find(const char *program, const char *address, struct addrinfo **ret)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	_cleanup_(free_ptr) char *copy = strdup(address);
	char *host, *port;
	int r;

	if (!copy || split(copy, &host, &port) < 0)
		return complain(program, address,
				"not ADDRESS:PORT, such as 127.0.0.1:19400 or [::1]:19400");
	r = getaddrinfo(*host ? host : NULL, port, &hints, ret);
	return r != 0 ? complain(program, address, gai_strerror(r)) : 0;
}

int listen_check(const char *program, const char *address, bool *ret_loopback)
{
	struct addrinfo *found = NULL;
	struct listen_place place;

	if (find(program, address, &found) < 0)
		return -1;
	*ret_loopback = true;
	for (const struct addrinfo *at = found; at; at = at->ai_next)
		*ret_loopback &= describe(at->ai_addr, at->ai_addrlen, &place) && place.loopback;
	freeaddrinfo(found);
	return 0;
}

int listen_open(const char *program, const char *address, struct listen_place *ret)
{
	struct addrinfo *found = NULL;
	int r = -EADDRNOTAVAIL;

	if (find(program, address, &found) < 0)
		return -1;
	for (const struct addrinfo *at = found; at && r < 0; at = at->ai_next)
		r = listen_at(at);
	freeaddrinfo(found);
	if (r < 0)
		return complain(program, address, strerror(-r));
	listen_describe(r, ret);
	return r;
}
