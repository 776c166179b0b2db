/* SPDX-License-Identifier: MIT
 *
 * HELLO, for a first connection and for one that comes back.
 */
#ifndef GPUSHM_CLIENT_LINK_HELLO_H
#define GPUSHM_CLIENT_LINK_HELLO_H

#include "client/link/connection.h"

#define GREETED_MAX 16 /* daemons in a row that may hang up on who says HELLO */

/* Says HELLO and keeps what it told; pools that are known already stay as they are. The caller has
 * c->lock. 0 or -errno with gpushm_error() set: -ECONNREFUSED where nobody answers in time
 * (reconnect_answer_ms()). */
int connect_hello(struct gpushm *c);

/* The two halves of it; flags as for connection_receive(). */
int connect_send_hello(struct gpushm *c);
int connect_receive_hello(struct gpushm *c, int flags);

/* Sets gpushm_error() to: nobody has answered HELLO in that time. Returns -number. */
int connect_no_answer(const struct gpushm *c, int number, uint64_t ms);

/* Asks for the pools, as connection_call() does. */
int connect_ask_pools(struct gpushm *c, Gpushm__Proto__Reply **ret);

/* Asks for them again: there may be new ones since HELLO. The caller has c->lock. 0 or
 * -errno with gpushm_error() set. */
int connect_refresh_pools(struct gpushm *c);

#endif
