/* SPDX-License-Identifier: MIT
 *
 * The connections of an HTTP server, and limits on the time of each. libmicrohttpd's own timeout
 * begins anew with each byte, so a client could hold a connection for ever.
 *
 * A process has one set of limits, whatever the number of its servers. All functions may be called
 * from any thread.
 */
#pragma once

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

struct clients_limits {
	unsigned idle_s;    /* from the beginning, or the last reply, to a request's first byte */
	unsigned request_s; /* from that byte to clients_reply() */
	unsigned reply_s;   /* for a whole reply; 0: no limit */
	uint64_t min_rate;  /* bytes a second of a reply that its client must read; 0: no limit */
	uint64_t max_rate;  /* bytes a second of all replies together; 0: no limit */
};

struct clients_counts {
	uint64_t connections; /* now */
	uint64_t accepted, ended_late, ended_slow;
	uint64_t bytes; /* that clients have received */
};

/* Before the first connection, and again to change them. */
void clients_limit(const struct clients_limits *limits);

/* For MHD_OPTION_NOTIFY_CONNECTION and MHD_OPTION_NOTIFY_COMPLETED. */
void clients_on_connection(void *arg, struct MHD_Connection *connection, void **context,
			   enum MHD_ConnectionNotificationCode code);
void clients_on_completed(void *arg, struct MHD_Connection *connection, void **request,
			  enum MHD_RequestTerminationCode code);

/* For MHD_OPTION_EXTERNAL_LOGGER: libmicrohttpd would print a line for each client that leaves. */
void clients_drop_line(void *arg, const char *format, va_list ap);

/* The request is there: what its reply takes counts from now on. */
void clients_reply(struct MHD_Connection *connection);

/* Nobody waits for the reply any more. */
bool clients_has_gone(struct MHD_Connection *connection);

/* Memory of the server for this connection, which free() releases at its end. NULL: it has none
 * yet. clients_keep() takes the memory; false: it can't keep it, and has freed it. */
void *clients_kept(struct MHD_Connection *connection);
bool clients_keep(struct MHD_Connection *connection, void *memory, void (*release)(void *));

/* Call it each second: ends the connections that are past a limit, and shares out max_rate. */
void clients_end_slow(void);

void clients_count(struct clients_counts *ret);
