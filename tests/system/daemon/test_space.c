/* SPDX-License-Identifier: MIT
 *
 * Creates that wait for space: in a full pool, and on a GPU that another program fills.
 */
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/fake.h"
#include "tests/lib/shell.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define MIB (1ull << 20)
#define STRANGER 65529
#define CONFIG "[pool host]\nkind=host\nsize=16M\n"

/* ---- roles ---- */

/* socket name: opens it, prints ok, waits to be killed. */
static int holder_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	char line[8];

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], GPUSHM_READ, 0, NULL, &b) < 0)
		return 1;
	puts("ok");
	return fgets(line, sizeof(line), stdin) ? 2 : 0;
}

/* socket name: prints ok, then creates 8 MiB with an unlimited wait. */
static int waiter_role(char **args)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .wait_ms = GPUSHM_WAIT_FOREVER };
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	if (gpushm_connect(args[0], &conn) < 0)
		return 1;
	puts("ok");
	return gpushm_create(conn, args[1], 8 * MIB, &o, &b) ? 2 : 3;
}

static const struct role roles[] = { { "holder", holder_role },
				     { "waiter", waiter_role },
				     { "user", user_role } };

static void start_role(struct role_process *p, const char *role, const char *name)
{
	char line[8];

	role_start(p, role, (const char *[]){ d.socket, name, NULL });
	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, "ok");
}

static void kill_role(struct role_process *p)
{
	ck_assert_int_eq(kill(p->pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(p)));
}

/* ---- a create of 8 MiB that waits, in a thread ---- */

struct waiting {
	pthread_t thread;
	struct gpushm *conn;
	const char *name;
	struct gpushm_create_options options;
	uint64_t bytes;
	struct gpushm_buffer *b;
	int result;
};

static void *create_waiting(void *arg)
{
	struct waiting *w = arg;

	w->result = gpushm_create(w->conn, w->name, w->bytes, &w->options, &w->b);
	return NULL;
}

/* Returns when the daemon has the request. */
static void start_waiting(struct waiting *w, const char *name, const char *pool, uint64_t bytes)
{
	uint32_t before = client_status().buffers;

	*w = (struct waiting){ .name = name, .bytes = bytes };
	w->options.struct_size = sizeof(w->options);
	w->options.pool = pool;
	w->options.wait_ms = GPUSHM_WAIT_FOREVER;
	ck_assert_int_eq(gpushm_connect(d.socket, &w->conn), 0);
	pthread_create(&w->thread, NULL, create_waiting, w);
	client_await(client_status().buffers == before + 1);
}

static void expect_created(struct waiting *w)
{
	pthread_join(w->thread, NULL);
	ck_assert_int_eq(w->result, 0);
	ck_assert_int_eq(gpushm_discard(w->b), 0);
	gpushm_disconnect(w->conn);
}

static int create_for(uint64_t wait_ms, struct gpushm_buffer **ret)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .wait_ms = wait_ms };

	return gpushm_create(c, "late", 8 * MIB, &o, ret);
}

/* ---- a full pool ---- */

START_TEST(a_create_that_waits_gets_what_is_freed)
{
	struct gpushm_buffer *b = client_create("first", 12 * MIB, NULL);
	struct waiting w, v;

	start_waiting(&w, "second", NULL, 8 * MIB);
	start_waiting(&v, "third", NULL, 8 * MIB);
	ck_assert_int_eq(gpushm_discard(b), 0);
	expect_created(&w);
	expect_created(&v);
}
END_TEST

START_TEST(a_create_waits_for_the_last_holder_of_memory)
{
	struct gpushm_buffer *b = client_create("first", 12 * MIB, NULL);
	struct role_process holder;
	struct waiting w;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	start_role(&holder, "holder", "first");
	client_close_and_unlink(b, "first");
	start_waiting(&w, "second", NULL, 8 * MIB);
	ck_assert_int_eq(create_for(1, &b), -ENOSPC);
	kill_role(&holder);
	expect_created(&w);
}
END_TEST

START_TEST(a_create_waits_its_full_time_and_names_the_holders)
{
	struct gpushm_buffer *b = client_create("first", 12 * MIB, NULL), *late = NULL;
	uint64_t before;
	char who[32];

	snprintf(who, sizeof(who), "uid %u: 12.0 MiB", getuid());
	ck_assert_int_eq(create_for(0, &late), -ENOSPC);
	ck_assert_msg(strstr(gpushm_error(), who), "%s", gpushm_error());
	before = clock_monotonic_ns();
	ck_assert_int_eq(create_for(300, &late), -ENOSPC);
	ck_assert_uint_ge(clock_monotonic_ns() - before, 300000000);
	ck_assert_str_eq(gpushm_error_code(), "POOL_FULL");
	ck_assert_msg(strstr(gpushm_error(), who), "%s", gpushm_error());
	ck_assert_int_eq(gpushm_discard(b), 0);
	/* Its name is free again. */
	ck_assert_int_eq(create_for(0, &late), 0);
	ck_assert_int_eq(gpushm_discard(late), 0);
}
END_TEST

START_TEST(a_create_stops_waiting_when_its_client_dies)
{
	struct gpushm_buffer *b = client_create("first", 12 * MIB, NULL);
	struct role_process waiter;

	start_role(&waiter, "waiter", "late");
	client_await(client_status().buffers == 2);
	kill_role(&waiter);
	client_await(client_status().buffers == 1);
	ck_assert_int_eq(gpushm_discard(b), 0);
	ck_assert_int_eq(create_for(0, &b), 0);
	ck_assert_int_eq(gpushm_discard(b), 0);
}
END_TEST

START_TEST(a_full_pool_names_what_is_the_users_own_and_sums_up_the_rest)
{
	struct gpushm_buffer *b = client_create("first", 12 * MIB, NULL), *late = NULL;
	struct role_process stranger;
	const char *mine, *theirs;

	if (!user_may_change()) {
		ck_assert_int_eq(gpushm_discard(b), 0);
		return;
	}
	user_start(&stranger, d.socket, STRANGER, STRANGER);
	user_does(&stranger, "create theirs 0600", "OK");
	ck_assert_int_eq(create_for(1, &late), -ENOSPC);
	mine = strstr(gpushm_error(), "uid 0: 12.0 MiB: \"first\" 12.0 MiB");
	theirs = strstr(gpushm_error(), "; 4.0 KiB of other users");
	ck_assert_msg(mine && theirs && mine < theirs, "%s", gpushm_error());
	user_end(&stranger);
	ck_assert_int_eq(gpushm_discard(b), 0);
	client_await(client_status().buffers == 0);
}
END_TEST

START_TEST(a_request_that_can_never_fit_is_refused_at_once)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .wait_ms = GPUSHM_WAIT_FOREVER };
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(gpushm_create(c, "x", 17 * MIB, &o, &b), -EFBIG);
}
END_TEST

START_TEST(gpushmctl_waits_for_space)
{
	struct gpushm_buffer *b = client_create("first", 12 * MIB, NULL);
	struct shell sh;

	setenv("GPUSHM_SOCKET", d.socket, 1);
	shell_open(&sh);
	shell_expect(&sh, 1, "$ctl create --wait=0.05 --size=8M y");
	ck_assert_msg(strstr(sh.err, "held in it by uid"), "%s", sh.err);
	ck_assert_int_eq(gpushm_discard(b), 0);
	shell_expect(&sh, 0, "$ctl create --wait=60 --size=8M y && $ctl rm y");
	shell_close(&sh);
}
END_TEST

/* ---- a GPU that another program fills ---- */

START_TEST(a_create_that_waits_asks_the_driver_again)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "gpu0" };
	struct gpushm *other = NULL;
	struct gpushm_buffer *theirs = NULL, *mine = NULL;
	struct daemon e;
	struct waiting w;
	char state[48];

	if (!fake_is_here())
		return;
	snprintf(state, sizeof(state), "gpushm-test-room-%d", getpid());
	setenv("FAKECUDA_STATE", state, 1);
	setenv("FAKECUDA_MEMORY", "64M", 1);
	client_setup();
	daemon_start(&e, "", NULL);
	ck_assert_int_eq(gpushm_connect(e.socket, &other), 0);
	ck_assert_msg(gpushm_create(other, "x", 40 * MIB, &o, &theirs) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_create(c, "x", 40 * MIB, &o, &mine), -ENOSPC);
	ck_assert_msg(strstr(gpushm_error(), "OUT_OF_MEMORY; the pool has room"), "%s",
		      gpushm_error());
	start_waiting(&w, "x", "gpu0", 40 * MIB);
	ck_assert_int_eq(gpushm_discard(theirs), 0);
	ck_assert_int_eq(gpushm_flush(other, NULL), 0);
	expect_created(&w);
	gpushm_disconnect(other);
	daemon_stop(&e);
	client_teardown();
	shm_unlink(state);
}
END_TEST

/* Two pools on one GPU, each of which may use all of it, as the default ones nearly may. */
#define TWO                                                            \
	"[pool a]\nkind=vmm\nsize=64M\n[pool b]\nkind=vmm\nsize=64M\n" \
	"[pool m]\nkind=mempool\nsize=64M\n"

static struct gpushm_buffer *create_in(const char *pool, uint64_t bytes)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_create(c, pool, bytes, &o, &b) == 0, "%s", gpushm_error());
	return b;
}

START_TEST(freed_memory_of_one_pool_serves_another)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "b" };
	struct gpushm_buffer *first, *b = NULL;

	if (!fake_is_here())
		return;
	setenv("FAKECUDA_MEMORY", "72M", 1);
	client_setup_with(TWO);
	first = create_in("a", 40 * MIB);
	ck_assert_int_eq(gpushm_create(c, "x", 40 * MIB, &o, &b), -ENOSPC);
	ck_assert_msg(strstr(gpushm_error(), "(a: 40.0 MiB, nvidia-smi shows programs)"), "%s",
		      gpushm_error());
	/* Its memory goes to the list of pool a, which stays within its limits. */
	ck_assert_int_eq(gpushm_discard(first), 0);
	b = create_in("b", 40 * MIB);
	ck_assert_int_eq(gpushm_discard(b), 0);
	/* The same from pool a to a mempool. */
	b = create_in("a", 60 * MIB);
	ck_assert_int_eq(gpushm_discard(b), 0);
	b = create_in("m", 20 * MIB);
	ck_assert_int_eq(gpushm_discard(b), 0);
	client_teardown();
}
END_TEST

static void setup(void)
{
	client_setup_with(CONFIG);
}

int main(int argc, char **argv)
{
	TCase *t = tcase_create("pool"), *gpu = tcase_create("gpu");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_set_timeout(t, 120);
	tcase_set_timeout(gpu, 120);
	tcase_add_checked_fixture(t, setup, client_teardown);
	tcase_add_test(t, a_create_that_waits_gets_what_is_freed);
	tcase_add_test(t, a_create_waits_for_the_last_holder_of_memory);
	tcase_add_test(t, a_create_waits_its_full_time_and_names_the_holders);
	tcase_add_test(t, a_create_stops_waiting_when_its_client_dies);
	tcase_add_test(t, a_full_pool_names_what_is_the_users_own_and_sums_up_the_rest);
	tcase_add_test(t, a_request_that_can_never_fit_is_refused_at_once);
	tcase_add_test(t, gpushmctl_waits_for_space);
	tcase_add_test(gpu, a_create_that_waits_asks_the_driver_again);
	tcase_add_test(gpu, freed_memory_of_one_pool_serves_another);
	return suite_run("space", t, gpu, NULL);
}
