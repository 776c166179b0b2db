/* SPDX-License-Identifier: MIT
 *
 * Where a program of ours serves HTTP.
 */
#pragma once

#include <netdb.h>
#include <stdbool.h>

struct listen_place {
	char text[NI_MAXHOST + NI_MAXSERV + 4]; /* "127.0.0.1:19400", "[::1]:19400" */
	bool loopback;				/* only this machine reaches it */
};

/* Listens at ADDRESS:PORT, as 127.0.0.1:9400, [::1]:9400, localhost:0 or :9400 (all addresses).
 * program: for errors. Returns the socket; or -1, with the reason on stderr. *ret says where,
 * because port 0 is any free one. */
int listen_open(const char *program, const char *address, struct listen_place *ret);

/* What can be said of such an address without listening at it. 0, or -1 with the reason on stderr.
 * *ret_loopback: only this machine would reach it. */
int listen_check(const char *program, const char *address, bool *ret_loopback);

/* Describes a socket that listens already. False: it is no socket of TCP. */
bool listen_describe(int fd, struct listen_place *ret);
