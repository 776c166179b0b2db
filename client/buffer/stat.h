/* SPDX-License-Identifier: MIT
 *
 * One buffer as the daemon tells of it, turned into struct gpushm_stat.
 */
#ifndef GPUSHM_CLIENT_BUFFER_STAT_H
#define GPUSHM_CLIENT_BUFFER_STAT_H

#include "client/link/connection.h"

/* Owns ret->holders and ret->attrs on success, for stat_done(). 0, -EPROTO or -ENOMEM with
 * gpushm_error() set. */
int stat_decode(const struct gpushm *c, const Gpushm__Proto__Buffer *from, struct gpushm_stat *ret);
void stat_done(struct gpushm_stat *s);

#endif
