/* SPDX-License-Identifier: MIT
 *
 * One keeper, one daemon after the other, one connection.
 */
#include "tests/lib/kept.h"

#include "tests/lib/fds.h"

#include <signal.h>

struct keeper k;

void kept_setup(void)
{
	fds_mark();
	keeper_init(&k, "");
	keeper_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
}

void kept_teardown(void)
{
	ck_assert_uint_eq(client_used_bytes(), 0);
	c = gpushm_disconnect(c);
	keeper_end(&k, SIGTERM);
	ck_assert_uint_eq(keeper_count(&k, 'm'), 0);
	ck_assert_uint_eq(keeper_count(&k, 't'), 0);
	keeper_done(&k);
	fds_check();
}

void kept_crash(void)
{
	keeper_end(&k, SIGKILL);
	keeper_start(&k);
}
