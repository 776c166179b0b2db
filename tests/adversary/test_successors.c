/* SPDX-License-Identifier: MIT
 *
 * What a daemon knows about its users its successor must know as well: who owns a pool, which users
 * have had a buffer's memory, since when a lease is held. Needs root, to become other users; the
 * tests of pools on a GPU need a GPU.
 */
#include "proto/base/own.h"
#include "tests/lib/actor.h"
#include "tests/lib/raw.h"
#include "tests/lib/suite.h"
#include "tests/lib/supervisor.h"
#include "tests/lib/user.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { OWNER = 65531, STRANGER = 65529 };

#define MIB2 (2u << 20)

static const char config[] = "[daemon]\ndefault-pool=host\n"
			     "[pool host]\nkind=host\nsize=1M\n"
			     "[pool gpu0]\nkind=vmm\nsize=64M\n"
			     "[pool mem]\nkind=mempool\nsize=1M\nallow-users=65531\n";

static struct supervisor k;
static struct actor owner, stranger;
static struct raw by_owner, by_stranger, eye;

static void greet(struct raw *r, struct actor *a)
{
	*r = (struct raw){ .socket = actor_connect(a) };
	ck_assert_int_eq(raw_call(r, REQUEST(HELLO, Hello, hello, SET(version_min, 1),
					     SET(version_max, 1))),
			 0);
}

static void connect_all(void)
{
	greet(&by_owner, &owner);
	greet(&by_stranger, &stranger);
	raw_greet(&eye, k.socket);
}

static void close_all(void)
{
	raw_close(&by_owner);
	raw_close(&by_stranger);
	raw_close(&eye);
}

static void setup(void)
{
	supervisor_init(&k, config);
	ck_assert_int_eq(chmod(k.folder, 0755), 0);
	supervisor_start(&k);
	ck_assert_int_eq(chmod(k.socket, 0666), 0);
	actor_start(&owner, k.socket, OWNER, OWNER);
	actor_start(&stranger, k.socket, STRANGER, STRANGER);
	connect_all();
}

static void teardown(void)
{
	close_all();
	actor_kill(&owner);
	actor_kill(&stranger);
	supervisor_end(&k, SIGTERM);
	supervisor_done(&k);
}

static void crash(void)
{
	supervisor_end(&k, SIGKILL);
	close_all();
	supervisor_start(&k);
	connect_all();
}

static const Gpushm__Proto__Pool *pool_named(const char *name)
{
	const Gpushm__Proto__Pool *found = NULL;

	ck_assert_int_eq(raw_call(&eye, REQUEST(POOLS, Pools, pools)), 0);
	for (size_t i = 0; i < eye.reply->pools->n_pools; i++) {
		const Gpushm__Proto__Pool *it = eye.reply->pools->pools[i];

		if (it->name.len == strlen(name) && memcmp(it->name.data, name, it->name.len) == 0)
			found = it;
	}
	return found;
}

static bool works(const char *pool)
{
	if (!pool_named(pool)->failed)
		return true;
	printf("skipped: no GPU for pool %s\n", pool);
	return false;
}

/* Published by the owner, open to everybody. */
static uint64_t publish(const char *pool, const char *name)
{
	uint64_t lease;

	ck_assert_msg(raw_call(&by_owner,
			       REQUEST(CREATE, Create, create, BYTES(name, name), BYTES(pool, pool),
				       SET(size_bytes, MIB2 / 8), SET(mode, 0666))) == 0,
		      "%s", by_owner.text);
	lease = by_owner.reply->attach->lease;
	raw_publish(&by_owner, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
	return lease;
}

static int open_by(struct raw *r, const char *name)
{
	return raw_call(r, REQUEST(OPEN, Open, open, BYTES(name, name)));
}

/* The fd of a mempool gives access to the whole pool. */
START_TEST(a_successor_keeps_a_mempool_closed_to_strangers)
{
	if (!works("mem"))
		return;
	publish("mem", "x");
	ck_assert_int_eq(open_by(&by_stranger, "x"), CODE_ACCESS);
	crash();
	ck_assert_int_eq(open_by(&by_stranger, "x"), CODE_ACCESS);
	ck_assert_int_eq(open_by(&by_owner, "x"), 0);
	crash();
	ck_assert_int_eq(open_by(&by_stranger, "x"), CODE_ACCESS);
}
END_TEST

static void write_config(const char *text)
{
	FILE *f = fopen(k.config, "we");

	ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void reload(void)
{
	unsigned before = supervisor_log_count(&k, "configuration reloaded");

	ck_assert_int_eq(kill(k.pid, SIGHUP), 0);
	while (supervisor_log_count(&k, "configuration reloaded") == before)
		poll(NULL, 0, 5);
}

/* The rules of a section of another kind are not those of the mempool. */
START_TEST(a_mempool_that_changes_kind_stays_closed_to_strangers)
{
	if (!works("mem"))
		return;
	publish("mem", "x");
	write_config("[pool host]\nkind=host\nsize=1M\n[pool mem]\nkind=vmm\nsize=64M\n");
	reload();
	ck_assert_int_eq(open_by(&by_stranger, "x"), CODE_ACCESS);
	ck_assert_int_eq(open_by(&by_owner, "x"), 0);
	crash();
	ck_assert_int_eq(open_by(&by_stranger, "x"), CODE_ACCESS);
	reload();
	ck_assert_int_eq(open_by(&by_stranger, "x"), CODE_ACCESS);
}
END_TEST

START_TEST(a_successor_keeps_a_block_pending_that_others_have_had)
{
	if (!works("gpu0"))
		return;
	publish("gpu0", "x");
	ck_assert_int_eq(raw_call(&by_stranger, REQUEST(CLOSE, Close, close,
							SET(lease, raw_open(&by_stranger, "x")))),
			 0);
	crash();
	/* The daemon first checks inherited memory with its driver. */
	ck_assert_int_eq(raw_call(&eye, REQUEST(CREATE, Create, create, BYTES(name, "audit"),
						BYTES(pool, "gpu0"), SET(size_bytes, 1))),
			 0);
	actor_kill(&owner);
	actor_start(&owner, k.socket, OWNER, OWNER);
	raw_close(&by_owner);
	greet(&by_owner, &owner);
	ck_assert_int_eq(raw_call(&by_owner, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x"))), 0);
	while (pool_named("gpu0")->pending == 0)
		poll(NULL, 0, 10);
	publish("gpu0", "y");
	ck_assert_uint_eq(pool_named("gpu0")->pending, 1);
}
END_TEST

static uint64_t since(const char *name)
{
	ck_assert_int_eq(raw_call(&eye,
				  REQUEST(STAT, Stat, stat, BYTES(name, name), SET(holders, 1))),
			 0);
	ck_assert_uint_eq(eye.reply->stat->n_holders, 1);
	return eye.reply->stat->holders[0]->since_ns;
}

START_TEST(a_successor_knows_the_age_of_a_lease)
{
	uint64_t before;

	publish("host", "x");
	before = since("x");
	crash();
	ck_assert_uint_eq(since("x"), before);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("successors");

	if (!user_may_change())
		return 0;
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_successor_keeps_a_mempool_closed_to_strangers);
	tcase_add_test(t, a_mempool_that_changes_kind_stays_closed_to_strangers);
	tcase_add_test(t, a_successor_keeps_a_block_pending_that_others_have_had);
	tcase_add_test(t, a_successor_knows_the_age_of_a_lease);
	return suite_run("successors", t, NULL);
}
