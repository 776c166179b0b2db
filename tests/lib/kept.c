/* SPDX-License-Identifier: MIT
 *
 * One supervisor, one daemon after the other, one connection.
 */
#include "tests/lib/kept.h"

#include "tests/lib/fds.h"

#include <signal.h>
#include <string.h>

struct supervisor k;

void kept_setup(void)
{
	fds_mark();
	supervisor_init(&k, "");
	supervisor_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
	memcpy(d.socket, k.socket, sizeof(d.socket));
}

void kept_teardown(void)
{
	ck_assert_uint_eq(client_used_bytes(), 0);
	c = gpushm_disconnect(c);
	supervisor_end(&k, SIGTERM);
	ck_assert_uint_eq(supervisor_count(&k, 'm'), 0);
	ck_assert_uint_eq(supervisor_count(&k, 't'), 0);
	supervisor_done(&k);
	fds_check();
}

void kept_crash(void)
{
	supervisor_end(&k, SIGKILL);
	supervisor_start(&k);
}
