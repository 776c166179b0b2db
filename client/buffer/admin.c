/* SPDX-License-Identifier: MIT
 *
 * gpushm_restart: asks the daemon to restart, and comes back to its successor as any other
 * connection does.
 */
#include "client/link/connection.h"

int gpushm_restart(struct gpushm *c)
{
	Gpushm__Proto__Restart restart = GPUSHM__PROTO__RESTART__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;

	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_RESTART;
	request.restart = &restart;
	return connection_end(c, &request);
}
