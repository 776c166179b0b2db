/* SPDX-License-Identifier: MIT
 *
 * One daemon with the default configuration and one connection for each test. If a test leaves
 * anything behind in the daemon, the teardown fails it.
 */
#include "tests/lib/client.h"
#include "tests/lib/result.h"

#include "proto/base/own.h"
#include "tests/lib/fds.h"

#include <unistd.h>

struct daemon d;
struct gpushm *c;
static bool counts_fds; /* set by client_setup_with(); other tests start d themselves */

void client_setup_with(const char *config)
{
	fds_mark();
	counts_fds = true;
	daemon_start(&d, config, NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

void client_setup(void)
{
	client_setup_with("");
}

uint64_t client_used_bytes(void)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	uint64_t sum = 0;
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		sum += pools[i]->used_bytes;
	return sum;
}

struct gpushm_status client_status(void)
{
	struct gpushm_status *st = NULL, status;

	ck_assert_msg(gpushm_status(c, &st) == 0, "%s", gpushm_error());
	status = *st;
	status.usage = NULL;
	status.n_usage = 0;
	gpushm_free(st);
	return status;
}

uint32_t client_waiting(void)
{
	return client_status().waiting;
}

/* Memory counts until the daemon sees that nobody has it open: some time after the last close. */
static void await_nothing_used(void)
{
	for (unsigned i = 0; i < 1000 && client_used_bytes() > 0; i++)
		usleep(10000);
	ck_assert_uint_eq(client_used_bytes(), 0);
}

void client_teardown(void)
{
	await_nothing_used();
	c = gpushm_disconnect(c);
	daemon_stop(&d);
	if (counts_fds)
		fds_check();
}

struct gpushm_buffer *client_create(const char *name, uint64_t bytes,
				    const struct gpushm_create_options *o)
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
