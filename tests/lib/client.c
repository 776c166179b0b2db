/* SPDX-License-Identifier: MIT
 *
 * One daemon with the default configuration and one connection, per test. What a test leaves behind
 * in the daemon fails it at its end.
 */
#include "tests/lib/client.h"

#include "proto/own.h"

struct daemon d;
struct gpushm *c;

void client_setup(void)
{
	daemon_start(&d, "", NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

uint64_t client_used_bytes(void)
{
	_cleanup_(free_ptr) struct gpushm_pool *pools = NULL;
	uint64_t sum = 0;
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		sum += pools[i].used_bytes;
	return sum;
}

void client_teardown(void)
{
	ck_assert_uint_eq(client_used_bytes(), 0);
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}

struct gpushm_buffer *client_create(const char *name, uint64_t bytes,
				    const struct gpushm_options *o)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_create(c, name, bytes, o, &b) == 0, "%s", gpushm_error());
	return b;
}

void client_close_and_unlink(struct gpushm_buffer *b, const char *name)
{
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, name), 0);
}
