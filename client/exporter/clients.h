/* SPDX-License-Identifier: MIT
 *
 * The HTTP connections, and a limit on the time of each: from its beginning, or from its last
 * reply, to the end of its next request. libmicrohttpd's own timeout begins anew with each byte.
 */
#pragma once

#include <microhttpd.h>

#define CLIENTS_MAX 512u
#define CLIENTS_S 5u

/* For MHD_OPTION_NOTIFY_CONNECTION and MHD_OPTION_NOTIFY_COMPLETED. */
void clients_on_connection(void *arg, struct MHD_Connection *connection, void **context,
			   enum MHD_ConnectionNotificationCode code);
void clients_on_completed(void *arg, struct MHD_Connection *connection, void **request,
			  enum MHD_RequestTerminationCode code);

/* Call it each second: ends the connections whose time is over. Any thread. */
void clients_end_slow(void);
