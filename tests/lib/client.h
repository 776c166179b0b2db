/* SPDX-License-Identifier: MIT
 *
 * A daemon and a connection to it for a whole test. Most system tests begin and end with these.
 */
#pragma once

#include "client/gpushm_query.h"
#include "tests/lib/daemon.h"

#include <check.h>
#include <poll.h>

extern struct daemon d;
extern struct gpushm *c;

/* For tcase_add_checked_fixture(). The teardown expects that every pool is empty again and, if one
 * of these setups was used, that the test has as many fds as before. */
void client_setup(void);
void client_setup_with(const char *config); /* the text of gpushmd.conf */
void client_teardown(void);

/* The sum over all pools. */
uint64_t client_used_bytes(void);

/* The daemon's STATUS reply, without users. */
struct gpushm_status client_status(void);

/* The number of clients that wait for a name. */
uint32_t client_waiting(void);

struct gpushm_buffer *client_create(const char *name, uint64_t bytes,
				    const struct gpushm_create_options *o);
void client_close_and_unlink(struct gpushm_buffer *b, const char *name);

/* Waits for what the daemon can only find out by itself, for example that a process is gone. */
#define client_await(condition)                        \
	for (int tries_ = 0; !(condition); tries_++) { \
		ck_assert_int_lt(tries_, 6000);        \
		poll(NULL, 0, 10);                     \
	}
