/* SPDX-License-Identifier: MIT
 *
 * UNLINK, CLEAN, FLUSH and RESTART: requests of owners and administrators, whose reply says nothing
 * but success.
 */
#include "client/link/request.h"

int gpushm_unlink(struct gpushm *c, const char *name)
{
	Gpushm__Proto__Unlink unlink = GPUSHM__PROTO__UNLINK__INIT;
	int r = request_set_name(name, &unlink.has_name, &unlink.name);

	return r < 0 ? r : request_ack(c, request_with(UNLINK, unlink, &unlink));
}

int gpushm_clean(struct gpushm *c, const char *name)
{
	Gpushm__Proto__Clean clean = GPUSHM__PROTO__CLEAN__INIT;
	int r = request_set_name(name, &clean.has_name, &clean.name);

	return r < 0 ? r : request_ack(c, request_with(CLEAN, clean, &clean));
}

int gpushm_flush(struct gpushm *c, const char *pool)
{
	Gpushm__Proto__Flush flush = GPUSHM__PROTO__FLUSH__INIT;

	flush.has_pool = pool != NULL;
	flush.pool = connection_bytes(pool ? pool : "");
	return request_ack(c, request_with(FLUSH, flush, &flush));
}

int gpushm_restart(struct gpushm *c)
{
	Gpushm__Proto__Restart restart = GPUSHM__PROTO__RESTART__INIT;

	return request_restart(c, request_with(RESTART, restart, &restart));
}
